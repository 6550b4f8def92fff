#pragma once
// A trace and a snapshot as the file that PyTorch's memory viewer opens.

#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/pickle_writer.hpp>
#include <weir/tools/recorded_trace.hpp>
#include <weir/tools/torch_devices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace detail {

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
/// the viewer could not show is left out: events in memory that was not there then, as the trace says, events of no
/// bytes but refusals, and requests that contradict earlier ones, as a free that was wrong and ignored. Memory that
/// neither `snapshot` nor the trace accounts for gets a segment. Take the trace first, and let nothing allocate until
/// the snapshot is taken. `pending` memory is `inactive` there. Texts that are no UTF-8 have U+FFFD in their place.
/// Throws `std::invalid_argument` for a device's number of 4096 or more, and `std::bad_alloc`.
inline std::string torch_memory(recorded_trace const& trace, memory_snapshot const& snapshot = {}) {
  return detail::torch_writer(trace).write(detail::torch_devices(trace, snapshot));
}

}  // namespace weir
