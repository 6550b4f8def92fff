#pragma once
// A trace and a snapshot as the file that PyTorch's memory viewer opens.

#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/pickle_writer.hpp>
#include <weir/tools/recorded_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace detail {

/// Addresses, as pieces that do not overlap.
class address_pieces {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto first = pieces_.upper_bound(begin);
    if (first != pieces_.begin() && std::prev(first)->second >= begin) --first;
    auto last = first;
    for (; last != pieces_.end() && last->first <= end; ++last) {
      begin = std::min(begin, last->first);
      end = std::max(end, last->second);
    }
    pieces_.erase(first, last);
    pieces_[begin] = end;
  }
  void remove(std::uint64_t begin, std::uint64_t end) {
    auto const around = std::prev(pieces_.upper_bound(begin));
    auto const [piece_begin, piece_end] = *around;
    pieces_.erase(around);
    if (piece_begin < begin) pieces_[piece_begin] = begin;
    if (end < piece_end) pieces_[end] = piece_end;
  }
  bool contains(std::uint64_t begin, std::uint64_t end) const {
    auto const after = pieces_.upper_bound(begin);
    return after != pieces_.begin() && end <= std::prev(after)->second;
  }
  bool overlaps(std::uint64_t begin, std::uint64_t end) const {
    auto const after = pieces_.lower_bound(end);
    return after != pieces_.begin() && begin < std::prev(after)->second;
  }
  auto begin() const { return pieces_.begin(); }
  auto end() const { return pieces_.end(); }

 private:
  std::map<std::uint64_t, std::uint64_t> pieces_;  // by begin
};

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
  torch_device(recorded_trace const& trace, torch_layers const& layers, torch_input const& of_device,
               std::int32_t device)
      : trace_(trace), device_(device), layers_(layers) {
    for (memory_segment const* const s : of_device.segments) add_segment(*s);
    choose_events(possible_events(of_device.events));
    add_missing_segments();
  }

  std::vector<memory_segment> const& segments() const noexcept { return segments_; }
  std::vector<trace_event const*> const& events() const noexcept { return events_; }

 private:
  /// Each run of memory is a segment; of those that lie in another layer's, the inner ones, which come first.
  void add_segment(memory_segment const& whole) {
    memory_segment run;
    auto const finish = [&] {
      if (run.bytes != 0 && !held_.overlaps(run.address, run.address + run.bytes)) keep(run);
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
      if (block.state == memory_state::live) live_.insert(block.address);
    segments_.push_back(segment);
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
          if (now.overlaps(e.address, end) || traced_.overlaps(e.address, end)) return false;
          missing_.add(e.address, end);  // in a segment that nobody showed
        }
        if (e.action == trace_action::free)
          live_.insert(e.address);
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
        if (e.layer != layers_.keeper || now.overlaps(e.address, end) || missing_.overlaps(e.address, end))
          return false;
        now.add(e.address, end);
        traced_.add(e.address, end);
        return true;
      default:  // PyTorch has no word for it
        return false;
    }
  }

  bool has_live(std::uint64_t begin, std::uint64_t end) const {
    auto const first = live_.lower_bound(begin);
    return first != live_.end() && *first < end;
  }

  /// Segments for blocks that no segment holds: of a stack without a pool, or of a file without a snapshot.
  void add_missing_segments() {
    std::map<std::uint64_t, trace_event const*> live;
    for (trace_event const* const e : events_) {
      if (e->action == trace_action::allocate) live[e->address] = e;
      if (e->action == trace_action::free) live.erase(e->address);
    }
    for (auto const& [begin, end] : missing_) {
      memory_segment segment{.address = begin, .bytes = end - begin, .device = device_};
      std::uint64_t at = begin;
      auto const add = [&](std::uint64_t upto, memory_state state) {
        if (upto > at) segment.blocks.push_back({.address = at, .bytes = upto - at, .state = state});
        at = std::max(at, upto);
      };
      for (auto block = live.lower_bound(begin); block != live.end() && block->first < end; ++block) {
        trace_event const& e = *block->second;
        add(e.address, memory_state::free);
        if (e.address < at) continue;
        add(e.address + e.bytes, memory_state::live);
        segment.blocks.back().requested = e.bytes;
        segment.blocks.back().stream = e.stream;
        segment.blocks.back().tag = trace_.tags[e.tag];
      }
      add(end, memory_state::free);
      segments_.push_back(segment);
    }
  }

  recorded_trace const& trace_;
  std::int32_t device_;
  torch_layers const& layers_;
  std::vector<memory_segment> segments_;
  std::vector<trace_event const*> events_;
  address_pieces held_, traced_, missing_;
  std::set<std::uint64_t> live_;  // blocks, at the event that is looked at
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

/// The words of PyTorch's file.
class torch_writer {
 public:
  explicit torch_writer(recorded_trace const& trace) : trace_(trace) {}

  std::string write(std::vector<torch_device> const& devices) && {
    out_.begin_dict();
    out_.text("segments");
    out_.begin_list();
    for (torch_device const& device : devices)
      for (memory_segment const& segment : device.segments()) write_segment(segment);
    out_.end_list();
    out_.text("device_traces");
    out_.begin_list();
    for (torch_device const& device : devices) {
      out_.begin_list();
      for (trace_event const* const e : device.events()) write_event(*e);
      out_.end_list();
    }
    out_.end_list();
    out_.end_dict();
    return std::move(out_).finish();
  }

 private:
  void write_segment(memory_segment const& s) {
    std::uint64_t allocated = 0, requested = 0;
    for (memory_block const& b : s.blocks) {
      allocated += b.state == memory_state::live ? b.bytes : 0;
      requested += b.requested;
    }
    out_.begin_dict();
    out_.member("device", static_cast<std::uint64_t>(s.device));
    out_.member("address", s.address);
    out_.member("total_size", s.bytes);
    out_.member("allocated_size", allocated);
    out_.member("active_size", allocated);
    out_.member("requested_size", requested);
    out_.member("stream", 0);
    out_.member("segment_type", "large");
    out_.text("segment_pool_id");
    out_.number(0), out_.number(0), out_.end_pair();
    out_.text("is_expandable"), out_.boolean(s.is_range);
    write_frames(0);
    out_.text("blocks");
    out_.begin_list();
    for (memory_block const& b : s.blocks) {
      out_.begin_dict();
      out_.member("address", b.address);
      out_.member("size", b.bytes);
      out_.member("requested_size", b.requested);
      out_.member("state", b.state == memory_state::live ? "active_allocated" : "inactive");
      if (!b.tag.empty()) out_.member("category", b.tag);
      write_frames(0);
      out_.end_dict();
    }
    out_.end_list();
    out_.end_dict();
  }

  void write_event(trace_event const& e) {
    switch (e.action) {
      case trace_action::allocate:
        return write_event(e, "alloc");
      case trace_action::free:
        return write_event(e, "free_requested"), write_event(e, "free_completed");
      case trace_action::grow:
        return write_event(e, "segment_alloc");
      case trace_action::trim:
        return write_event(e, "segment_free");
      case trace_action::map:
        return write_event(e, "segment_map");
      case trace_action::unmap:
        return write_event(e, "segment_unmap");
      case trace_action::out_of_memory:
        return write_event(e, "oom");
      default:
        return;
    }
  }
  void write_event(trace_event const& e, char const* action) {
    out_.begin_dict();
    out_.member("action", action);
    out_.member(e.action == trace_action::out_of_memory ? "device_free" : "addr", e.address);
    out_.member("size", e.bytes);
    out_.member("stream", is_of_segment(e.action) ? 0 : e.stream);  // segments are no stream's
    out_.member("time_us", time_of(e));
    if (e.tag != 0) out_.member("category", trace_.tags[e.tag]);
    if (e.report != 0) out_.member("report", trace_.reports[e.report]);
    write_frames(e.call_stack);
    out_.end_dict();
  }
  /// In microseconds. Where nobody knows when the trace began it is 1: to readers 0 is a time that is not known.
  std::uint64_t time_of(trace_event const& e) const {
    return (trace_.began + e.nanoseconds) / 1000 + (trace_.began == 0 ? 1 : 0);
  }
  void write_frames(std::uint32_t call_stack) {
    out_.text("frames");
    out_.begin_list();
    for (std::string const& frame : trace_.call_stacks[call_stack]) {
      std::size_t const open = std::min(frame.find('('), frame.size());
      out_.begin_dict();
      out_.member("filename", frame.substr(0, open));
      out_.member("line", 0);
      out_.member("name", open == frame.size() ? frame : frame.substr(open));
      out_.end_dict();
    }
    out_.end_list();
  }

  recorded_trace const& trace_;
  pickle_writer out_;
};

}  // namespace detail

/// The bytes of a snapshot file as PyTorch's `torch.cuda.memory._dump_snapshot` writes it, for its memory viewer and
/// `torch.cuda._memory_viz`; write them to a file that is opened in binary mode. Shows the requests at the outermost
/// `trace` layer and what the pool below took and gave back, where a `trace` layer saw that; tags are categories. What
/// the viewer could not show is left out: events whose memory neither `snapshot` nor the trace accounts for, events of
/// no bytes but refusals, and requests that contradict earlier ones, as a free that was wrong and ignored. Take the
/// trace first, and let nothing allocate until the snapshot is taken. `pending` memory is `inactive` there. Texts that
/// are no UTF-8 have U+FFFD in their place. Throws `std::invalid_argument` for a device's number of 4096 or more, and
/// `std::bad_alloc`.
inline std::string torch_memory(recorded_trace const& trace, memory_snapshot const& snapshot = {}) {
  return detail::torch_writer(trace).write(detail::torch_devices(trace, snapshot));
}

}  // namespace weir
