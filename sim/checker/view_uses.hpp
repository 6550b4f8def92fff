#pragma once
// How physical memory was used through its views, internal, to find uses through two of them that have no order.

#include "model/vector_clock.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

namespace weir::sim::detail {

/// A use through a view, which goes by the number of its mapping and begins at `at`.
struct view_use {
  operation_number view = 0;
  std::uintptr_t at = 0;
  mark by;
  bool writes = false;
};

/// The latest uses of each byte. Positions count from the beginning of the memory.
class view_uses {
 public:
  /// A use of [begin, end) by something that comes after what `known` says. Returns an earlier use through another view
  /// that it does not come after, if at least one of the two writes.
  std::optional<view_use> add(std::uintptr_t begin, std::uintptr_t end, view_use const& now,
                              vector_clock const& known) {
    cut(begin);
    cut(end);
    fill_gaps(begin, end);
    auto const first = pieces_.find(begin), last = pieces_.lower_bound(end);
    std::optional<view_use> missing;
    bool after_all = true;
    for (auto part = first; part != last; ++part) {
      for (view_use const& before : part->second.uses) {
        if (known.knows(before.by)) continue;
        after_all = false;
        if (!missing && before.view != now.view && (before.writes || now.writes)) missing = before;
      }
    }
    if (now.writes && after_all) {  // stands for all of them
      pieces_.erase(first, last);
      pieces_[begin] = {end, {now}};
    } else {
      for (auto part = first; part != last; ++part) remember(part->second, now);
    }
    return missing;
  }

 private:
  struct piece {
    std::uintptr_t end = 0;
    std::vector<view_use> uses;
  };

  void cut(std::uintptr_t at) {
    auto const after = pieces_.upper_bound(at);
    if (after == pieces_.begin()) return;
    auto const whole = std::prev(after);
    if (whole->first == at || whole->second.end <= at) return;
    pieces_.emplace(at, whole->second);
    whole->second.end = at;
  }

  void fill_gaps(std::uintptr_t begin, std::uintptr_t end) {
    for (auto next = pieces_.lower_bound(begin); begin < end; ++next) {
      std::uintptr_t const gap_ends = next == pieces_.end() ? end : std::min(end, next->first);
      if (begin < gap_ends) next = pieces_.emplace_hint(next, begin, piece{gap_ends, {}});
      begin = next->second.end;
    }
  }

  static void remember(piece& where, view_use const& now) {
    for (view_use& known : where.uses) {
      if (known.view != now.view || known.by.slot != now.by.slot || known.writes != now.writes) continue;
      known = now;
      return;
    }
    where.uses.push_back(now);
  }

  std::map<std::uintptr_t, piece> pieces_;  // by position
};

}  // namespace weir::sim::detail
