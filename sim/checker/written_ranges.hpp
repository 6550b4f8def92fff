#pragma once
// Which bytes of a piece of memory were written, internal, to report reads of all others.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace weir::sim::detail {

/// A set of addresses, kept as ranges that neither overlap nor touch.
class written_ranges {
 public:
  void add(std::uintptr_t begin, std::uintptr_t end) {
    if (begin >= end) return;
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin) --next;
    while (next != ends_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace(begin, end);
  }

  void remove(std::uintptr_t begin, std::uintptr_t end) {
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second > begin) --next;
    while (next != ends_.end() && next->first < end) {
      auto const [first, last] = *next;
      next = ends_.erase(next);
      if (first < begin) ends_.emplace(first, begin);
      if (last > end) ends_.emplace(end, last);
    }
  }

  /// Calls `visit(begin, end)` for each range of [begin, end) that is not in the set.
  template <class Visit>
  void for_each_gap(std::uintptr_t begin, std::uintptr_t end, Visit visit) const {
    for (std::optional<std::uintptr_t> first = gap(begin, end); first; first = gap(begin, end)) {
      auto const next = ends_.upper_bound(*first);
      begin = next == ends_.end() ? end : std::min(end, next->first);
      visit(*first, begin);
    }
  }

  /// The first address in [begin, end) that is not in the set.
  std::optional<std::uintptr_t> gap(std::uintptr_t begin, std::uintptr_t end) const {
    auto const after = ends_.upper_bound(begin);
    if (after != ends_.begin()) begin = std::max(begin, std::prev(after)->second);
    if (begin >= end) return {};
    return begin;
  }

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by first address
};

}  // namespace weir::sim::detail
