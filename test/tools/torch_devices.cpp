// What PyTorch's viewer makes of it is tested in torch_memory.cpp.
#include <weir/tools/torch_devices.hpp>

#include <doctest/doctest.h>

#include <cstdint>
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
