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
  void see(shown_holder const& holder) override {
    hold(holder.address, {std::string(holder.tag.text()), holder.stream, holder.thread, holder.bytes});
  }
  /// What a trace knows of blocks that are live still.
  void see(recorded_trace const& trace) {
    for (trace_event const& e : trace.events) {
      if (e.action == trace_action::allocate) hold(e.address, {trace.tags[e.tag], e.stream, e.thread, e.bytes});
      if (e.action == trace_action::free) holders_.erase(e.address);
    }
  }

  memory_snapshot take() {
    sort_layer();
    for (memory_segment& segment : segments_) finish(segment);
    std::erase_if(segments_, [](memory_segment const& segment) { return segment.blocks.empty(); });
    for (auto const& [address, holder] : holders_)
      if (!holder.is_in_segment) add_alone(address, holder);
    return {.taken = detail::nanoseconds_of(CLOCK_REALTIME), .segments = std::move(segments_)};
  }

 private:
  struct holder {
    std::string tag;
    std::uint64_t stream = 0, thread = 0, bytes = 0;
    bool is_in_segment = false;
  };

  /// Segments come in no order.
  void sort_layer() {
    auto const first = segments_.begin() + static_cast<std::ptrdiff_t>(of_layers_before_);
    std::sort(first, segments_.end(), [](auto const& a, auto const& b) { return a.address < b.address; });
    of_layers_before_ = segments_.size();
  }
  void hold(std::uint64_t address, holder const& who) { holders_[address] = who; }

  /// Of a range nothing is shown behind the last memory; blocks learn who holds them.
  void finish(memory_segment& segment) {
    while (!segment.blocks.empty() && segment.blocks.back().state == memory_state::unmapped) segment.blocks.pop_back();
    for (memory_block& block : segment.blocks) {
      segment.bytes += block.bytes;
      auto const known = holders_.find(block.address);
      if (block.state != memory_state::live || known == holders_.end()) continue;
      known->second.is_in_segment = true;
      if (known->second.bytes > block.bytes) continue;  // another layer's block begins there
      block.tag = known->second.tag;
      block.stream = known->second.stream;
      block.thread = known->second.thread;
    }
  }
  /// A block that is in no segment came from a source directly: it is one by itself.
  void add_alone(std::uint64_t address, holder const& who) {
    segments_.push_back(
        {.address = address, .bytes = who.bytes, .device = layer_.device.value_or(-1), .layer = layer_.layer});
    segments_.back().blocks.push_back({.address = address,
                                       .bytes = who.bytes,
                                       .requested = who.bytes,
                                       .stream = who.stream,
                                       .thread = who.thread,
                                       .tag = who.tag});
    segments_.back().blocks.back().state = memory_state::live;
  }

  std::vector<memory_segment> segments_;
  std::size_t of_layers_before_ = 0;
  std::map<std::uint64_t, holder> holders_;
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
  collector.see(trace_of(top));
  detail::for_each_layer_and_part(top, [&](auto& layer, unsigned) {
    collector.begin_layer(detail::numbers_of_layer(layer));
    detail::show_memory(layer, collector);
  });
  return collector.take();
}

}  // namespace weir
