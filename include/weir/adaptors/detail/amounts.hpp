#pragma once
// So much of each of a few things that are counted together.

#include <weir/version.hpp>

#include <cstdint>

namespace weir::detail {

template <unsigned N>
struct amounts {
  std::int64_t of[N] = {};

  /// Whether there is as much of everything as in `other`.
  [[gnu::always_inline]] bool covers(amounts const& other) const noexcept {
    for (unsigned i = 0; i < N; ++i)
      if (of[i] < other.of[i]) return false;
    return true;
  }
  [[gnu::always_inline]] amounts& operator+=(amounts const& other) noexcept {
    for (unsigned i = 0; i < N; ++i) of[i] += other.of[i];
    return *this;
  }
  [[gnu::always_inline]] amounts& operator-=(amounts const& other) noexcept {
    for (unsigned i = 0; i < N; ++i) of[i] -= other.of[i];
    return *this;
  }
  friend amounts operator+(amounts a, amounts const& b) noexcept { return a += b; }
  friend amounts operator-(amounts a, amounts const& b) noexcept { return a -= b; }
  friend bool operator==(amounts const&, amounts const&) noexcept = default;

  /// Of each the lesser of what `a` has and an eighth of what `b` has; nothing of what that would be less than.
  static amounts least(amounts const& a, amounts const& b) noexcept {
    amounts result;
    for (unsigned i = 0; i < N; ++i) {
      std::int64_t const most = b.of[i] / 8;
      result.of[i] = most < 0 ? 0 : a.of[i] < most ? a.of[i] : most;
    }
    return result;
  }
};

}  // namespace weir::detail
