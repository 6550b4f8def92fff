#pragma once
// Memory that comes and goes in pieces: from when to when something was behind which addresses.

#include <weir/tools/address_pieces.hpp>

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

/// Follows memory that comes and goes in pieces: segments, or what is mapped of growable ranges. Several layers may
/// tell of the same memory, or of parts of what one below has: the one that told first has it.
class extent_follower {
 public:
  void begin(std::uint64_t address, std::uint64_t bytes, trace_moment now, std::uint32_t layer = 0) {
    if (!is_size_of_memory(bytes)) return;
    std::uint64_t const last = address + std::min(bytes, ~address);
    told_[layer].add(address, last);
    bool is_others = true;
    each_part(address, last, [&](std::uint64_t, std::uint64_t, opened const* open) {
      is_others = is_others && open != nullptr && open->layer != layer;
    });
    if (is_others) return;
    close(address, last, now, [](opened const&) { return true; });  // if its end was lost
    open_[address] = {{address, last - address, now, to_the_end}, layer};
  }
  /// `was_there`: parts that never began have been there before all events.
  void end(std::uint64_t address, std::uint64_t bytes, trace_moment now, bool was_there = true,
           std::uint32_t layer = 0) {
    if (!is_size_of_memory(bytes)) return;
    std::uint64_t const last = address + std::min(bytes, ~address);
    address_pieces& told = told_[layer];
    each_part(address, last, [&](std::uint64_t first, std::uint64_t until, opened const* open) {
      if (open == nullptr && was_there && !told.overlaps(first, until))
        closed_.push_back({first, until - first, 0, now});
    });
    told.add(address, last);
    close(address, last, now, [layer](opened const& e) { return e.layer == layer; });
  }
  /// Something that a snapshot shows at the end: what no event told of was there from the beginning. After all events.
  void there_at_end(std::uint64_t address, std::uint64_t bytes) {
    if (!is_size_of_memory(bytes)) return;
    std::vector<extent_life> unknown;
    each_not_shown(address, address + std::min(bytes, ~address), [&](std::uint64_t begin, std::uint64_t end) {
      each_part(begin, end, [&](std::uint64_t first, std::uint64_t until, opened const* open) {
        if (open == nullptr) unknown.push_back({first, until - first, 0, to_the_end});
      });
    });
    for (extent_life const& e : unknown) open_[e.address] = {e, 0};
  }
  /// All of them, by address.
  std::vector<extent_life> take() {
    for (auto const& [address, extent] : open_) closed_.push_back(extent.life);
    std::sort(closed_.begin(), closed_.end(), [](extent_life const& a, extent_life const& b) {
      return a.address != b.address ? a.address < b.address : a.from < b.from;
    });
    return std::move(closed_);
  }

 private:
  struct opened {
    extent_life life;
    std::uint32_t layer;  // which told of it
  };
  /// `f(first, last, open extent or null)` for the parts of `[first, last)`.
  template <class F>
  void each_part(std::uint64_t first, std::uint64_t last, F f) {
    auto at = open_.upper_bound(first);
    if (at != open_.begin()) --at;
    for (; at != open_.end() && at->first < last; ++at) {
      std::uint64_t const begin = std::max(first, at->first), end = std::min(last, at->first + at->second.life.bytes);
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
  /// What is open in `[first, last)` and that `wanted(extent)` ends now.
  template <class Wanted>
  void close(std::uint64_t first, std::uint64_t last, trace_moment now, Wanted wanted) {
    std::vector<opened> rests;
    auto at = open_.upper_bound(first);
    if (at != open_.begin()) --at;
    while (at != open_.end() && at->first < last) {
      auto const [e, layer] = at->second;
      std::uint64_t const end = e.address + e.bytes;
      if (end <= first || !wanted(at->second)) {
        ++at;
        continue;
      }
      std::uint64_t const begins = std::max(first, e.address), ends = std::min(last, end);
      closed_.push_back({begins, ends - begins, e.from, now});
      if (e.address < first) rests.push_back({{e.address, first - e.address, e.from, to_the_end}, layer});
      if (end > last) rests.push_back({{last, end - last, e.from, to_the_end}, layer});
      at = open_.erase(at);
    }
    for (opened const& rest : rests) open_[rest.life.address] = rest;
  }

  std::map<std::uint64_t, opened> open_;
  std::map<std::uint32_t, address_pieces> told_;  // by layer: what began or ended
  std::vector<extent_life> closed_;
  std::map<std::uint64_t, std::uint64_t> shown_;  // begin and end of what `there_at_end` was told of
};

}  // namespace detail
}  // namespace weir
