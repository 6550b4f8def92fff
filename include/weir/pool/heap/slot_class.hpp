#pragma once
// The sizes that small requests are rounded up to, so that a freed block serves the next request.

#include <weir/pool/heap/size_class.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Numbers of the sizes from one unit to 1 MiB: each whole number of units up to 16 (4 KiB), then eight to a doubling,
/// so that at most an eighth of a slot is not used. As in jemalloc and tcmalloc.
struct slot_class {
  static constexpr unsigned per_doubling = 8;
  static constexpr units most_units = 4096;
  static constexpr std::size_t most_bytes = most_units * unit_bytes;

  /// The class that serves `size` units, from 1 to `most_units`.
  static constexpr unsigned of(units size) noexcept { return for_units(size).number; }
  /// The units of a slot of the class.
  static constexpr units size(unsigned number) noexcept {
    if (number < 2 * per_doubling) return number + 1;
    return (number % per_doubling + per_doubling + 1) << (number / per_doubling - 1);
  }
  /// A class and the units of its slots.
  struct sized {
    unsigned number;
    units size;
    constexpr std::size_t bytes() const noexcept { return std::size_t{size} * unit_bytes; }
  };
  /// Both for `size` units, without a branch.
  [[gnu::always_inline]] static constexpr sized for_units(units size) noexcept {
    units const last = size - 1;
    unsigned const shift = static_cast<unsigned>(std::bit_width(last | per_doubling)) - 4;
    units const number = last >> shift;
    return {shift * per_doubling + number, (number + 1) << shift};
  }
  [[gnu::always_inline]] static constexpr sized for_bytes(std::size_t bytes) noexcept {
    return for_units(static_cast<units>((bytes + unit_bytes - 1) / unit_bytes));
  }
  /// A power of two that the slots of the class which serves `size` units are whole times of.
  static constexpr units step(units size) noexcept {
    return units{1} << (static_cast<unsigned>(std::bit_width((size - 1) | per_doubling)) - 4);
  }
  /// `size` units, rounded up to those of its class.
  static constexpr units rounded(units size) noexcept { return for_units(size).size; }

  /// The bytes of the block that serves a request where small sizes are rounded so; 0 if that wraps.
  static constexpr std::size_t block_bytes(std::size_t bytes, std::size_t alignment) noexcept {
    std::size_t const last = bytes - 1;
    if (last < most_bytes && alignment <= unit_bytes) [[likely]] {
      // As `for_units`, of which a number of bytes has the same leading bits.
      unsigned const shift = static_cast<unsigned>(std::bit_width(last | per_doubling * unit_bytes)) - 4;
      return ((last >> shift) + 1) << shift;
    }
    return (bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
  }

  static constexpr unsigned count = (std::bit_width(most_units) - 3) * per_doubling;
};
static_assert(slot_class::of(slot_class::most_units) + 1 == slot_class::count);
static_assert(slot_class::size(slot_class::count - 1) == slot_class::most_units);

}  // namespace weir::detail
