// needs: tsan
#include <weir/adaptors/detail/spiller.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <future>
#include <thread>

#include "support/spilling.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::spiller;

TEST_CASE("room is made of idle blocks alone, the longest unused first, and of no more than needed") {
  fresh_world const world;
  source_state below, above;
  auto memory = make(source{&below});
  auto host = make(source{&above});
  spiller blocks(memory, host, 0);
  stream const a;
  auto const first = blocks.add(a, 1000, 256), second = blocks.add(a, 1000, 256), third = blocks.add(a, 1000, 256);
  spiller::progress seen;
  {
    spiller::pin const pin(blocks, first, a);
    CHECK(blocks.make_room(a, 500, seen));
    CHECK_FALSE(blocks.is_on_device(second));
    CHECK(blocks.is_on_device(third));
    CHECK(blocks.make_room(a, 5000, seen));
    CHECK_FALSE(blocks.is_on_device(third));
    CHECK_FALSE(blocks.make_room(a, 1, seen));
    CHECK(blocks.is_on_device(first));
    CHECK(blocks.numbers().pinned_bytes == 1000);
  }
  CHECK(blocks.make_room(a, 1, seen));
  CHECK(below.live_count == 0);
  CHECK(above.live_bytes == 3000);
  for (auto const b : {first, second, third}) blocks.drop(b);
  CHECK(above.live_count == 0);
  CHECK(blocks.numbers().handles == 0);
}

TEST_CASE("who finds nothing to spill asks once more if something was spilled before") {
  fresh_world const world;
  source_state below, above;
  auto memory = make(source{&below});
  auto host = make(source{&above});
  spiller blocks(memory, host, 0);
  stream const a;
  auto const b = blocks.add(a, 1000, 256);
  spiller::progress seen, of_another;
  CHECK(blocks.make_room(a, 1, seen));
  CHECK(blocks.make_room(a, 1, of_another));  // it may have been refused before that room was made
  CHECK_FALSE(blocks.make_room(a, 1, of_another));
  blocks.drop(b);
}

TEST_CASE("blocks that the host has no room for are as old as before") {
  fresh_world const world;
  source_state below, above;
  auto memory = make(source{&below});
  auto host = make(source{&above});
  spiller blocks(memory, host, 0);
  stream const a;
  auto const first = blocks.add(a, 2000, 256), second = blocks.add(a, 1000, 256);
  auto const youngest = blocks.add(a, 3000, 256);
  spiller::progress seen;
  for (failing const how : {failing::out_of_memory, failing::null, failing::other}) {
    seen = {};
    above.fail = how;
    CHECK_FALSE(blocks.make_room(a, 1, seen));
  }
  CHECK(blocks.numbers().not_spilled == 6);
  CHECK_FALSE(blocks.make_room(a, 1, seen));  // each is tried once
  CHECK(blocks.numbers().not_spilled == 6);
  seen = {};
  above.fail = failing::no;
  CHECK(blocks.make_room(a, 1, seen));
  CHECK_FALSE(blocks.is_on_device(first));
  CHECK(blocks.is_on_device(second));
  CHECK(blocks.is_on_device(youngest));
  for (auto const b : {first, second, youngest}) blocks.drop(b);
}

TEST_CASE("while another thread spills, nobody is told that there is nothing to spill") {
  fresh_world const world;
  source_state below, above;
  auto memory = make(source{&below});
  auto host = make(source{&above});
  spiller blocks(memory, host, 0);
  stream const a;
  auto const b = blocks.add(a, 1000, 256);
  std::promise<void> spilling;
  std::thread other;
  bool told = false;
  above.on_allocate = [&] {  // the only block is on its way
    other = std::thread([&] {
      spiller::progress seen;
      spilling.set_value();
      told = blocks.make_room(a, 1000, seen);
    });
    spilling.get_future().wait();
  };
  spiller::progress seen;
  CHECK(blocks.make_room(a, 1000, seen));
  other.join();
  CHECK(told);
  blocks.drop(b);
}

TEST_CASE("a block that another thread spills is pinned once it has gone") {
  fresh_world const world;
  source_state below, above;
  auto memory = make(source{&below});
  auto host = make(source{&above});
  spiller blocks(memory, host, 0);
  stream const a;
  auto const b = blocks.add(a, 1000, 256);
  std::promise<void> pinning;
  std::thread other;
  above.on_allocate = [&] {
    other = std::thread([&] {
      pinning.set_value();
      spiller::pin const pin(blocks, b, a);
    });
    pinning.get_future().wait();
  };
  spiller::progress seen;
  CHECK(blocks.make_room(a, 1, seen));
  other.join();
  CHECK(blocks.is_on_device(b));
  CHECK(blocks.numbers().returns == 1);
  CHECK(below.live_count == 1);
  CHECK(above.live_count == 0);
  blocks.drop(b);
}
