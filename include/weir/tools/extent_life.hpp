#pragma once
// Memory that comes and goes in pieces: from when to when something was behind which addresses.

#include <weir/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace weir {

/// A moment of a trace: m is the state after its first m events, so 0 is before all of them.
using trace_moment = std::size_t;
/// Later than any moment.
inline constexpr trace_moment to_the_end = ~trace_moment{0};

/// Addresses with memory behind them, from a moment until another.
struct extent_life {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  trace_moment from = 0;
  trace_moment until = to_the_end;
};

namespace detail {

/// No memory is as large; what says it is, is damaged. So sums of sizes do not wrap.
constexpr bool is_size_of_memory(std::uint64_t bytes) { return bytes != 0 && bytes <= std::uint64_t{1} << 48; }

/// Follows memory that comes and goes in pieces: segments, or what is mapped of growable ranges.
class extent_follower {
 public:
  void begin(std::uint64_t address, std::uint64_t bytes, trace_moment now) {
    if (!is_size_of_memory(bytes)) return;
    end(address, bytes, now, false);  // if its end was lost
    open_[address] = {address, std::min(bytes, ~address), now, to_the_end};
  }
  /// `was_there`: parts that never began have been there before all events.
  void end(std::uint64_t address, std::uint64_t bytes, trace_moment now, bool was_there = true) {
    if (!is_size_of_memory(bytes)) return;
    std::uint64_t const last = address + std::min(bytes, ~address);
    each_part(address, last, [&](std::uint64_t first, std::uint64_t until, extent_life const* open) {
      if (open != nullptr)
        closed_.push_back({first, until - first, open->from, now});
      else if (was_there)
        closed_.push_back({first, until - first, 0, now});
    });
    cut(address, last);
  }
  /// Something that a snapshot shows at the end: what no event told of was there from the beginning. After all events.
  void there_at_end(std::uint64_t address, std::uint64_t bytes) {
    if (!is_size_of_memory(bytes)) return;
    std::vector<extent_life> unknown;
    each_not_shown(address, address + std::min(bytes, ~address), [&](std::uint64_t begin, std::uint64_t end) {
      each_part(begin, end, [&](std::uint64_t first, std::uint64_t until, extent_life const* open) {
        if (open == nullptr) unknown.push_back({first, until - first, 0, to_the_end});
      });
    });
    for (extent_life const& e : unknown) open_[e.address] = e;
  }
  /// All of them, by address.
  std::vector<extent_life> take() {
    for (auto const& [address, extent] : open_) closed_.push_back(extent);
    std::sort(closed_.begin(), closed_.end(), [](extent_life const& a, extent_life const& b) {
      return a.address != b.address ? a.address < b.address : a.from < b.from;
    });
    return std::move(closed_);
  }

 private:
  /// `f(first, last, open extent or null)` for the parts of `[first, last)`.
  template <class F>
  void each_part(std::uint64_t first, std::uint64_t last, F f) {
    auto at = open_.upper_bound(first);
    if (at != open_.begin()) --at;
    for (; at != open_.end() && at->first < last; ++at) {
      std::uint64_t const begin = std::max(first, at->first), end = std::min(last, at->first + at->second.bytes);
      if (begin >= end) continue;
      if (first < begin) f(first, begin, nullptr);
      f(begin, end, &at->second);
      first = end;
    }
    if (first < last) f(first, last, nullptr);
  }
  /// `f(first, last)` for the parts of `[first, last)` that it was not called for before.
  template <class F>
  void each_not_shown(std::uint64_t first, std::uint64_t last, F f) {
    std::uint64_t begin = first;  // of what is shown in one piece then
    auto at = shown_.upper_bound(first);
    if (at != shown_.begin() && std::prev(at)->second >= first) --at;
    for (; at != shown_.end() && at->first <= last; at = shown_.erase(at)) {
      if (first < at->first) f(first, at->first);
      begin = std::min(begin, at->first);
      first = std::max(first, at->second);
    }
    if (first < last) f(first, last);
    shown_[begin] = std::max(first, last);
  }
  /// Nothing is open in `[first, last)` from now on.
  void cut(std::uint64_t first, std::uint64_t last) {
    std::vector<extent_life> rests;
    auto at = open_.upper_bound(first);
    if (at != open_.begin()) --at;
    while (at != open_.end() && at->first < last) {
      extent_life const e = at->second;
      std::uint64_t const end = e.address + e.bytes;
      if (end <= first) {
        ++at;
        continue;
      }
      if (e.address < first) rests.push_back({e.address, first - e.address, e.from, to_the_end});
      if (end > last) rests.push_back({last, end - last, e.from, to_the_end});
      at = open_.erase(at);
    }
    for (extent_life const& rest : rests) open_[rest.address] = rest;
  }

  std::map<std::uint64_t, extent_life> open_;
  std::vector<extent_life> closed_;
  std::map<std::uint64_t, std::uint64_t> shown_;  // begin and end of what `there_at_end` was told of
};

}  // namespace detail
}  // namespace weir
