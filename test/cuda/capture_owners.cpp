#include <weir/cuda/capture_owners.hpp>

#include <weir/cuda/capture.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>

#include <cstdint>

using namespace weir;
using namespace weir::test;
using detail::capture_owners;

TEST_CASE("a capture is its own until it joins another, and again once it leaves") {
  capture_owners owners;
  CHECK(owners.owner_of(7) == 7);
  REQUIRE(owners.join(7, 3));
  CHECK(owners.owner_of(7) == 3);
  CHECK(owners.owner_of(3) == 3);
  owners.leave(8);  // has joined none
  CHECK(owners.owner_of(7) == 3);
  owners.leave(7);
  CHECK(owners.owner_of(7) == 7);
}

TEST_CASE("where there is no room a capture stays its own") {
  capture_owners owners;
  for (std::uint64_t i = 0; i < capture_owners::most; ++i) REQUIRE(owners.join(100 + i, 1));
  CHECK_FALSE(owners.join(99, 1));
  CHECK(owners.owner_of(99) == 99);
  owners.leave(100);
  CHECK(owners.join(99, 1));
  CHECK(owners.owner_of(101) == 1);
  for (std::uint64_t i = 0; i < capture_owners::most; ++i) owners.leave(99 + i);
  owners.leave(99 + capture_owners::most);
  CHECK(detail::captures_of_others == 0);
}

TEST_CASE_FIXTURE(watched_world, "a stream that is captured has the number of the capture that its own has joined") {
  destroyable_stream const stream;
  begin_capture(stream);
  std::uint64_t const own = capture_id(stream);
  REQUIRE(detail::owners_of_captures.join(own, own + 1000));
  CHECK(capture_id(stream) == own + 1000);
  detail::owners_of_captures.leave(own);
  CHECK(capture_id(stream) == own);
  captured_graph const graph(stream);
}

TEST_CASE_FIXTURE(watched_world, "a thread acts in a capture that is over, and pools ask for it") {
  destroyable_stream const stream;
  CHECK(capture_id(stream) == 0);
  {
    detail::acting_in_capture const outer(5);
    CHECK(detail::captures_declared());
    CHECK(capture_id(stream) == 5);
    {
      detail::acting_in_capture const inner(6);
      CHECK(capture_id(stream) == 6);
    }
    CHECK(capture_id(stream) == 5);
  }
  CHECK(capture_id(stream) == 0);
  CHECK_FALSE(detail::captures_declared());
}
