// What a pool gives back by itself: with more held than its threshold, every segment that is known to be idle.
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "support/captures.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

/// A pool whose only segment holds a block of each of two streams, both at work.
struct two_streams_in_a_segment {
  lazy_world const world;
  source_state state;
  pool_resource<source_resource> memory{source{&state}, pool{.growth_bytes = 2_MiB, .release_threshold = 0}};
  destroyable_stream const a, b;
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(b, 1_MiB);

  two_streams_in_a_segment() {
    for (destroyable_stream const* s : {&a, &b})
      REQUIRE(cudaLaunchHostFunc(
                  s->get(), [](void*) {}, nullptr) == cudaSuccess);
  }
  void free_both() {
    memory.deallocate(a, p, 1_MiB);
    memory.deallocate(b, q, 1_MiB);
  }
};

}  // namespace

TEST_CASE_FIXTURE(two_streams_in_a_segment, "a segment goes back with its last free, whoever freed the rest") {
  sim::set_mode(sim::mode::immediate);
  free_both();
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(two_streams_in_a_segment, "a segment whose work goes on is given back by a free after that") {
  void* const other = memory.allocate(host_order, 2_MiB);
  void* const small = memory.allocate(host_order, 256);
  free_both();
  CHECK(memory.numbers().releases == 0);
  a.finish();
  b.finish();
  memory.deallocate(host_order, small, 256);
  CHECK(memory.numbers().releases == 2);
  memory.deallocate(host_order, other, 2_MiB);
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(two_streams_in_a_segment, "or by an allocation that asks what is done") {
  free_both();
  a.finish();
  b.finish();
  void* const large = memory.allocate(host_order, 3_MiB);
  CHECK(memory.numbers().reserved.current == 4_MiB);
  memory.deallocate(host_order, large, 3_MiB);
}

TEST_CASE_FIXTURE(two_streams_in_a_segment, "or when the pool waits for it") {
  free_both();
  memory.synchronize();
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(two_streams_in_a_segment, "trim keeps no more than the threshold") {
  free_both();
  a.finish();
  b.finish();
  CHECK(memory.trim(1_GiB) == 2_MiB);
}

TEST_CASE("a segment of a capture goes back when that is released") {
  watched_world const world;
  auto memory = make(device{} | pool{.release_threshold = 0});
  destroyable_stream const s;
  begin_capture(s);
  memory.deallocate(s, memory.allocate(s, 1000), 1000);
  captured_graph const never_launched(s);
  CHECK(memory.numbers().captured == 1024);
  memory.release_captured();
  CHECK(memory.numbers().reserved.current == 0);
}

TEST_CASE("while no segment can be idle, a free asks CUDA nothing") {
  lazy_world const world;
  source_state state;
  auto memory = make(source{&state} | pool{.release_threshold = 0});
  weir::stream const a, b;
  void* const kept = memory.allocate(a, 1000);
  void* const p = memory.allocate(b, 1000);
  sim::reset_counters();
  memory.deallocate(b, p, 1000);
  CHECK(sim::calls() == 0);
  memory.deallocate(a, kept, 1000);
}

TEST_CASE("whatever streams free, nothing is left to trim where all work is done at once") {
  sim::reset();
  for (std::size_t const threshold : {std::size_t{0}, 3_MiB}) {
    source_state state;
    auto memory = make(source{&state} | pool{.growth_bytes = 512_KiB, .release_threshold = threshold});
    destroyable_stream const streams[4];
    std::vector<std::pair<void*, std::size_t>> live;
    std::mt19937 random(7);
    for (int step = 0; step < 3000; ++step) {
      stream_ref const stream = streams[random() % 4];
      bool const grows = step / 300 % 2 == 0;
      if (live.empty() || random() % 4 < (grows ? 3 : 1)) {
        std::size_t const bytes = 1 + random() % 300'000;
        live.emplace_back(memory.allocate(stream, bytes), bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        memory.deallocate(stream, live.back().first, live.back().second);
        live.pop_back();
      }
      REQUIRE(memory.trim(threshold) == 0);
    }
    CHECK(memory.numbers().releases > 20);
    for (auto const& [p, bytes] : live) memory.deallocate(host_order, p, bytes);
  }
}

namespace {

/// A pool with an idle segment of 24 MiB, and one of 32 MiB of a stream that is still at work on it.
struct idle_and_pending {
  explicit idle_and_pending(pool const& options) : memory(source{&state}, options) {
    void* const p = memory.allocate(a, 32_MiB);
    void* const q = memory.allocate(host_order, 24_MiB);
    REQUIRE(cudaLaunchHostFunc(
                a.get(), [](void*) {}, nullptr) == cudaSuccess);
    memory.deallocate(a, p, 32_MiB);
    memory.deallocate(host_order, q, 24_MiB);
  }

  lazy_world const world;
  source_state state;
  pool_resource<source_resource> memory;
  destroyable_stream const a, b;
};

}  // namespace

TEST_CASE("before it holds too much, a pool gives back what is idle, and nothing that work may still use") {
  idle_and_pending s({});
  void* const large = s.memory.allocate(s.b, 40_MiB);
  CHECK(s.memory.numbers().releases == 1);
  CHECK(s.memory.numbers().pending == 32_MiB);
  CHECK(s.memory.numbers().reserved.current == 72_MiB);
  s.memory.deallocate(s.b, large, 40_MiB);
}

TEST_CASE("a wide max_waste keeps idle segments") {
  idle_and_pending s({.max_waste = 1});
  void* const large = s.memory.allocate(s.b, 40_MiB);
  CHECK(s.memory.numbers().releases == 0);
  s.memory.deallocate(s.b, large, 40_MiB);
}

TEST_CASE("idle segments go before a stream is made to wait") {
  idle_and_pending s({.max_bytes = 64_MiB, .max_waste = 1});
  void* const p = s.memory.allocate(s.b, 30_MiB);
  CHECK(s.memory.numbers().waits == 0);
  CHECK(s.memory.numbers().releases == 1);
  s.memory.deallocate(s.b, p, 30_MiB);
}
