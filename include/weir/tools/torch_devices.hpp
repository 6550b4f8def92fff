#pragma once
// What of a trace and a snapshot PyTorch's memory viewer can show, device by device.

#include <weir/tools/address_pieces.hpp>
#include <weir/tools/extent_life.hpp>
#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/recorded_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weir::detail {

/// What a trace and a snapshot tell of one device.
struct torch_input {
  std::vector<trace_event const*> events;  // and refusals; the others that have no bytes are nowhere
  std::vector<memory_segment const*> segments;
};

/// Whose events are shown: the program's requests, and the memory that they lie in.
struct torch_layers {
  explicit torch_layers(recorded_trace const& trace) : is_below(detail::layers_below(trace)) {
    for (trace_event const& e : trace.events) {
      if (e.bytes == 0) continue;
      if (e.action == trace_action::allocate || e.action == trace_action::free) program = std::min(program, e.layer);
      if (is_of_segment(e.action)) keeper = std::min(keeper, e.layer);
    }
  }
  std::uint32_t program = ~std::uint32_t{0}, keeper = ~std::uint32_t{0};
  std::vector<bool> is_below;
};

/// What the viewer is shown of one device. It starts from the segments at the end and goes back event by event, and
/// stops with an error at an event that does not fit: so what does not fit is left out. A trace may begin in the
/// middle, and requests may come between the trace and the snapshot. So is a request that contradicts an earlier one,
/// at which `read_trace` would stop.
class torch_device {
 public:
  torch_device(recorded_trace const& trace, torch_layers layers, torch_input const& of_device, std::int32_t device)
      : trace_(trace), device_(device), layers_(std::move(layers)) {
    for (memory_segment const* const s : of_device.segments) add_segment(*s);
    if (of_device.segments.empty()) add_traced_segments(of_device.events);
    note_told(of_device.events);
    choose_events(possible_events(of_device.events));
    add_missing_segments();
    left_out_ = count(of_device.events) - count(events_);
  }

  std::vector<memory_segment> const& segments() const noexcept { return segments_; }
  std::vector<trace_event const*> const& events() const noexcept { return events_; }
  /// How many of the events that such a file has do not fit.
  std::size_t left_out() const noexcept { return left_out_; }

 private:
  /// Each run of memory is a segment; of those that lie in another layer's, the inner ones, which come first. Not one
  /// beyond the last address, of a file that somebody made up.
  void add_segment(memory_segment const& whole) {
    memory_segment run;
    auto const finish = [&] {
      std::uint64_t const end = run.address + run.bytes;
      if (run.address < end && !held_.overlaps(run.address, end)) keep(run);
      run.bytes = 0;
    };
    for (memory_block const& block : whole.blocks) {
      if (block.state == memory_state::unmapped) {
        finish();
        continue;
      }
      if (run.bytes == 0) run = {.address = block.address, .device = device_, .is_range = whole.is_range};
      run.bytes += block.bytes;
      run.blocks.push_back(block);
    }
    finish();
  }
  void keep(memory_segment const& segment) {
    held_.add(segment.address, segment.address + segment.bytes);
    for (memory_block const& block : segment.blocks)
      if (block.state == memory_state::live) live_[block.address] = block.address + block.bytes;
    segments_.push_back(segment);
  }

  /// Where no snapshot says what there is at the end: what came and did not go. Their blocks come later.
  void add_traced_segments(std::vector<trace_event const*> const& all) {
    extent_follower there;
    bool is_range = false;
    for (trace_event const* const e : all) {
      if (e->layer != layers_.keeper) continue;
      is_range = is_range || e->action == trace_action::map;
      if (comes(e->action)) there.begin(e->address, e->bytes, 1);
      if (goes(e->action)) there.end(e->address, e->bytes, 1, false);
    }
    address_pieces pieces;  // a range is one, however often it grew
    for (extent_life const& left : there.take()) {
      if (left.until != to_the_end) continue;
      std::uint64_t const end = left.address + left.bytes;
      is_range ? pieces.add(left.address, end) : add_traced_segment(left.address, end, false);
    }
    for (auto const& [begin, end] : pieces) add_traced_segment(begin, end, true);
  }
  void add_traced_segment(std::uint64_t begin, std::uint64_t end, bool is_range) {
    keep({.address = begin, .bytes = end - begin, .device = device_, .is_range = is_range});
  }

  static bool comes(trace_action action) { return action == trace_action::grow || action == trace_action::map; }
  static bool goes(trace_action action) { return action == trace_action::trim || action == trace_action::unmap; }
  /// Which memory the events of segments tell of: it was there when they say so, and at no other time.
  void note_told(std::vector<trace_event const*> const& all) {
    address_pieces now = held_;
    for (std::size_t i = all.size(); i-- > 0;) {
      trace_event const& e = *all[i];
      std::uint64_t const end = e.address + e.bytes;
      if (e.layer != layers_.keeper || end < e.address) continue;
      if (comes(e.action) && now.contains(e.address, end))
        now.remove(e.address, end);
      else if (goes(e.action) && !now.overlaps(e.address, end))
        now.add(e.address, end);
      else
        continue;
      told_.add(e.address, end);
    }
  }

  /// From the last to the first, as the viewer goes.
  void choose_events(std::vector<trace_event const*> const& possible) {
    address_pieces now = held_;
    for (std::size_t i = possible.size(); i-- > 0;)
      if (fits(*possible[i], now)) events_.push_back(possible[i]);
    std::reverse(events_.begin(), events_.end());
  }
  /// Without requests that contradict earlier ones: frees that were wrong and ignored, and what threads wrote into a
  /// log in another order than it happened.
  std::vector<trace_event const*> possible_events(std::vector<trace_event const*> const& all) const {
    std::vector<trace_event const*> possible;
    std::map<std::uint64_t, std::optional<std::uint64_t>> blocks;  // by address, as they are then: bytes if live
    for (trace_event const* const e : all) {
      bool const is_of_block = e->action == trace_action::allocate || e->action == trace_action::free;
      if (!is_of_block || e->layer != layers_.program || takes_place(*e, blocks)) possible.push_back(e);
    }
    return possible;
  }
  static bool takes_place(trace_event const& e, std::map<std::uint64_t, std::optional<std::uint64_t>>& blocks) {
    auto const [block, is_new] = blocks.try_emplace(e.address);
    bool const is_free = e.action == trace_action::free;
    bool const takes_place = is_new || (is_free ? block->second == e.bytes : !block->second);
    if (takes_place && is_free) block->second.reset();
    if (takes_place && !is_free) block->second = e.bytes;
    return takes_place;
  }
  bool fits(trace_event const& e, address_pieces& now) {
    std::uint64_t const end = e.address + e.bytes;
    if (end < e.address) return false;  // of a file that somebody made up
    switch (e.action) {
      case trace_action::out_of_memory:
        return !layers_.is_below[e.layer];
      case trace_action::allocate:
      case trace_action::free:
        if (e.layer != layers_.program) return false;
        if (!now.contains(e.address, end)) {
          if (told_.overlaps(e.address, end)) return false;
          missing_.add(e.address, end);  // in a segment that nobody showed, or not all of it
        }
        if (e.action == trace_action::free)
          live_[e.address] = end;
        else
          live_.erase(e.address);
        return true;
      case trace_action::grow:
      case trace_action::map:
        if (e.layer != layers_.keeper || !now.contains(e.address, end) || has_live(e.address, end)) return false;
        now.remove(e.address, end);
        return true;
      case trace_action::trim:
      case trace_action::unmap:
        if (e.layer != layers_.keeper || !told_.contains(e.address, end) || now.overlaps(e.address, end)) return false;
        now.add(e.address, end);
        return true;
      default:  // PyTorch has no word for it
        return false;
    }
  }

  bool has_live(std::uint64_t begin, std::uint64_t end) const {
    auto const after = live_.lower_bound(end);
    return after != live_.begin() && std::prev(after)->second > begin;
  }

  /// Segments for blocks that no segment holds: of a stack without a pool, or of a file without a snapshot. Segments
  /// that hold parts of such blocks become parts of these: where nothing is kept, each live block was shown as one.
  void add_missing_segments() {
    address_pieces whole = missing_;
    for (memory_segment const& s : segments_)
      if (missing_.overlaps(s.address, s.address + s.bytes)) whole.add(s.address, s.address + s.bytes);
    live_blocks const live = live_at_end(whole);
    std::erase_if(segments_, [&](memory_segment const& s) { return whole.contains(s.address, s.address + s.bytes); });
    for (memory_segment& s : segments_)
      if (s.blocks.empty()) add_blocks(s, live);
    for (auto const& [begin, end] : whole) {
      segments_.push_back({.address = begin, .bytes = end - begin, .device = device_});
      add_blocks(segments_.back(), live);
    }
  }
  using live_blocks = std::map<std::uint64_t, memory_block>;  // by address
  /// As the events say, but in segments that become parts of `whole`, which know more.
  live_blocks live_at_end(address_pieces const& whole) const {
    live_blocks live;
    for (trace_event const* const e : events_) {
      if (e->action == trace_action::free) live.erase(e->address);
      if (e->action == trace_action::allocate)
        live[e->address] = {.address = e->address,
                            .bytes = e->bytes,
                            .requested = e->bytes,
                            .stream = e->stream,
                            .state = memory_state::live,
                            .tag = trace_.tags[e->tag]};
    }
    for (memory_segment const& s : segments_) {
      if (s.blocks.empty() || !whole.contains(s.address, s.address + s.bytes)) continue;
      live.erase(live.lower_bound(s.address), live.lower_bound(s.address + s.bytes));
      for (memory_block const& b : s.blocks)
        if (b.state == memory_state::live) live[b.address] = b;
    }
    return live;
  }
  static void add_blocks(memory_segment& to, live_blocks const& live) {
    std::uint64_t at = to.address;
    std::uint64_t const end = to.address + to.bytes;
    auto const add_free = [&](std::uint64_t upto) {
      if (upto > at) to.blocks.push_back({.address = at, .bytes = upto - at});
    };
    for (auto b = live.lower_bound(at); b != live.end() && b->first < end; ++b) {
      if (b->first < at) continue;
      add_free(b->first);
      to.blocks.push_back(b->second);
      to.blocks.back().bytes = std::min(b->second.bytes, end - b->first);
      to.blocks.back().requested = std::min(b->second.requested, to.blocks.back().bytes);
      at = b->first + to.blocks.back().bytes;
    }
    add_free(end);
  }

  /// Of those that PyTorch has a word for.
  std::size_t count(std::vector<trace_event const*> const& events) const {
    return static_cast<std::size_t>(std::count_if(events.begin(), events.end(), [&](trace_event const* e) {
      bool const is_of_block = e->action == trace_action::allocate || e->action == trace_action::free;
      return (is_of_block && e->layer == layers_.program) ||
             ((comes(e->action) || goes(e->action)) && e->layer == layers_.keeper);
    }));
  }

  recorded_trace const& trace_;
  std::int32_t device_;
  torch_layers layers_;
  std::vector<memory_segment> segments_;
  std::vector<trace_event const*> events_;
  address_pieces held_, told_, missing_;
  std::map<std::uint64_t, std::uint64_t> live_;  // blocks, at the event that is looked at: from where to where
  std::size_t left_out_ = 0;
};

/// All devices up to the last that there is anything of. Memory of no device is shown as device 0's.
inline std::vector<torch_device> torch_devices(recorded_trace const& trace, memory_snapshot const& snapshot) {
  std::vector<torch_input> inputs(1);
  auto const of = [&](std::int32_t device) -> torch_input& {
    auto const number = static_cast<std::size_t>(std::max(device, 0));
    if (device >= most_devices)
      throw std::invalid_argument("weir: there is a device " + std::to_string(device) +
                                  "; a snapshot has a list for each, and their numbers have to be below " +
                                  std::to_string(most_devices));
    if (inputs.size() <= number) inputs.resize(number + 1);
    return inputs[number];
  };
  for (trace_event const& e : trace.events)
    if (e.bytes != 0 || e.action == trace_action::out_of_memory) of(e.device).events.push_back(&e);
  for (memory_segment const& s : snapshot.segments) of(s.device).segments.push_back(&s);

  torch_layers const layers(trace);
  std::vector<torch_device> devices;
  devices.reserve(inputs.size());
  for (torch_input const& input : inputs)
    devices.emplace_back(trace, layers, input, static_cast<std::int32_t>(devices.size()));
  return devices;
}

}  // namespace weir::detail
