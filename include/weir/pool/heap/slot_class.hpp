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
  static constexpr unsigned of(units size) noexcept {
    units const last = size - 1;
    unsigned const shift = static_cast<unsigned>(std::bit_width(last | per_doubling)) - 4;
    return shift * per_doubling + (last >> shift);
  }
  /// The units of a slot of the class.
  static constexpr units size(unsigned number) noexcept {
    if (number < 2 * per_doubling) return number + 1;
    return (number % per_doubling + per_doubling + 1) << (number / per_doubling - 1);
  }
  /// A class and the bytes of its slots.
  struct sized {
    unsigned number;
    std::size_t bytes;
  };
  /// Both for `bytes` from 1 to `most_bytes`, without a branch. As `of`: a number of bytes has the same leading bits as
  /// that of units.
  [[gnu::always_inline]] static constexpr sized for_bytes(std::size_t bytes) noexcept {
    unsigned const last = static_cast<unsigned>(bytes - 1);
    unsigned const shift = leading_at(last);
    unsigned const number = last >> shift;
    return {shift * per_doubling + number - std::countr_zero(unit_bytes) * per_doubling, (number + 1) << shift};
  }
  /// A power of two that the slots of the class which serves `size` units are whole times of.
  static constexpr units step(units size) noexcept {
    return units{1} << (static_cast<unsigned>(std::bit_width((size - 1) | per_doubling)) - 4);
  }
  /// `size` units, rounded up to those of its class.
  static constexpr units rounded(units size) noexcept { return (size + step(size) - 1) / step(size) * step(size); }

  /// The bytes of the block that serves a request where small sizes are rounded so; 0 if that wraps.
  static constexpr std::size_t block_bytes(std::size_t bytes, std::size_t alignment) noexcept {
    std::size_t const last = bytes - 1;
    if (last < most_bytes && alignment <= unit_bytes) [[likely]] {
      unsigned const shift = leading_at(static_cast<unsigned>(last));
      return ((last >> shift) + 1) << shift;
    }
    return (bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
  }

  /// Where the four bits begin that tell the class of so many bytes and one.
  [[gnu::always_inline]] static constexpr unsigned leading_at(unsigned last) noexcept {
    return static_cast<unsigned>(std::bit_width(last | unsigned{per_doubling * unit_bytes})) - 4;
  }

  static constexpr unsigned count = (std::bit_width(most_units) - 3) * per_doubling;
};
static_assert(slot_class::of(slot_class::most_units) + 1 == slot_class::count);
static_assert(slot_class::size(slot_class::count - 1) == slot_class::most_units);

}  // namespace weir::detail
