#pragma once
// Sizes in units and the class each falls into: the two levels of a segregated-fit index.

#include <weir/version.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Sizes inside a pool are counted in units of 256 bytes, so that 32 bits reach to 1 TiB.
using units = std::uint32_t;
inline constexpr std::size_t unit_bytes = 256;
/// The largest block or segment, in bytes.
inline constexpr std::size_t max_block_bytes = std::size_t{0xffffffff} * unit_bytes;

/// As `std::min` and `std::max`, whose header takes longer to compile than a pool.
constexpr std::size_t lesser(std::size_t a, std::size_t b) noexcept { return b < a ? b : a; }
constexpr std::size_t greater(std::size_t a, std::size_t b) noexcept { return a < b ? b : a; }

/// Sizes below `per_row` units have a class each; above, every power of two is cut into `per_row` classes, so that the
/// sizes of a class differ by at most 1/32. Two-Level Segregated Fit: Masmano, Ripoll, Crespo, Real (ECRTS 2004).
struct size_class {
  static constexpr unsigned row_bits = 5;
  static constexpr unsigned per_row = 1u << row_bits;
  static constexpr unsigned rows = 32 - row_bits + 1;

  static constexpr unsigned count = rows * per_row;

  unsigned number;  ///< of all classes, from small to large
  constexpr unsigned row() const noexcept { return number / per_row; }
  constexpr unsigned column() const noexcept { return number % per_row; }

  friend constexpr bool operator==(size_class, size_class) = default;

  static constexpr size_class at(unsigned row, unsigned column) noexcept { return {row * per_row + column}; }
  /// The class that holds blocks of `size` units.
  static constexpr size_class of(units size) noexcept {
    // Without a branch: whether a size is small is anyone's guess, the processor's too. From `per_row` units on the
    // highest bit of what is left is that of the next row.
    unsigned const shift = static_cast<unsigned>(std::bit_width(size | per_row)) - 1 - row_bits;
    return {(shift << row_bits) + (size >> shift)};
  }

  /// The smallest size in the class.
  constexpr units least() const noexcept { return row() == 0 ? column() : (units{per_row} | column()) << (row() - 1); }
};

}  // namespace weir::detail
