#pragma once
// Events put together: from when to when each block and each piece of a segment was there.

#include <weir/core/bytes.hpp>
#include <weir/tools/extent_life.hpp>
#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/recorded_trace.hpp>
#include <weir/tools/span_maximum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weir {

/// One block: live from `from` until `freed`, and from then until `done` pending, if it was.
struct block_life {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;  ///< as the caller asked
  std::uint64_t stream = 0;
  std::uint32_t tag = 0;  ///< in the timeline's `tags`
  trace_moment from = 0;
  trace_moment freed = to_the_end;
  trace_moment done = to_the_end;
};

/// A segment: one extent, or the mapped ones of a growable range.
struct segment_life {
  std::string layer = {};
  bool is_range = false;
  bool is_known = true;  ///< else no event and no snapshot told of it: it is where blocks lay
  std::vector<extent_life> mapped = {};
};

/// All lives of a trace. A plain value; make it with `timeline_of`.
struct memory_timeline {
  trace_moment moments = 0;  ///< the last moment
  std::vector<std::string> tags = {};
  std::vector<block_life> blocks = {};
  std::vector<segment_life> segments = {};  ///< by address; segments that lie in blocks of others are left out
};

namespace detail {

/// Follows the blocks of a trace. Nothing here fails: a ring that lost events leaves frees without allocations, and a
/// stack with two `trace` layers reports one block twice.
class block_follower {
 public:
  explicit block_follower(memory_timeline& out) : out_(out) {}

  void allocate(trace_event const& e, trace_moment now) {
    if (!is_size_of_memory(e.bytes)) return;
    auto const [at, is_new] = known_.try_emplace(e.address, known{e.layer, out_.blocks.size(), true});
    if (!is_new && at->second.is_live) {
      if (at->second.layer != e.layer) return;  // the same block, seen by another layer
      out_.blocks[at->second.life].freed = out_.blocks[at->second.life].done = now;  // its free was lost
    }
    at->second = {e.layer, out_.blocks.size(), true};
    out_.blocks.push_back({e.address, e.bytes, e.stream, e.tag, now, to_the_end, to_the_end});
  }

  void free(trace_event const& e, trace_moment now) {
    if (e.address == 0 || !is_size_of_memory(e.bytes)) return;
    auto const [at, is_new] = known_.try_emplace(e.address, known{e.layer, out_.blocks.size(), true});
    if (is_new) out_.blocks.push_back({e.address, e.bytes, e.stream, e.tag, 0, to_the_end, to_the_end});
    if (!at->second.is_live || at->second.layer != e.layer) return;
    block_life& life = out_.blocks[at->second.life];
    life.freed = life.done = now;
    at->second.is_live = false;
  }

  /// A block that a snapshot shows at the end; one that no event told of was there before all of them.
  void live_at_end(memory_block const& shown, std::uint32_t tag) {
    std::uint64_t const bytes = shown.requested != 0 ? shown.requested : shown.bytes;
    if (!is_size_of_memory(bytes)) return;
    if (!known_.try_emplace(shown.address, known{0, out_.blocks.size(), true}).second) return;
    out_.blocks.push_back({shown.address, bytes, shown.stream, tag, 0, to_the_end, to_the_end});
  }
  void pending_at_end(memory_block const& shown) {
    if (!is_size_of_memory(shown.bytes)) return;
    out_.blocks.push_back({shown.address, shown.bytes, shown.stream, 0, out_.moments, out_.moments, to_the_end});
  }

 private:
  struct known {
    std::uint32_t layer;
    std::size_t life;  // in out_.blocks
    bool is_live;
  };

  memory_timeline& out_;
  std::unordered_map<std::uint64_t, known> known_;  // by address, also those that are freed
};

/// Puts together what `timeline_of` returns.
class timeline_builder {
 public:
  timeline_builder(recorded_trace const& trace, memory_snapshot const& end) : trace_(trace), end_(end), blocks_(out_) {}

  memory_timeline build() {
    out_.moments = trace_.events.size();
    out_.tags = trace_.tags;
    for (trace_moment m = 0; m < trace_.events.size(); ++m) follow(trace_.events[m], m + 1);
    for (std::size_t i = 0; i < out_.tags.size(); ++i) tags_.try_emplace(out_.tags[i], static_cast<std::uint32_t>(i));
    find_holders();
    for (std::size_t i = end_.segments.size(); i-- > 0;) follow_end(end_.segments[i]);  // lower layers first: larger
    add_segments();
    add_ranges();
    leave_out_inner();
    add_guessed();
    for (placed& s : segments_) out_.segments.push_back(std::move(s.segment));
    return std::move(out_);
  }

 private:
  void follow(trace_event const& e, trace_moment now) {
    switch (e.action) {
      case trace_action::allocate:
        return blocks_.allocate(e, now);
      case trace_action::free:
        return blocks_.free(e, now);
      case trace_action::grow:
        return plain_.begin(e.address, e.bytes, now, e.layer);
      case trace_action::trim:
        return plain_.end(e.address, e.bytes, now, true, e.layer);
      case trace_action::map:
        return mapped_.begin(e.address, e.bytes, now, e.layer);
      case trace_action::unmap:
        return mapped_.end(e.address, e.bytes, now, true, e.layer);
      default:  // of no block and no memory
        return;
    }
  }

  void follow_end(memory_segment const& segment) {
    extent_follower& extents = segment.is_range ? mapped_ : plain_;
    if (!segment.is_range) extents.there_at_end(segment.address, segment.bytes);
    layers_[segment.address] = segment.layer;
    for (memory_block const& block : segment.blocks) {
      if (segment.is_range && block.state != memory_state::unmapped) extents.there_at_end(block.address, block.bytes);
      if (block.state == memory_state::live && !holders_.contains(&block))
        blocks_.live_at_end(block, tag_number(block.tag));
      if (block.state == memory_state::pending) blocks_.pending_at_end(block);
    }
  }
  /// Blocks in which a layer above, whose segments stand before, keeps one that is no larger: its blocks are shown.
  void find_holders() {
    std::vector<std::uint64_t> places;
    for (memory_segment const& s : end_.segments) places.insert(places.end(), {s.address, s.address + 1});
    span_maximum small(std::move(places));  // by where segments begin that stand before: the smaller, the more
    for (memory_segment const& s : end_.segments) {
      for (memory_block const& b : s.blocks) {
        std::uint64_t const smallest = small.over(b.address, b.address + std::min(b.bytes, ~b.address));
        if (smallest != 0 && smallest >= ~b.bytes) holders_.insert(&b);
      }
      small.add(s.address, s.address + 1, ~s.bytes);
    }
  }
  std::uint32_t tag_number(std::string const& name) {
    auto const [known, is_new] = tags_.try_emplace(name, static_cast<std::uint32_t>(out_.tags.size()));
    if (is_new) out_.tags.push_back(name);
    return known->second;
  }

  std::string layer_at(std::uint64_t first, std::uint64_t last) const {
    auto const at = layers_.lower_bound(first);
    return at != layers_.end() && at->first < last ? at->second : std::string();
  }
  /// A segment, and all that its memory takes of addresses and of time.
  struct placed {
    extent_life whole;
    segment_life segment;
  };
  static std::uint64_t end_of(extent_life const& e) { return e.address + e.bytes; }

  void add_segments() {
    for (extent_life const& e : plain_.take())
      segments_.push_back({e, {layer_at(e.address, end_of(e)), false, true, {e}}});
  }
  /// Mapped pieces that touch, at whatever moments, are of one range; so are those of one range in the snapshot.
  void add_ranges() {
    auto const known = range_ends();
    std::uint64_t end = 0;
    for (extent_life const& e : mapped_.take()) {
      if (end == 0 || e.address > end) segments_.push_back({e, {layer_at(e.address, end_of(e)), true, true, {}}});
      segments_.back().segment.mapped.push_back(e);
      extent_life& whole = segments_.back().whole;
      whole.bytes = std::max(whole.bytes, end_of(e) - whole.address);
      whole.from = std::min(whole.from, e.from);
      whole.until = std::max(whole.until, e.until);
      end = std::max(end, end_of(e));
      auto const after = known.lower_bound(end_of(e));
      if (after != known.begin()) end = std::max(end, std::prev(after)->second);
    }
  }
  /// Of the snapshot's ranges, by where they begin: how far they reach, or those that begin before them.
  std::map<std::uint64_t, std::uint64_t> range_ends() const {
    std::map<std::uint64_t, std::uint64_t> ends;
    for (memory_segment const& s : end_.segments)
      if (s.is_range) ends[s.address] = std::max(ends[s.address], s.address + std::min(s.bytes, ~s.address));
    std::uint64_t farthest = 0;
    for (auto& [begin, end] : ends) end = farthest = std::max(farthest, end);
    return ends;
  }

  void sort() {
    std::stable_sort(segments_.begin(), segments_.end(), [](placed const& a, placed const& b) {
      return a.whole.address != b.whole.address ? a.whole.address < b.whole.address : a.whole.bytes > b.whole.bytes;
    });
  }
  /// A layer's segments can lie in those of a layer below: they are the same memory.
  void leave_out_inner() {
    sort();
    std::vector<std::uint64_t> moments;
    for (placed const& s : segments_) moments.insert(moments.end(), {s.whole.from, s.whole.until});
    span_maximum reach(std::move(moments));  // how far those of `outer` do; all begin no later than the next one
    std::vector<placed> outer;
    for (placed& s : segments_) {
      bool const is_inner = end_of(s.whole) <= reach.over(s.whole.from, s.whole.until);
      if (is_inner) continue;
      reach.add(s.whole.from, s.whole.until, end_of(s.whole));
      outer.push_back(std::move(s));
    }
    segments_ = std::move(outer);
  }

  /// Where blocks lay that no segment has: a log tells of blocks alone.
  void add_guessed() {
    auto const known = known_addresses();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;  // address, bytes
    for (block_life const& b : out_.blocks) {
      auto const after = known.upper_bound(b.address);
      if (after == known.begin() || b.address >= std::prev(after)->second) spans.emplace_back(b.address, b.bytes);
    }
    std::sort(spans.begin(), spans.end());
    std::size_t const first = segments_.size();
    for (auto const& [address, bytes] : spans) {
      if (segments_.size() == first || address > end_of(segments_.back().whole) + 2_MiB)
        segments_.push_back({{address, 0, 0, to_the_end}, {{}, false, false, {}}});
      extent_life& last = segments_.back().whole;
      last.bytes = std::max(last.bytes, address - last.address + std::min(bytes, ~address));
    }
    for (std::size_t i = first; i < segments_.size(); ++i) segments_[i].segment.mapped.push_back(segments_[i].whole);
    sort();
  }
  /// Where there was a segment at any moment: begin and end of each piece of addresses.
  std::map<std::uint64_t, std::uint64_t> known_addresses() const {
    std::map<std::uint64_t, std::uint64_t> pieces;
    for (placed const& s : segments_) {
      bool const touches = !pieces.empty() && s.whole.address <= pieces.rbegin()->second;
      std::uint64_t& end = touches ? pieces.rbegin()->second : pieces[s.whole.address];
      end = std::max(end, end_of(s.whole));
    }
    return pieces;
  }

  recorded_trace const& trace_;
  memory_snapshot const& end_;
  memory_timeline out_;
  block_follower blocks_;
  extent_follower plain_, mapped_;
  std::vector<placed> segments_;                     // by address, once they are all there
  std::map<std::uint64_t, std::string> layers_;      // of the snapshot's segments, by address
  std::unordered_set<memory_block const*> holders_;  // see find_holders
  std::map<std::string, std::uint32_t> tags_;        // numbers in out_.tags
};

}  // namespace detail

/// The lives of all blocks and segments of a trace. `end` is a snapshot taken when the trace ended, or empty: it adds
/// what was there before the trace began, and what is pending at its end. Takes host memory in proportion to both, and
/// the time of sorting them. Never fails for what the events say, whatever it is: a trace can have lost some.
inline memory_timeline timeline_of(recorded_trace const& trace, memory_snapshot const& end = {}) {
  return detail::timeline_builder(trace, end).build();
}

/// The most bytes live at once, and when.
struct memory_peak {
  std::uint64_t bytes = 0;
  trace_moment moment = 0;
};
inline memory_peak peak_of(memory_timeline const& timeline) {
  std::vector<std::uint64_t> change(timeline.moments + 1);  // modulo 2^64
  for (block_life const& b : timeline.blocks) {
    change[b.from] += b.bytes;
    if (b.freed != to_the_end) change[b.freed] -= b.bytes;
  }
  memory_peak peak;
  std::uint64_t live = 0;
  for (trace_moment m = 0; m <= timeline.moments; ++m)
    if ((live += change[m]) > peak.bytes) peak = {live, m};
  return peak;
}

}  // namespace weir
