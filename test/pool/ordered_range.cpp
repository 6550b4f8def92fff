// What is done with such a range is tested in growable_range.cpp, idle_chunks.cpp and pending_move.cpp.
#include <weir/pool/ordered_range.hpp>

#include <weir/core/shown_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/reuse_of_a_segment.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;
using detail::unit_bytes;

namespace {

/// A range of 64 chunks of four units, none of which has memory at first.
struct range_of_chunks : reuse_of_a_segment {
  static constexpr std::size_t chunk = 4 * unit_bytes;
  block_id const first = reuse.add_range(0x7e00'0000'0000u, 64 * 4);

  detail::ordered_range::window window(stream_ref stream, detail::units size) {
    return reuse.find_window(who(stream), units(size), chunk);
  }
  /// Takes the window, with memory for all that is missing; returns how many bytes that is.
  std::size_t fill(stream_ref stream, detail::units size, block_id* taken = nullptr) {
    reuse.reserve();
    std::size_t missing = 0;
    auto const held =
        reuse.hold(window(stream, size), who(stream), [&](std::uintptr_t, std::size_t n) { missing += n; });
    block_id const id = reuse.take(held, units(size));
    REQUIRE(id != 0);
    if (taken != nullptr) *taken = id;
    return missing;
  }
  std::size_t with_memory() {
    std::size_t bytes = 0;
    reuse.for_each_with_memory(first, [&](std::uintptr_t, std::size_t n) { bytes += n; });
    return bytes;
  }
};

}  // namespace

TEST_CASE_FIXTURE(range_of_chunks, "addresses without memory are no stream's, and nobody's to take") {
  CHECK(reuse.stream_count() == 0);
  CHECK(ready(a, 200) == 0);
  CHECK(done(a, 200) == 0);
  CHECK(waiting(a, 200) == 0);
  std::vector<memory_state> states;
  reuse.for_each_shown(first, [&](detail::shown_block const& piece) { states.push_back(piece.state); });
  CHECK(states == std::vector{memory_state::unmapped});
}

TEST_CASE_FIXTURE(range_of_chunks, "where a request is served the least memory is missing") {
  CHECK(fill(a, 10) == 3 * chunk);
  CHECK(with_memory() == 3 * chunk);
  block_id six = 0;
  CHECK(fill(a, 6, &six) == chunk);  // two units are left of the third chunk
  CHECK(reuse.valid());
  free_behind_work(a, six);
  SUBCASE("the stream itself uses again what it freed") { CHECK(fill(a, 10) == chunk); }
  SUBCASE("another one does not, before that is done") { CHECK(fill(b, 10) == 3 * chunk); }
  SUBCASE("then it does") {
    a.finish();
    reuse.poll(reuse.all_lists());
    CHECK(fill(b, 10) == chunk);
  }
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(range_of_chunks, "a window that is held is nobody's, and all is as before if it is put back") {
  auto const ignore = [](std::uintptr_t, std::size_t) {};
  reuse.reserve();
  auto const held = reuse.hold(window(a, 250), who(a), ignore);
  CHECK(window(b, 10).first == 0);
  SUBCASE("without memory") {
    reuse.put_back(held, false);
    CHECK(with_memory() == 0);
    CHECK(done(b, 250) == 0);
  }
  SUBCASE("with memory, which is everyone's") {
    reuse.put_back(held, true);
    CHECK(with_memory() == 63 * chunk);
    CHECK(done(b, 250) != 0);
  }
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(range_of_chunks,
                  "what is freed while the range is parked is everyone's after that, or its capture's") {
  block_id plain = 0, captured = 0;
  fill(a, 8, &plain);
  fill(a, 8, &captured);
  reuse.park(first);
  detail::stream_identity const capturing = who(b, 77);
  CHECK(reuse.owner_parked(plain, who(b)) == detail::capture_key::none);
  CHECK(reuse.owner_parked(captured, capturing) == capturing.capture);
  CHECK(reuse.give_parked(plain, detail::capture_key::none));
  CHECK(reuse.give_parked(captured, capturing.capture));
  CHECK(reuse.captured_bytes_parked(first, capturing.capture) == 8 * unit_bytes);
  reuse.unpark(first);
  CHECK(reuse.captured_bytes(capturing.capture) == 8 * unit_bytes);
  CHECK(shared() == 100 + 8);  // the segment's units too
  CHECK(reuse.valid());
}
