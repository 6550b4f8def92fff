#pragma once
// The largest of values that hold for spans of numbers: of moments, or of addresses.

#include <weir/version.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weir::detail {

/// Values above 0, each of which holds from a number until another, that one excluded; and the largest that holds
/// anywhere in a span. A call takes the logarithm of how many `places` there are.
class span_maximum {
 public:
  /// `places`: where what is added begins and ends, in any order.
  explicit span_maximum(std::vector<std::uint64_t> places) : places_(std::move(places)) {
    std::sort(places_.begin(), places_.end());
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    slots_ = std::bit_ceil(places_.size() + 1);
    all_.resize(2 * slots_);
    any_.resize(2 * slots_);
  }

  /// Both are among the places, and `from` is below `until`.
  void add(std::uint64_t from, std::uint64_t until, std::uint64_t value) {
    auto const raise = [value](std::uint64_t& to) { to = std::max(to, value); };
    each_node(from, until, [&](std::size_t node) { raise(all_[node]), raise(any_[node]); });
    each_above(from, until, [&](std::size_t node) { raise(any_[node]); });
  }
  /// 0 where nothing holds. `from` is among the places, or before all that is to be found.
  std::uint64_t over(std::uint64_t from, std::uint64_t until) const {
    std::uint64_t most = 0;
    each_node(from, until, [&](std::size_t node) { most = std::max(most, any_[node]); });
    each_above(from, until, [&](std::size_t node) { most = std::max(most, all_[node]); });
    return most;
  }

 private:
  // A binary tree: node 1 is all slots, node n has the halves 2n and 2n + 1, and slot i, from place i to the next, is
  // node slots_ + i.
  std::size_t leaf(std::uint64_t place) const {
    return slots_ + static_cast<std::size_t>(std::lower_bound(places_.begin(), places_.end(), place) - places_.begin());
  }
  /// The fewest nodes that are the span.
  template <class F>
  void each_node(std::uint64_t from, std::uint64_t until, F f) const {
    for (std::size_t first = leaf(from), last = leaf(until); first < last; first /= 2, last /= 2) {
      if (first % 2 != 0) f(first++);
      if (last % 2 != 0) f(--last);
    }
  }
  /// Those that contain the span's first slot, or its last.
  template <class F>
  void each_above(std::uint64_t from, std::uint64_t until, F f) const {
    if (leaf(from) >= leaf(until)) return;
    for (std::size_t node : {leaf(from), leaf(until) - 1})
      while ((node /= 2) != 0) f(node);
  }

  std::vector<std::uint64_t> places_;
  std::size_t slots_ = 0;
  std::vector<std::uint64_t> all_;  ///< by node: the largest that holds in all of it at once
  std::vector<std::uint64_t> any_;  ///< by node: the largest that holds somewhere in it
};

}  // namespace weir::detail
