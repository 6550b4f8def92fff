// What PyTorch's viewer makes of it is tested in torch_memory.cpp.
#include <weir/tools/torch_devices.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace weir;
using detail::torch_devices;

namespace {

constexpr auto allocate = trace_action::allocate, release = trace_action::free;

std::vector<trace_action> actions(detail::torch_device const& of) {
  std::vector<trace_action> found;
  for (trace_event const* const e : of.events()) found.push_back(e->action);
  return found;
}

}  // namespace

TEST_CASE("an event is shown where the memory at the end, and what went since, has a place for it") {
  recorded_trace trace{.layers = {"top", "trace"}};
  trace.events = {{.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::grow},
                  {.address = 4096, .bytes = 1024, .action = allocate},
                  {.address = 6144, .bytes = 4096, .action = allocate},  // beyond its end
                  {.address = 4096, .bytes = 1024, .action = release},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::trim}};
  auto const devices = torch_devices(trace, {});
  REQUIRE(devices.size() == 1);
  CHECK(actions(devices[0]) == std::vector{trace_action::grow, allocate, release, trace_action::trim});
  CHECK(devices[0].segments().empty());
}

TEST_CASE("a block that no segment holds is given one, and is live in it if it was not freed") {
  recorded_trace trace{.layers = {"trace"}, .tags = {"", "decoder"}};
  trace.events = {{.address = 4096, .bytes = 1024, .action = allocate},
                  {.address = 5120, .bytes = 512, .tag = 1, .action = allocate},
                  {.address = 4096, .bytes = 1024, .action = release}};
  auto const devices = torch_devices(trace, {});
  REQUIRE(devices.size() == 1);
  REQUIRE(devices[0].segments().size() == 1);
  memory_segment const& segment = devices[0].segments()[0];
  CHECK(segment.address == 4096);
  CHECK(segment.bytes == 1536);
  REQUIRE(segment.blocks.size() == 2);
  CHECK(segment.blocks[0].state == memory_state::free);
  CHECK(segment.blocks[1].state == memory_state::live);
  CHECK(segment.blocks[1].requested == 512);
  CHECK(segment.blocks[1].tag == "decoder");
}

TEST_CASE("where each live block was shown as a segment, those that were there before it are shown too") {
  recorded_trace trace{.layers = {"trace"}};
  trace.events = {{.address = 4096, .bytes = 4096, .action = allocate},
                  {.address = 4096, .bytes = 4096, .action = release},
                  {.address = 5120, .bytes = 512, .action = allocate},
                  {.address = 6144, .bytes = 4096, .action = allocate},
                  {.address = 6144, .bytes = 4096, .action = release}};
  auto const alone = [](std::uint64_t address, std::uint64_t bytes, std::string const& tag) {
    memory_block const block{
        .address = address, .bytes = bytes, .requested = bytes, .state = memory_state::live, .tag = tag};
    return memory_segment{.address = address, .bytes = bytes, .blocks = {block}};
  };
  memory_snapshot const end{.segments = {alone(5120, 512, "decoder"), alone(65536, 256, "encoder")}};
  auto const devices = torch_devices(trace, end);
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].events().size() == 5);
  CHECK(devices[0].left_out() == 0);
  auto const& shown = devices[0].segments();
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].address == 65536);  // which nothing else was in
  CHECK(shown[1].address == 4096);
  CHECK(shown[1].bytes == 6144);
  REQUIRE(shown[1].blocks.size() == 3);
  CHECK(shown[1].blocks[0].bytes == 1024);
  CHECK(shown[1].blocks[1].state == memory_state::live);
  CHECK(shown[1].blocks[1].tag == "decoder");
  CHECK(shown[1].blocks[2].bytes == 4608);
}

TEST_CASE("without a snapshot, what came and did not go is there at the end") {
  recorded_trace trace{.layers = {"top", "trace"}};
  auto const growth = [&](trace_action action, std::uint64_t address) {
    trace.events.push_back({.address = address, .bytes = 4096, .layer = 1, .action = action});
  };
  SUBCASE("of a pool, segment by segment") {
    growth(trace_action::grow, 4096);
    growth(trace_action::grow, 8192);
    trace.events.push_back({.address = 8192, .bytes = 1024, .action = allocate});
    growth(trace_action::trim, 4096);
    growth(trace_action::grow, 12288);
    auto const devices = torch_devices(trace, {});
    CHECK(devices[0].events().size() == 5);
    REQUIRE(devices[0].segments().size() == 2);
    memory_segment const& first = devices[0].segments()[0];
    CHECK(first.address == 8192);
    REQUIRE(first.blocks.size() == 2);
    CHECK(first.blocks[0].state == memory_state::live);
    CHECK(first.blocks[0].bytes == 1024);
    CHECK(first.blocks[1].bytes == 3072);
    CHECK(devices[0].segments()[1].address == 12288);
  }
  SUBCASE("of a range, in one piece") {
    growth(trace_action::map, 4096);
    growth(trace_action::map, 8192);
    trace.events.push_back({.address = 6144, .bytes = 4096, .action = allocate});
    auto const devices = torch_devices(trace, {});
    CHECK(devices[0].events().size() == 3);
    REQUIRE(devices[0].segments().size() == 1);
    CHECK(devices[0].segments()[0].bytes == 8192);
    CHECK(devices[0].segments()[0].is_range);
    CHECK(devices[0].segments()[0].blocks.size() == 3);
  }
}

TEST_CASE("memory does not go from under a block that begins before it") {
  recorded_trace trace{.layers = {"top", "trace"}};
  trace.events = {{.address = 8192, .bytes = 4096, .layer = 1, .action = trace_action::map},
                  {.address = 6144, .bytes = 4096, .action = release}};  // whose allocation was forgotten
  memory_block const whole{.address = 4096, .bytes = 8192};
  auto const devices = torch_devices(trace, {.segments = {{.address = 4096, .bytes = 8192, .blocks = {whole}}}});
  CHECK(actions(devices[0]) == std::vector{release});
  CHECK(devices[0].left_out() == 1);
}

TEST_CASE("what is left out is counted: requests, and memory that comes and goes") {
  recorded_trace trace{.layers = {"top", "trace"}};
  trace.events = {{.address = 6144, .bytes = 4096, .action = allocate},  // there was no memory yet
                  {.address = 6144, .bytes = 4096, .action = release},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::grow},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = allocate},  // not the program's
                  {.bytes = 1024, .action = trace_action::out_of_memory},
                  {.address = 4096, .bytes = 4096, .action = trace_action::spill},  // PyTorch has no word for it
                  {.address = 4096, .bytes = 1024, .action = allocate},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::trim},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::trim}};
  auto const devices = torch_devices(trace, {});
  CHECK(actions(devices[0]) ==
        std::vector{trace_action::grow, trace_action::out_of_memory, allocate, trace_action::trim});
  CHECK(devices[0].left_out() == 3);
}

TEST_CASE("a segment that reaches beyond the last address is left out") {
  constexpr std::uint64_t high = ~std::uint64_t{0} - 8191;
  recorded_trace trace{.layers = {"trace"}};
  trace.events = {{.address = high, .bytes = 4096, .action = allocate},
                  {.address = 4096, .bytes = 512, .action = allocate}};
  memory_snapshot snapshot;
  snapshot.segments = {{.address = high + 2048, .bytes = 8192, .blocks = {{.address = high + 2048, .bytes = 8192}}}};
  auto const devices = torch_devices(trace, snapshot);
  REQUIRE(devices.size() == 1);
  REQUIRE(devices[0].segments().size() == 2);
  CHECK(devices[0].segments()[0].address == 4096);
  CHECK(devices[0].segments()[1].address == high);
  CHECK(devices[0].segments()[1].blocks.size() == 1);
}

TEST_CASE("each run of memory in a segment is a segment") {
  auto const piece = [](std::uint64_t address, memory_state state) {
    return memory_block{.address = address, .bytes = 1024, .state = state};
  };
  memory_segment const whole{.address = 4096,
                             .bytes = 4096,
                             .device = 1,
                             .blocks = {piece(4096, memory_state::live), piece(5120, memory_state::free),
                                        piece(6144, memory_state::unmapped), piece(7168, memory_state::free)}};
  recorded_trace const nothing{.layers = {"trace"}};
  auto const devices = torch_devices(nothing, {.segments = {whole}});
  REQUIRE(devices.size() == 2);
  CHECK(devices[0].segments().empty());
  auto const& shown = devices[1].segments();
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].address == 4096);
  CHECK(shown[0].bytes == 2048);
  CHECK(shown[1].address == 7168);
  CHECK(shown[1].bytes == 1024);
}
