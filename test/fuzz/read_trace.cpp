// Bytes read as a trace. What is read is read again alike when it is written as JSON lines, and what PyTorch's viewer
// would be given of it is a snapshot; what is refused is refused at one of its lines or bytes, in one line.
#include "target.hpp"

#include <weir/tools/read_trace.hpp>
#include <weir/tools/torch_memory.hpp>
#include <weir/tools/trace_text.hpp>

#include <algorithm>

using fuzz::require;

namespace {

void check(weir::recorded_trace const& trace) {
  for (weir::trace_event const& e : trace.events)
    require(e.tag < trace.tags.size() && e.layer < trace.layers.size() && e.call_stack < trace.call_stacks.size() &&
                e.report < trace.reports.size(),
            "names have numbers in the lists");
}

/// The histories of a snapshot that has some.
void check_snapshot(weir::recorded_trace const& trace) {
  try {
    check(weir::read_trace(weir::torch_memory(trace)));
  } catch (weir::damaged_trace const& refused) {
    std::string_view const what = refused.what();
    // A trace may allocate what is live, or free with another size.
    require(what.find("holds no allocation") != what.npos || what.find(", entry ") != what.npos, "a snapshot is one");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const bytes(reinterpret_cast<char const*>(data), size);
  try {
    auto const [trace, snapshot] = weir::read_memory(bytes, "file");
    check(trace);
    for (weir::memory_segment const& segment : snapshot.segments) {
      std::uint64_t at = segment.address;
      for (weir::memory_block const& block : segment.blocks) {
        require(block.address == at && block.requested <= block.bytes, "blocks follow each other");
        at += block.bytes;
      }
      require(segment.address + segment.bytes == at, "and fill their segment");
    }
    // Once its names are UTF-8, it stays as it is.
    weir::recorded_trace const valid = weir::read_trace(weir::trace_json_lines(trace));
    require(valid.events.size() == trace.events.size(), "JSON lines have all events");
    require(weir::read_trace(weir::trace_json_lines(valid)) == valid, "JSON lines are read back alike");
    check_snapshot(valid);
    require(weir::trace_csv(valid).starts_with("Thread,Time,"), "a log is one");
  } catch (weir::damaged_trace const& refused) {
    std::string_view const what = refused.what();
    require(what.starts_with("file:"), "a refusal says the file");
    require(std::none_of(what.begin(), what.end(), [](char c) { return c == '\n' || c == '\x1b'; }), "it is one line");
  }
  return 0;
}
