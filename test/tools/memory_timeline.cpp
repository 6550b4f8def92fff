#include <weir/tools/memory_timeline.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using weir::trace_action;
using weir::trace_event;

namespace {

trace_event event(trace_action action, std::uint64_t address, std::uint64_t bytes, std::uint32_t layer = 0) {
  return {.address = address, .bytes = bytes, .layer = layer, .action = action};
}
trace_event allocate(std::uint64_t address, std::uint64_t bytes, std::uint32_t layer = 0) {
  return event(trace_action::allocate, address, bytes, layer);
}
trace_event free(std::uint64_t address, std::uint64_t bytes, std::uint32_t layer = 0) {
  return event(trace_action::free, address, bytes, layer);
}

weir::memory_timeline timeline(std::vector<trace_event> const& events, weir::memory_snapshot const& end = {}) {
  return weir::timeline_of({.events = events, .layers = {"a", "b"}}, end);
}

std::string moment(weir::trace_moment m) { return m == weir::to_the_end ? "end" : std::to_string(m); }
/// `address:bytes from-freed` for each, and `-done` where it was pending.
std::string blocks(weir::memory_timeline const& t) {
  std::string out;
  for (auto const& b : t.blocks)
    out += std::to_string(b.address) + ":" + std::to_string(b.bytes) + " " + moment(b.from) + "-" + moment(b.freed) +
           (b.done == b.freed ? "" : "-" + moment(b.done)) + " ";
  return out;
}
/// `[address:bytes from-until, ...]` for each, `range` or `guess` before it.
std::string segments(weir::memory_timeline const& t) {
  std::string out;
  for (auto const& s : t.segments) {
    out += std::string(s.is_range ? "range" : s.is_known ? "" : "guess") + "[";
    for (auto const& e : s.mapped)
      out += (out.back() == '[' ? "" : ", ") + std::to_string(e.address) + ":" + std::to_string(e.bytes) + " " +
             moment(e.from) + "-" + moment(e.until);
    out += "] ";
  }
  return out;
}

}  // namespace

TEST_CASE("a block lives from its allocation to its free") {
  auto const t = timeline({allocate(1000, 10), allocate(2000, 20), free(1000, 10), allocate(1000, 5)});
  CHECK(blocks(t) == "1000:10 1-3 2000:20 2-end 1000:5 4-end ");
  CHECK(weir::peak_of(t).bytes == 30);
  CHECK(weir::peak_of(t).moment == 2);
}

TEST_CASE("what several layers tell of a segment is the same memory") {
  auto const grow = trace_action::grow, trim = trace_action::trim;
  // A pool on a pool, whose segment lies in one of the lower pool's.
  CHECK(segments(timeline({event(grow, 65536, 8192, 1), event(grow, 69632, 4096, 0), event(trim, 69632, 4096, 0),
                           event(grow, 69632, 4096, 0), event(trim, 69632, 4096, 0), event(trim, 65536, 8192, 1)})) ==
        "[65536:8192 1-6] ");
  // Two layers between a pool and its source.
  CHECK(segments(timeline({event(grow, 65536, 8192, 1), event(grow, 65536, 8192, 0), event(trim, 65536, 8192, 1),
                           event(trim, 65536, 8192, 0)})) == "[65536:8192 1-3] ");
}

TEST_CASE("what is freed without having been allocated was there before") {
  CHECK(blocks(timeline({allocate(1000, 10), free(5000, 7)})) == "1000:10 1-end 5000:7 0-2 ");
}

TEST_CASE("an address that is allocated again was freed, though no event is left of that") {
  CHECK(blocks(timeline({allocate(1000, 10), allocate(1000, 20)})) == "1000:10 1-2 1000:20 2-end ");
}

TEST_CASE("a block that two layers saw counts once") {
  // The lower layer sees an allocation first and a free last.
  auto const t = timeline({allocate(1000, 10, 1), allocate(1000, 10, 0), free(1000, 10, 0), free(1000, 10, 1)});
  CHECK(blocks(t) == "1000:10 1-4 ");
}

TEST_CASE("events that say nothing are no blocks") {
  CHECK(blocks(timeline({allocate(1000, 0), free(0, 0), free(1000, 0), event(trace_action::out_of_memory, 0, 5),
                         event(trace_action::move, 4096, 5), event(trace_action::spill, 1000, 1)})) == "");
  CHECK(weir::peak_of(timeline({})).bytes == 0);
}

TEST_CASE("segments come and go as the layer below gives and takes them") {
  auto const t = timeline({event(trace_action::grow, 4096, 4096), event(trace_action::grow, 65536, 8192),
                           event(trace_action::trim, 4096, 4096), event(trace_action::trim, 32768, 512),
                           event(trace_action::grow, 4096, 4096)});
  CHECK(segments(t) == "[4096:4096 1-3] [4096:4096 5-end] [32768:512 0-4] [65536:8192 2-end] ");
}

TEST_CASE("mapped pieces that touch are one range, and a part of one can go") {
  auto const t = timeline({event(trace_action::map, 4096, 4096), event(trace_action::map, 8192, 4096),
                           event(trace_action::unmap, 6144, 4096), event(trace_action::map, 65536, 4096)});
  CHECK(segments(t) ==
        "range[4096:2048 1-end, 6144:2048 1-3, 8192:2048 2-3, 10240:2048 2-end] range[65536:4096 4-end] ");
}

TEST_CASE("a snapshot adds what no event told of") {
  weir::memory_segment const plain{.address = 4096,
                                   .bytes = 4096,
                                   .layer = "pool",
                                   .blocks = {{.address = 4096, .bytes = 1024, .requested = 1000, .tag = "old"},
                                              {.address = 5120, .bytes = 1024, .state = weir::memory_state::pending},
                                              {.address = 6144, .bytes = 2048}}};
  auto snapshot = weir::memory_snapshot{.segments = {plain}};
  snapshot.segments[0].blocks[0].state = weir::memory_state::live;
  auto const t = timeline({allocate(5120, 100), free(5120, 100)}, snapshot);
  CHECK(blocks(t) == "5120:100 1-2 4096:1000 0-end 5120:1024 2-2-end ");
  CHECK(segments(t) == "[4096:4096 0-end] ");
  CHECK(t.segments[0].layer == "pool");
  CHECK(t.tags.at(t.blocks[1].tag) == "old");
}

TEST_CASE("of a range in a snapshot only what has memory is there") {
  weir::memory_segment const range{.address = 4096,
                                   .bytes = 12288,
                                   .is_range = true,
                                   .blocks = {{.address = 4096, .bytes = 4096},
                                              {.address = 8192, .bytes = 4096, .state = weir::memory_state::unmapped},
                                              {.address = 12288, .bytes = 4096}}};
  auto const t = timeline({event(trace_action::map, 12288, 4096)}, {.segments = {range}});
  CHECK(segments(t) == "range[4096:4096 0-end, 12288:4096 1-end] ");
}

TEST_CASE("a layer's segments in the block of a layer below are the same memory") {
  weir::memory_segment const above{
      .address = 4096, .bytes = 1024, .blocks = {{4096, 1024, 9, 0, 0, weir::memory_state::live, {}}}};
  weir::memory_segment const below{.address = 4096,
                                   .bytes = 4096,
                                   .blocks = {{4096, 1024, 1024, 0, 0, weir::memory_state::live, {}},
                                              {5120, 3072, 0, 0, 0, weir::memory_state::free, {}}}};
  auto const t = timeline({}, {.segments = {above, below}});
  CHECK(segments(t) == "[4096:4096 0-end] ");
  CHECK(blocks(t) == "4096:9 0-end ");
}

TEST_CASE("a pool's segment in the range of a layer below is the same memory") {
  weir::memory_segment const range{.address = 4096, .bytes = 8192, .is_range = true, .blocks = {{4096, 8192}}};
  weir::memory_segment const above{.address = 8192, .bytes = 4096, .blocks = {{8192, 4096}}};
  CHECK(segments(timeline({}, {.segments = {above, range}})) == "range[4096:8192 0-end] ");
}

TEST_CASE("without segments, they are where blocks lay") {
  auto const t = timeline({allocate(4096, 100), allocate(5000, 100), allocate(std::uint64_t{1} << 40, 50)});
  CHECK(segments(t) == "guess[4096:1004 0-end] guess[1099511627776:50 0-end] ");
}

TEST_CASE("a block lies in what was there once, though less is there later") {
  auto const range = timeline({event(trace_action::map, 4096, 8192), allocate(8192, 100), free(8192, 100),
                               event(trace_action::unmap, 4096, 8192), event(trace_action::map, 4096, 4096)});
  CHECK(segments(range) == "range[4096:8192 1-4, 4096:4096 5-end] ");
  auto const plain = timeline({event(trace_action::grow, 4096, 8192), allocate(8192, 100), free(8192, 100),
                               event(trace_action::trim, 4096, 8192), event(trace_action::grow, 4096, 4096)});
  CHECK(segments(plain) == "[4096:8192 1-4] [4096:4096 5-end] ");
}

TEST_CASE("memory that comes and goes at one address in each of many steps is followed") {
  std::size_t const steps = 300'000;  // looking at all earlier lives for each would take minutes
  std::vector<trace_event> events;
  for (std::size_t i = 0; i < steps; ++i) {
    events.push_back(event(trace_action::grow, 4096, 4096));
    events.push_back(event(trace_action::trim, 4096, 4096));
  }
  auto const t = timeline(events);
  REQUIRE(t.segments.size() == steps);
  CHECK(t.segments.back().mapped.at(0).until == 2 * steps);
}

TEST_CASE("pieces of many ranges are put together by the snapshot") {
  std::size_t const ranges = 100'000;  // looking at all of them for each piece would take minutes
  std::vector<trace_event> events;
  weir::memory_snapshot end;
  for (std::uint64_t i = 0; i < ranges; ++i) {
    std::uint64_t const address = 65536 * (i + 1);
    events.push_back(event(trace_action::map, address, 4096));
    events.push_back(event(trace_action::map, address + 8192, 4096));
    end.segments.push_back({.address = address, .bytes = 12288, .is_range = true});
  }
  auto const t = timeline(events, end);
  REQUIRE(t.segments.size() == ranges);
  CHECK(t.segments.back().mapped.size() == 2);
}

TEST_CASE("a snapshot may have many tags, and segments that lie in each other in a way that no stack has") {
  std::size_t const many = 100'000;  // looking at all others for each would take minutes
  weir::memory_snapshot end;
  std::vector<trace_event> events;
  std::uint64_t const first = std::uint64_t{1} << 40;
  SUBCASE("tags") {
    for (std::uint64_t i = 0; i < many; ++i)
      end.segments.push_back({.address = first + 4096 * i,
                              .bytes = 4096,
                              .blocks = {{.address = first + 4096 * i,
                                          .bytes = 4096,
                                          .state = weir::memory_state::live,
                                          .tag = "tag " + std::to_string(i)}}});
    auto const t = timeline({}, end);
    CHECK(t.tags.size() == many + 1);
    CHECK(t.tags.at(t.blocks.back().tag) == "tag 0");
  }
  SUBCASE("segments that begin at one address") {
    for (std::uint64_t i = 0; i < many; ++i)
      end.segments.push_back({.address = first,
                              .bytes = many - i,
                              .blocks = {{.address = first, .bytes = many - i, .state = weir::memory_state::live}}});
    auto const t = timeline({}, end);
    CHECK(t.blocks.size() == 1);  // they are at one address
    CHECK(t.segments.size() == many);
  }
  SUBCASE("segments that all have the same pieces in them") {
    for (std::uint64_t i = 0; i < many; ++i) {
      events.push_back(event(trace_action::map, first + 8192 * i, 4096));
      end.segments.push_back({.address = first,
                              .bytes = 8192 * many,
                              .is_range = true,
                              .blocks = {{.address = first, .bytes = 8192 * many}}});
    }
    auto const t = timeline(events, end);
    REQUIRE(t.segments.size() == 1);
    CHECK(t.segments[0].mapped.size() == 2 * many);
  }
}

TEST_CASE("sizes that no memory has are left out, and addresses do not wrap") {
  std::uint64_t const last = ~std::uint64_t{0};
  auto const t =
      timeline({allocate(last - 10, last), allocate(last - 20, 100), event(trace_action::grow, last - 4095, 8192),
                event(trace_action::trim, last - 4095, last), event(trace_action::unmap, last, last)});
  CHECK(blocks(t) == std::to_string(last - 20) + ":100 2-end ");
  CHECK(segments(t) == "[" + std::to_string(last - 4095) + ":4095 3-end] ");
}
