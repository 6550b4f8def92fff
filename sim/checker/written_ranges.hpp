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
