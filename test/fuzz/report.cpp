// Traces put together and drawn, whatever they say: events and snapshots that no program could have made too. Lives
// begin before they end, free memory is part of what is reserved, and no byte of a name leaves its place in the page.
// What PyTorch's viewer would be given is a snapshot.
#include "target.hpp"

#include <weir/tools/read_trace.hpp>
#include <weir/tools/report_page.hpp>
#include <weir/tools/torch_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

using fuzz::require;

namespace {

std::size_t count(std::string const& text, char const* part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

/// Few addresses, so that things meet.
std::uint64_t address(fuzz::input& in) {
  unsigned const byte = in.byte();
  return byte == 255 ? ~std::uint64_t{0} - in.byte() : std::uint64_t{byte} << 10;
}
std::uint64_t bytes(fuzz::input& in) {
  unsigned const byte = in.byte();
  return byte == 255 ? in.take<std::uint64_t>() : std::uint64_t{byte} << 8;
}

weir::report_run made_run(fuzz::input& in) {
  weir::report_run run{.trace = {.layers = {"a", "b"}, .tags = {""}}};
  run.trace.tags.emplace_back(in.text(in.byte() % 32));
  for (unsigned n = in.byte(); n > 0 && !in.empty(); --n)
    run.trace.events.push_back({.nanoseconds = in.byte(),
                                .address = address(in),
                                .bytes = bytes(in),
                                .layer = in.byte() % 2,
                                .tag = in.byte() % 2,
                                .action = static_cast<weir::trace_action>(in.byte() % weir::trace_actions)});
  while (!in.empty() && run.snapshot.segments.size() < 8) {
    weir::memory_segment segment{.address = address(in), .is_range = in.byte() % 2 == 1};
    for (unsigned n = in.byte() % 8; n > 0; --n) {
      weir::memory_block block{.address = segment.address + segment.bytes, .bytes = bytes(in)};
      block.state = static_cast<weir::memory_state>(in.byte() % 5);
      segment.bytes += block.bytes;
      segment.blocks.push_back(block);
    }
    run.snapshot.segments.push_back(segment);
  }
  return run;
}

void check_snapshot(weir::report_run const& run) {
  try {
    weir::read_memory(weir::torch_memory(run.trace, run.snapshot));
  } catch (weir::damaged_trace const& refused) {
    std::string_view const what = refused.what();
    // There may be nothing that fits, and a snapshot that was made up may say that a free has another size.
    bool const known =
        what.find("holds no allocation") != std::string_view::npos || what.find(", entry ") != std::string_view::npos;
    require(known, "a snapshot is one");
  }
}

void check(weir::report_run const& run) {
  check_snapshot(run);
  weir::memory_timeline const t = weir::timeline_of(run.trace, run.snapshot);
  for (weir::block_life const& b : t.blocks) {
    require(b.from <= b.freed && b.freed <= b.done, "a block is allocated, freed and done in this order");
    require(b.from <= t.moments && b.tag < t.tags.size(), "a block is of this trace");
  }
  for (weir::segment_life const& s : t.segments) {
    require(!s.mapped.empty(), "a segment has memory at some time");
    for (weir::extent_life const& e : s.mapped) require(e.from <= e.until, "memory comes before it goes");
  }
  for (weir::free_memory const& f : weir::fragmentation_over_time(t, 20))
    require(f.largest <= f.free && f.free <= f.reserved, "what is free is reserved");
  static std::string const plain = weir::report_page({});
  std::string const page = weir::report_page({run});
  for (char const* const part : {"</", "<!--", "<s", "<S"})
    require(count(page, part) == count(plain, part), "no name leaves its place in the page");
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  if (size != 0 && data[0] == 0) {
    in.byte();
    check(made_run(in));
    return 0;
  }
  try {
    check({.name = std::string(in.rest().substr(0, 20)), .trace = weir::read_trace(in.rest())});
  } catch (weir::damaged_trace const&) {  // what `trace` looks at
  }
  return 0;
}
