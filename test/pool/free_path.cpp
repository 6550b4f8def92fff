// The frees of a caching allocator; those of `pool` and `arena` are tested there.
#include <weir/pool/free_path.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

#include "support/captures.hpp"
#include "support/small_blocks.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::pool_effort;
using allocator = detail::caching_allocator<source_resource>;

TEST_CASE("a deallocation that is wrong changes nothing, and can be explained") {
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{}, 0);
  void* const p = memory.allocate(host_order, 100, 256, pool_effort::all);
  CHECK_FALSE(memory.deallocate(host_order, p, 101, 256));
  CHECK(contains(memory.misuse(p, 101, 256), "allocated with 100 B"));
  CHECK_FALSE(memory.deallocate(host_order, &state, 100, 256));
  CHECK(contains(memory.misuse(&state, 100, 256), "not this pool's memory"));
  CHECK(memory.numbers().requested.current == 100);
  CHECK(memory.deallocate(host_order, p, 100, 256));
  CHECK(contains(memory.misuse(p, 100, 256), "freed twice"));
}

TEST_CASE("a wrong free of a slot changes nothing, and is told in words") {
  small_blocks s;
  std::vector<void*> const blocks = s.take(s.a, 1000, 1000);
  std::size_t const before = s.memory.numbers().allocated.current;
  auto const told = [&](void* p, std::size_t bytes, std::size_t alignment) {
    CHECK_FALSE(s.memory.deallocate(s.a, p, bytes, alignment));
    CHECK_FALSE(s.memory.deallocate_after(s.a, std::vector<stream_ref>{s.b}, p, bytes, alignment));
    CHECK(s.memory.numbers().allocated.current == before);
    return s.memory.misuse(p, bytes, alignment);
  };
  for (void* const p : blocks) {
    CHECK(contains(told(p, 999, 256), "allocated with 1000 B aligned to 256"));
    CHECK(contains(told(p, 1000, 128), "allocated with 1000 B aligned to 256"));
  }
  void* const p = blocks[500];
  for (std::size_t const alignment : {std::size_t{0}, std::size_t{3}, std::size_t{512}, std::size_t{1} << 40})
    CHECK(contains(told(p, 1000, alignment), "allocated with 1000 B aligned to 256"));
  for (std::size_t const bytes : {std::size_t{0}, 1024ul, 1_MiB, ~std::size_t{0}})
    CHECK(contains(told(p, bytes, 256), "allocated with 1000 B"));
  CHECK(contains(told(static_cast<std::byte*>(p) + 256, 1000, 256), "no live block starts there"));
  CHECK(contains(told(static_cast<std::byte*>(p) + 1, 1000, 256), "no live block starts there"));
  CHECK(contains(told(&s, 1000, 256), "not this pool's memory"));
  s.check_books();
  s.give(s.a, blocks, 1000);
  CHECK_FALSE(s.memory.deallocate(s.a, p, 1000, 256));
}

TEST_CASE_FIXTURE(small_blocks, "a slot that is freed twice is told so, whichever slot it is and whoever has it") {
  std::vector<void*> const blocks = take(a, 1024, 600);
  give(b, blocks[450]);
  for (std::size_t i = 0; i < 400; ++i) give(a, blocks[i]);
  auto const twice = [&](void* p) {
    CHECK_FALSE(memory.find_block(p));
    for (std::size_t const bytes : {std::size_t{0}, std::size_t{1024}})
      for (std::size_t const alignment : {std::size_t{1}, std::size_t{256}}) {
        CHECK_FALSE(memory.deallocate(a, p, bytes, alignment));
        CHECK(contains(memory.misuse(p, bytes, alignment), "freed twice"));
      }
  };
  twice(blocks[450]);
  for (std::size_t i = 0; i < 400; ++i) twice(blocks[i]);
  check_books();
}

TEST_CASE_FIXTURE(small_blocks, "a block that is kept at hand is freed, to whoever frees it again or looks") {
  std::vector<void*> const blocks = take(a, 200'000, 3);
  give(a, blocks[1], 200'000);
  CHECK_FALSE(memory.find_block(blocks[1]));
  CHECK_FALSE(memory.deallocate(a, blocks[1], 200'000, 256));
  CHECK(contains(memory.misuse(blocks[1], 200'000, 256), "freed twice"));
  CHECK(take(a, 200'000) == blocks[1]);
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed on another stream is its owner's when that work is done, not before") {
  void* const x = take(a, 1024, 1000)[700];
  work(b);
  give(b, x);
  look();
  CHECK(memory.numbers().pending >= 1024);
  CHECK_FALSE(gets(a, x));
  finish(b);
  look();
  CHECK(gets(a, x));
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed by a stream that ends is its owner's when that work is done") {
  void* const x = take(a, 1024, 1000)[700];
  {
    destroyable_stream const other;
    work(other);
    give(other, x);
    look();
    CHECK_FALSE(gets(a, x));
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  look();
  CHECK(gets(a, x));
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed in host order is its owner's at once") {
  void* const x = take(a, 1024, 1000)[700];
  give(host_order, x);
  CHECK(take(a) == x);
}

TEST_CASE("where memory is short, a slot freed on another stream is that stream's") {
  small_blocks s({.max_bytes = 2_MiB});
  std::vector<void*> const blocks = s.take(s.a, 1024, 2000);
  REQUIRE(s.memory.snapshot().blocks < 1500);
  while (s.memory.snapshot().largest_free != 0) REQUIRE(s.take(s.mortal, 256) != nullptr);
  for (stream_ref const other : {stream_ref(s.b), stream_ref(s.mortal)}) {
    void* const x = blocks[other == stream_ref(s.b) ? 800 : 1000];
    s.work(other);
    s.give(other, x);
    sim::reset_counters();
    CHECK(s.take(other) == x);
    CHECK(sim::calls("cudaStreamWaitEvent") == 0);
    CHECK(s.memory.numbers().synchronizations == 0);
  }
}

TEST_CASE("a segment goes back with its last slot, also where other slabs of its size stay") {
  small_blocks s({.growth_bytes = 256_KiB, .release_threshold = 0});
  sim::set_mode(sim::mode::immediate);
  std::vector<void*> const kept = s.take(s.a, 1024, 300);
  s.give(s.a, kept.front());  // its slab has a free slot
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<void*> others = s.take(s.a, 1024, 400);
    std::shuffle(others.begin(), others.end(), random);
    for (void* const p : others) {
      REQUIRE(s.memory.deallocate(s.a, p, 1024, 256));
      REQUIRE(s.memory.trim(0) == 0);
    }
  }
  s.give(s.a, {kept.begin() + 1, kept.end()});
  CHECK(s.state.live_bytes == 0);
}

TEST_CASE("above the threshold nothing idle is held, whoever frees what small blocks where") {
  for (std::size_t const threshold : {std::size_t{0}, 3_MiB}) {
    CAPTURE(threshold);
    small_blocks s({.growth_bytes = 512_KiB, .release_threshold = threshold});
    sim::set_mode(sim::mode::immediate);
    stream_ref const streams[] = {s.a, s.b, s.mortal, host_order};
    std::size_t const sizes[] = {1024, 10'000, 60'000, 150'000};
    std::vector<std::pair<void*, std::size_t>> live;
    std::mt19937 random(11);
    for (int step = 0; step < 1500; ++step) {
      CAPTURE(step);
      bool const grows = step / 250 % 2 == 0;
      if (live.empty() || random() % 8 < (grows ? 7 : 1)) {
        std::size_t const bytes = sizes[random() % 4];
        live.emplace_back(s.memory.allocate(streams[random() % 3], bytes, 256, pool_effort::all), bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        s.memory.deallocate(streams[random() % 4], live.back().first, live.back().second, 256);
        live.pop_back();
      }
      REQUIRE(s.memory.trim(threshold) == 0);
    }
    s.check_books();
    CHECK(s.memory.numbers().releases > 0);
    for (auto const& [p, bytes] : live) s.memory.deallocate(host_order, p, bytes, 256);
    CHECK(s.state.live_bytes <= threshold);
  }
}

TEST_CASE_FIXTURE(small_blocks, "a slot that several streams used is its owner's after the work of all") {
  std::vector<void*> const blocks = take(a, 1024, 1000);
  auto const give_after = [&](stream_ref stream, std::vector<stream_ref> const& others, void* p) {
    REQUIRE(memory.deallocate_after(stream, others, p, 1024, 256));
    check_books();
  };
  give_after(a, {}, blocks[600]);
  CHECK(take(a) == blocks[600]);
  give_after(a, {a}, blocks[600]);
  CHECK(take(a) == blocks[600]);
  give_after(host_order, {}, blocks[600]);
  CHECK(take(a) == blocks[600]);
  work(b);
  give_after(a, {b}, blocks[700]);
  work(mortal);
  give_after(b, {mortal}, blocks[701]);  // of the same slab, most likely
  look();
  auto const a_gets = [&](void* wanted) { return gets(a, wanted, 1024, 1000); };  // slabs may have so many slots free
  CHECK_FALSE(a_gets(blocks[700]));
  CHECK_FALSE(a_gets(blocks[701]));
  finish(a);
  finish(b);
  look();
  CHECK(a_gets(blocks[700]));
  finish(mortal);
  look();
  memory.synchronize();
  CHECK(memory.numbers().pending == 0);
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed in a capture is the capture's until that is released") {
  std::vector<void*> const blocks = take(a, 1024, 1000);
  begin_capture(mortal);
  give(mortal, blocks[700]);
  CHECK(memory.numbers().captured == 1024);
  CHECK_FALSE(gets(a, blocks[700]));
  void* const again = memory.allocate(mortal, 1024, 256, pool_effort::all);
  CHECK(again != blocks[700]);  // it was not the capture's before
  CHECK(memory.deallocate(mortal, again, 1024, 256));
  { captured_graph const graph(mortal); }
  CHECK_FALSE(gets(a, blocks[700]));
  CHECK(memory.release_captured(0) == 2048);
  CHECK(memory.numbers().captured == 0);
  give(a, blocks[699]);
  give(a, blocks[701]);
  check_books();
  CHECK(sim::captures_invalidated() == 0);
}

TEST_CASE_FIXTURE(small_blocks, "a slot that a stream in a capture used is that capture's") {
  std::vector<void*> const blocks = take(a, 1024, 1000);
  begin_capture(mortal);
  REQUIRE(memory.deallocate_after(a, std::vector<stream_ref>{mortal}, blocks[700], 1024, 256));
  check_books();
  CHECK(memory.numbers().captured == 1024);
  REQUIRE(memory.deallocate_after(mortal, std::vector<stream_ref>{a}, blocks[500], 1024, 256));
  check_books();
  CHECK(memory.numbers().captured == 2048);
  { captured_graph const graph(mortal); }
  CHECK_FALSE(gets(a, blocks[700]));
  CHECK(memory.release_captured(0) == 2048);
  check_books();
  CHECK(sim::captures_invalidated() == 0);
}
