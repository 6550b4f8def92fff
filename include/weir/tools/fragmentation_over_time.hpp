#pragma once
// How much of a stack's memory is free over time, and how much of that in one piece.

#include <weir/core/bytes.hpp>
#include <weir/tools/memory_timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace weir {

/// At one moment, in all segments that are known. Blocks count as the multiples of 256 bytes that they take.
struct free_memory {
  trace_moment moment = 0;
  std::uint64_t reserved = 0;
  std::uint64_t free = 0;     ///< of `reserved`: neither live nor pending
  std::uint64_t largest = 0;  ///< the largest piece of `free`

  /// The share of the free memory that is not in its largest piece; 0 where none is free.
  double fragmentation() const { return free == 0 ? 0 : 1 - static_cast<double>(largest) / static_cast<double>(free); }
};

namespace detail {

/// What is mapped at a moment, by address, as one where it touches.
inline std::vector<extent_life> mapped_at(memory_timeline const& timeline, trace_moment moment) {
  std::vector<extent_life> found;
  for (segment_life const& s : timeline.segments) {
    if (!s.is_known) continue;
    bool first = true;  // what touches another segment is not one with it
    for (extent_life const& e : s.mapped) {
      if (moment < e.from || moment >= e.until) continue;
      if (!first && found.back().address + found.back().bytes == e.address)
        found.back().bytes += e.bytes;
      else
        found.push_back(e);
      first = false;
    }
  }
  return found;
}

/// `taken`: what lies at an address, and up to where.
inline free_memory free_memory_of(std::vector<extent_life> const& mapped,
                                  std::multimap<std::uint64_t, std::uint64_t> const& taken) {
  free_memory out;
  for (extent_life const& extent : mapped) {
    std::uint64_t at = extent.address;
    std::uint64_t const end = extent.address + extent.bytes;
    auto const free_until = [&](std::uint64_t next) {
      if (next <= at) return;
      out.free += next - at;
      out.largest = std::max(out.largest, next - at);
    };
    for (auto block = taken.lower_bound(at); block != taken.end() && block->first < end; ++block) {
      free_until(block->first);
      at = std::max(at, block->second);
    }
    free_until(end);
    out.reserved += extent.bytes;
  }
  return out;
}

}  // namespace detail

/// At most `samples` + 1 moments, spread evenly, the last one included. Empty where no segment is known. Takes the time
/// of sorting all blocks, and for each sample that of looking at all that are there.
inline std::vector<free_memory> fragmentation_over_time(memory_timeline const& timeline, std::size_t samples = 200) {
  bool const known =
      std::any_of(timeline.segments.begin(), timeline.segments.end(), [](auto& s) { return s.is_known; });
  if (!known || samples == 0) return {};
  struct change {
    trace_moment moment;
    bool begins;
    block_life const* block;
  };
  std::vector<change> changes;
  for (block_life const& b : timeline.blocks) {
    if (b.from == b.done) continue;
    changes.push_back({b.from, true, &b});
    if (b.done != to_the_end) changes.push_back({b.done, false, &b});
  }
  // What goes at a moment is gone before what comes there is there.
  std::stable_sort(changes.begin(), changes.end(), [](change const& a, change const& b) {
    return a.moment != b.moment ? a.moment < b.moment : a.begins < b.begins;
  });

  std::vector<free_memory> out;
  std::multimap<std::uint64_t, std::uint64_t> taken;
  std::size_t at = 0;
  for (std::size_t i = 0; i <= samples; ++i) {
    trace_moment const moment = timeline.moments * i / samples;
    if (!out.empty() && out.back().moment == moment) continue;
    for (; at < changes.size() && changes[at].moment <= moment; ++at) {
      block_life const& b = *changes[at].block;
      std::uint64_t const end = b.address + std::min(round_up_or_zero(b.bytes, default_alignment), ~b.address);
      if (changes[at].begins) {
        taken.emplace(b.address, end);
      } else {
        auto [first, last] = taken.equal_range(b.address);
        first = std::find_if(first, last, [end](auto const& each) { return each.second == end; });
        if (first != last) taken.erase(first);
      }
    }
    out.push_back(detail::free_memory_of(detail::mapped_at(timeline, moment), taken));
    out.back().moment = moment;
  }
  return out;
}

}  // namespace weir
