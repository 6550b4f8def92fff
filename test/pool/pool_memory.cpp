// Shown, trimmed and given back it is tested with `pool` and what asks `pool`; here is what only its parts can be
// asked.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/pool/pool_memory.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "support/captures.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::pool_effort;
using allocator = detail::caching_allocator<source_resource>;

TEST_CASE("growing on demand stays below the limit") {
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{.max_bytes = 1000}, 0);
  CHECK(memory.grow(1000));
  CHECK(memory.numbers().reserved.current == 768);
  memory.count_refusal();
  CHECK(memory.numbers().out_of_memory == 1);
  CHECK(memory.trim(0) == 768);
  state.fail = failing::out_of_memory;
  CHECK_FALSE(memory.grow(256));
}

TEST_CASE("a block whose free nobody could wait for is never had again, and its segment stays where it is") {
  lazy_world const world;
  [[maybe_unused]] static void* volatile kept;  // to the leak check it is still in use
  source_state state;
  source_resource upstream(state);
  {
    allocator memory(upstream, pool{}, 0);
    std::vector<void*> blocks(60);
    for (void*& p : blocks) p = memory.allocate(host_order, 1000, 256, pool_effort::all);
    kept = blocks.back();
    std::vector<std::unique_ptr<destroyable_stream>> streams;
    std::size_t const lists_are_out = sim::calls("cudaStreamSynchronize") + 1;
    for (void* const p : blocks) {
      streams.push_back(std::make_unique<destroyable_stream>());
      REQUIRE(cudaLaunchHostFunc(
                  streams.back()->get(), [](void*) {}, nullptr) == cudaSuccess);
      sim::fail_call("cudaStreamWaitEvent", 1, cudaErrorUnknown);  // else it goes behind a stream of the pool's own
      sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
      sim::fail_call("cudaDeviceSynchronize", 1, cudaErrorUnknown);
      CHECK(memory.deallocate(*streams.back(), p, 1000, 256));
      sim::clear_failure();
      if (sim::calls("cudaStreamSynchronize") == lists_are_out) break;
    }
    REQUIRE(sim::calls("cudaStreamSynchronize") == lists_are_out);
    CHECK(memory.trim(0) == 0);
  }
  CHECK(state.live_count == 1);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("what a pool does not need is told to those that share its upstream, and given to them") {
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{}, 0);
  void* const p = memory.allocate(host_order, 2_MiB, 256, pool_effort::all);
  void* const q = memory.allocate(host_order, 4_MiB, 256, pool_effort::all);
  CHECK(memory.usage().live == 6_MiB);
  CHECK(memory.usage().held == 6_MiB);
  CHECK(memory.deallocate(host_order, q, 4_MiB, 256));
  CHECK(memory.usage().live == 2_MiB);
  CHECK(memory.give_idle(1) == 4_MiB);  // whole segments
  CHECK(memory.usage().held == 2_MiB);
  CHECK(memory.give_idle(1) == 0);
  CHECK(memory.deallocate(host_order, p, 2_MiB, 256));
}

TEST_CASE("what is freed while the pool is parked is the graph's that it is of, or that is being captured") {
  watched_world const world;
  auto memory = make(virtual_memory{} | pool{} | limit{64_MiB});
  auto& kept = find<pool_resource>(memory);
  stream const s, other;
  void* const plain = memory.allocate(s, 2_MiB);
  void* const from_outside = memory.allocate(s, 4_MiB);
  void* of_graph = nullptr;
  std::uint64_t first = 0, second = 0;
  std::optional<captured_graph> graphs[2];
  capture_scope const declared;
  begin_capture(s, cudaStreamCaptureModeThreadLocal);
  first = capture_id(s);
  of_graph = memory.allocate(s, 6_MiB);
  graphs[0].emplace(s);
  kept.park(drop_contents);
  memory.deallocate(s, plain, 2_MiB);
  memory.deallocate(s, of_graph, 6_MiB);
  begin_capture(other, cudaStreamCaptureModeThreadLocal);
  second = capture_id(other);
  memory.deallocate(other, from_outside, 4_MiB);
  graphs[1].emplace(other);
  CHECK(memory.captured() == 10_MiB);
  kept.unpark();
  CHECK(kept.numbers().captured == 10_MiB);
  CHECK(memory.used() == 10_MiB);
  void* const p = memory.allocate(s, 12_MiB);
  for (void* const mine : {of_graph, from_outside}) CHECK((p > mine || static_cast<char*>(p) + 12_MiB <= mine));
  memory.deallocate(s, p, 12_MiB);
  graphs[0].reset();
  CHECK(release_captured(memory, first) == 6_MiB);
  CHECK(memory.used() == 4_MiB);
  graphs[1].reset();
  CHECK(release_captured(memory, second) == 4_MiB);
  CHECK(memory.used() == 0);
}

TEST_CASE("while a capture is declared a pool is not parked before it can wait for what was freed") {
  lazy_world const world;
  auto memory = make(virtual_memory{} | pool{});
  stream const s;
  void* const kept = memory.allocate(s, 4_MiB);
  void* const freed = memory.allocate(s, 4_MiB);
  fill(s, freed, 4_MiB, 1);
  memory.deallocate(s, freed, 4_MiB);
  {
    capture_scope const declared;
    CHECK_THROWS_WITH_AS(memory.park(drop_contents), doctest::Contains("cudaErrorNotReady"), cuda_error);
    CHECK_FALSE(memory.is_parked());
  }
  memory.park(drop_contents);
  CHECK(memory.is_parked());
  memory.unpark();
  memory.deallocate(s, kept, 4_MiB);
}

TEST_CASE("what a graph keeps is captured while its pool is parked, and stays charged to a budget") {
  watched_world const world;
  auto memory = make(virtual_memory{} | pool{} | limit{8_MiB});
  auto& kept = find<pool_resource>(memory);
  stream const s, other;
  std::uint64_t id = 0;
  std::optional<captured_graph> graph;
  {
    capture_scope const declared;
    begin_capture(s, cudaStreamCaptureModeThreadLocal);
    id = capture_id(s);
    memory.deallocate(s, memory.allocate(s, 6_MiB), 6_MiB);
    graph.emplace(s);
  }
  kept.park(drop_contents);
  CHECK(kept.holds_captured(id));
  CHECK(kept.holds_captured(0));
  CHECK_FALSE(kept.holds_captured(id + 1));
  CHECK(kept.numbers().captured == 6_MiB);
  CHECK(kept.numbers().free == 0);
  CHECK(memory.used() == 6_MiB);
  kept.unpark();
  CHECK(memory.captured() == 6_MiB);
  CHECK_THROWS_AS(memory.allocate(other, 4_MiB), out_of_memory);
  graph.reset();
  release_captured(memory, id);
  CHECK(memory.used() == 0);
}
