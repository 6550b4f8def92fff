#pragma once
// What looking at the clock takes.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// Of two looks, one after the other, ns: to be taken off what they measure.
inline std::uint32_t clock_cost() {
  using clock = std::chrono::steady_clock;
  std::vector<std::uint32_t> times(10'000);
  for (std::uint32_t& t : times) {
    auto const a = clock::now();
    t = static_cast<std::uint32_t>((clock::now() - a).count());
  }
  std::nth_element(times.begin(), times.begin() + 5'000, times.end());
  return times[5'000];
}

}  // namespace bench
