#pragma once
// Byte counts: literals, printing, and rounding that cannot wrap.

#include <weir/version.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

namespace weir {

// constexpr rather than consteval: clang 14 leaves calls to consteval functions in templates, and they do not link.
inline namespace literals {
constexpr std::size_t operator""_KiB(unsigned long long n) { return static_cast<std::size_t>(n) << 10; }
constexpr std::size_t operator""_MiB(unsigned long long n) { return static_cast<std::size_t>(n) << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return static_cast<std::size_t>(n) << 30; }
}  // namespace literals

/// What every resource aligns to at least, as `cudaMalloc` does; bytes.
inline constexpr std::size_t default_alignment = 256;
/// The largest alignment that may be asked for; bytes.
inline constexpr std::size_t max_alignment = std::size_t{2} << 20;

/// True for the alignments a resource honours: powers of two up to `max_alignment`.
constexpr bool is_valid_alignment(std::size_t alignment) noexcept {
  return alignment != 0 && (alignment & (alignment - 1)) == 0 && alignment <= max_alignment;
}

/// `bytes` rounded up to a multiple of `alignment` (a power of two), or 0 where that exceeds `std::size_t`.
constexpr std::size_t round_up_or_zero(std::size_t bytes, std::size_t alignment) noexcept {
  std::size_t const mask = alignment - 1;
  return (bytes + mask) & ~mask;  // a sum that wraps is less than `alignment`
}

/// The room that a block aligned to `default_alignment` needs so that `bytes` fit into it at an address aligned to
/// `alignment`; 0 where that exceeds `std::size_t`. An alignment that no resource honours needs none: it is refused.
constexpr std::size_t padded_or_zero(std::size_t bytes, std::size_t alignment) noexcept {
  if (alignment <= default_alignment || !is_valid_alignment(alignment)) return bytes;
  std::size_t const padding = alignment - default_alignment;
  return bytes > ~padding ? 0 : bytes + padding;
}

/// Prints a byte count for people: `0 B`, `512 B`, `1.50 GiB`.
inline std::string format_bytes(std::size_t bytes) {
  static constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1023.995 && unit < 6) {  // above this, two decimals would print 1024.00
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, units[unit]);
  return text;
}

}  // namespace weir
