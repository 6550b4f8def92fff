#pragma once
// Reads out what memory the layers of a stack hold just now.

#include <weir/core/layer_numbers.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_events.hpp>
#include <weir/core/shown_memory.hpp>
#include <weir/support/tick_clock.hpp>
#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/trace_of.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace detail {

/// Collects what layers show.
class memory_collector final : public memory_visitor {
 public:
  void begin_layer(layer_numbers const& layer) {
    sort_layer();
    layer_ = layer;
  }

  void see(shown_block const& piece) override {
    if (piece.begins_segment || segments_.empty())
      segments_.push_back({.address = piece.address,
                           .device = layer_.device.value_or(-1),
                           .is_range = piece.in_range,
                           .layer = layer_.name.empty() ? layer_.layer : layer_.name + ": " + layer_.layer});
    memory_segment& segment = segments_.back();
    segment.blocks.push_back({.address = piece.address,
                              .bytes = piece.bytes,
                              .requested = piece.requested,
                              .stream = piece.stream,
                              .state = piece.state});
  }
  /// The outermost layer that knows a block counts.
  void see(shown_holder const& holder) override {
    holders_.try_emplace({holder.address, holder.bytes},
                         block_holder{std::string(holder.tag.text()), holder.stream, holder.thread});
  }
  /// After all layers, which know more: what a trace knows of blocks that are live still.
  void see(recorded_trace const& trace) {
    block_holders live;
    for (trace_event const& e : trace.events) {
      if (e.action == trace_action::allocate) live[{e.address, e.bytes}] = {trace.tags[e.tag], e.stream, e.thread};
      if (e.action == trace_action::free) live.erase({e.address, e.bytes});
    }
    holders_.merge(live);
  }

  memory_snapshot take() {
    sort_layer();
    for (memory_segment& segment : segments_) finish(segment);
    std::erase_if(segments_, [](memory_segment const& segment) { return segment.blocks.empty(); });
    std::map<std::uint64_t, std::uint64_t> held;  // all segments: from where to where
    for (memory_segment const& segment : segments_) held[segment.address] = segment.address + segment.bytes;
    for (auto const& [block, holder] : holders_) {
      auto const after = held.upper_bound(block.first);
      if (after == held.begin() || std::prev(after)->second <= block.first) add_alone(block, holder);
    }
    return {.taken = detail::nanoseconds_of(CLOCK_REALTIME), .segments = std::move(segments_)};
  }

 private:
  struct block_holder {
    std::string tag = {};
    std::uint64_t stream = 0, thread = 0;
  };
  using asked = std::pair<std::uint64_t, std::uint64_t>;  // address and bytes: layers of a stack share addresses
  using block_holders = std::map<asked, block_holder>;

  /// Segments come in no order.
  void sort_layer() {
    auto const first = segments_.begin() + static_cast<std::ptrdiff_t>(of_layers_before_);
    std::sort(first, segments_.end(), [](auto const& a, auto const& b) { return a.address < b.address; });
    of_layers_before_ = segments_.size();
  }
  /// Of a range nothing is shown behind the last memory; blocks learn who holds them.
  void finish(memory_segment& segment) {
    while (!segment.blocks.empty() && segment.blocks.back().state == memory_state::unmapped) segment.blocks.pop_back();
    for (memory_block& block : segment.blocks) {
      segment.bytes += block.bytes;
      auto const known = holders_.find({block.address, block.requested});
      if (block.state != memory_state::live || known == holders_.end()) continue;
      block.tag = known->second.tag;
      block.stream = known->second.stream;
      block.thread = known->second.thread;
    }
  }
  /// A block that is in no segment came from a source directly: it is one by itself.
  void add_alone(asked const& block, block_holder const& who) {
    auto const [address, bytes] = block;
    segments_.push_back(
        {.address = address, .bytes = bytes, .device = layer_.device.value_or(-1), .layer = layer_.layer});
    segments_.back().blocks.push_back({.address = address,
                                       .bytes = bytes,
                                       .requested = bytes,
                                       .stream = who.stream,
                                       .thread = who.thread,
                                       .state = memory_state::live,
                                       .tag = who.tag});
  }

  std::vector<memory_segment> segments_;
  std::size_t of_layers_before_ = 0;
  block_holders holders_;
  layer_numbers layer_;
};

}  // namespace detail

/// Where the memory of a stack is just now: the segments of all layers that keep some (`pool`, `arena`, `fixed_size`,
/// bins), with their blocks. `top` is a stack, or any handle to one: typed, erased or parsed. Tags, streams and threads
/// of live blocks are what `tracking` and `trace` layers know: all of them, or those that a trace still has. Blocks
/// that such a layer knows and that no layer keeps are segments of their own. Any thread; requests go on, but each
/// layer is copied under its lock, some ns a block. Takes no memory of any stack. May throw `std::bad_alloc`. When not
/// to use it: to watch a program; `summary_of` has numbers for a thousandth of the cost.
template <resource Top>
memory_snapshot snapshot(Top const& top) {
  detail::memory_collector collector;
  detail::for_each_layer_and_part(top, [&](auto& layer, unsigned) {
    collector.begin_layer(detail::numbers_of_layer(layer));
    detail::show_memory(layer, collector);
  });
  collector.see(trace_of(top));
  return collector.take();
}

}  // namespace weir
