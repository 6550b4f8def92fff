#pragma once
// Reads out what the `trace` layers of a stack recorded.

#include <weir/core/layer_numbers.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_events.hpp>
#include <weir/tools/recorded_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace detail {

/// Puts the events of several layers together.
class event_collector final : public event_visitor {
 public:
  /// From now on events are those of this layer. `of_segments`: a layer above keeps what it takes here; `is_below`: one
  /// above shows events, too.
  void begin_layer(layer_numbers const& layer, bool of_segments, bool is_below) {
    layer_ = layer;
    of_segments_ = of_segments;
    is_below_ = is_below || of_segments;
    stacks_before_ = static_cast<std::uint32_t>(trace_.call_stacks.size() - 1);
  }

  void see_begin(tick_moment const& made, std::uint64_t forgotten) override {
    trace_.layers.push_back(unused_name(layer_.name.empty() ? layer_.layer : layer_.name + ": " + layer_.layer));
    if (is_below_) trace_.below.push_back(static_cast<std::uint32_t>(trace_.layers.size() - 1));
    trace_.lost += forgotten;
    if (!began_ || made.ticks < began_->ticks) began_ = made;
  }
  /// Layers that showed events so far.
  std::size_t layers() const noexcept { return trace_.layers.size(); }
  void see(shown_event const& seen) override {
    ticks_.emplace_back(seen.ticks, trace_.events.size());
    trace_.events.push_back({.address = seen.address,
                             .bytes = seen.bytes,
                             .stream = seen.stream,
                             .thread = seen.thread,
                             .layer = static_cast<std::uint32_t>(trace_.layers.size() - 1),
                             .tag = number_of(seen.tag),
                             .call_stack = seen.call_stack == 0 ? 0 : seen.call_stack + stacks_before_,
                             .device = layer_.device.value_or(-1),
                             .action = action_of(seen.action),
                             .report = seen.report});
  }
  void see_frame(std::uint32_t call_stack, char const* frame) override {
    std::size_t const number = call_stack + stacks_before_;
    if (trace_.call_stacks.size() <= number) trace_.call_stacks.resize(number + 1);
    trace_.call_stacks[number].push_back(frame);
  }
  void see_report(std::uint32_t report, std::string const& text) override {
    reports_[{static_cast<std::uint32_t>(trace_.layers.size() - 1), report}] = trace_.reports.size();
    trace_.reports.push_back(text);
  }

  /// All events by their time.
  recorded_trace take() {
    if (!began_) return {};
    std::stable_sort(ticks_.begin(), ticks_.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    tick_scale const scale(*began_, tick_moment::now());
    std::vector<trace_event> sorted;
    sorted.reserve(ticks_.size());
    for (auto const& [ticks, place] : ticks_) {
      trace_event& e = sorted.emplace_back(trace_.events[place]);
      e.nanoseconds = scale.nanoseconds(ticks);
      // A layer that kept no frames of a call stack shows none.
      if (e.call_stack >= trace_.call_stacks.size()) e.call_stack = 0;
      auto const kept = reports_.find({e.layer, e.report});
      e.report = kept == reports_.end() ? 0 : static_cast<std::uint32_t>(kept->second);
    }
    trace_.events = std::move(sorted);
    trace_.began = began_->since_1970;
    return std::move(trace_);
  }

 private:
  trace_action action_of(trace_action seen) const noexcept {
    if (!of_segments_) return seen;
    return seen == trace_action::allocate ? trace_action::grow : seen == trace_action::free ? trace_action::trim : seen;
  }
  /// `name`, or `name 2` and so on where another layer is called so: files know layers by their names.
  std::string unused_name(std::string const& name) const {
    auto const& used = trace_.layers;
    std::string unused = name;
    for (int i = 2; std::find(used.begin(), used.end(), unused) != used.end(); ++i)
      unused = name + " " + std::to_string(i);
    return unused;
  }
  std::uint32_t number_of(tag_name tag) {
    if (!tag) return 0;
    auto const [known, is_new] = tags_.try_emplace(tag.id(), static_cast<std::uint32_t>(trace_.tags.size()));
    if (is_new) trace_.tags.emplace_back(tag.text());
    return known->second;
  }

  recorded_trace trace_;
  std::vector<std::pair<std::uint64_t, std::size_t>> ticks_;  // of each event, and which
  std::optional<tick_moment> began_;
  layer_numbers layer_;
  bool of_segments_ = false, is_below_ = false;
  std::uint32_t stacks_before_ = 0;
  std::map<unsigned, std::uint32_t> tags_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> reports_;  // by layer and its number there
};

/// Shows the layers of a stack to a collector, from the top down, and after each those of its parts (bins, a second
/// stack), which are asked for what their layer is asked for.
class trace_reader final : public layer_visitor {
 public:
  /// What stands above all layers that are shown here, or above the next one.
  struct above {
    bool keeps = false;  ///< a layer that keeps what it takes
    bool shows = false;  ///< one that shows events
  };
  trace_reader(event_collector& to, above all) : layer_visitor(extent::own), to_(to), all_(all), next_(all) {}

  void begin_part() override { next_ = all_; }
  void see(layer_ref& layer) override { read(layer); }
  template <class Layer>
  void read(Layer& layer) {
    std::size_t const before = to_.layers();
    to_.begin_layer(detail::numbers_of_layer(layer), next_.keeps, next_.shows);
    detail::show_events(layer, to_);
    next_.shows = next_.shows || to_.layers() != before;
    trace_reader parts(to_, next_);
    detail::visit_parts(layer, parts);
    next_.keeps = next_.keeps || detail::keeps_what_it_takes(layer);
  }

 private:
  event_collector& to_;
  above const all_;
  above next_;
};

}  // namespace detail

/// What the `trace` layers of a stack recorded, in one order. `top` is a stack, or any handle to one: typed, erased or
/// parsed. A `trace` below a layer that keeps memory (`pool`, `arena`, `fixed_size`, `binning`) saw what that takes and
/// gives back: its events are `grow` and `trim`. Below a `fallback`, which passes requests on, it saw these. Empty
/// where the stack has no such layer. Any thread; requests go on meanwhile, and those that come after the call are not
/// in it. Slow: copies all events; with `frames` it also asks for the names of all functions. May throw
/// `std::bad_alloc`.
template <resource Top>
recorded_trace trace_of(Top const& top) {
  detail::event_collector collector;
  detail::trace_reader reader(collector, {});
  detail::for_each_layer(top, [&](auto& layer) { reader.read(layer); });
  return collector.take();
}

}  // namespace weir
