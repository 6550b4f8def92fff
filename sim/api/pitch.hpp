#pragma once
// Pitches, and numbers of bytes that cannot overflow, internal.

#include <cstddef>

namespace weir::sim::detail {

/// The largest pitch of a copy (`cudaDevAttrMaxPitch`), and what pitches of allocations are multiples of.
inline constexpr std::size_t max_pitch = 0x7fff'ffff;
inline constexpr std::size_t pitch_unit = 512;

/// Numbers of bytes that stay at the largest number, which no device has room for.
inline constexpr std::size_t too_many = static_cast<std::size_t>(-1);
inline std::size_t times(std::size_t a, std::size_t b) { return b != 0 && a > too_many / b ? too_many : a * b; }
inline std::size_t plus(std::size_t a, std::size_t b) { return a > too_many - b ? too_many : a + b; }

}  // namespace weir::sim::detail
