#pragma once
// Looks for a place in what is sorted, by number.

#include <weir/version.hpp>

#include <cstddef>

namespace weir::detail {

/// The first index below `count` of which `is_behind(index)` holds, as it does of all after it; `count` if of none.
/// Asks a logarithmic number of times. `<algorithm>` has the same for iterators, and is heavy to include.
template <class F>
constexpr std::size_t first_index(std::size_t count, F is_behind) noexcept(noexcept(is_behind(count))) {
  std::size_t first = 0;
  while (count != 0) {
    std::size_t const half = count / 2;
    bool const behind = is_behind(first + half);
    first += behind ? 0 : half + 1;
    count = behind ? half : count - half - 1;
  }
  return first;
}

}  // namespace weir::detail
