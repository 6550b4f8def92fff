// What stands on a segment pool is tested with `pool`, `pool_streams` and `arena`; here is what only they ask of it.
#include <weir/pool/caching_allocator.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::pool_effort;
using segments = detail::caching_allocator<source_resource>;

TEST_CASE("a request goes no further than it may") {
  lazy_world const world;
  source_state state;
  source_resource upstream(state);
  segments memory(upstream, pool{.max_bytes = 2_MiB}, 0);
  destroyable_stream const s, t;
  CHECK(memory.allocate(s, 1000, 256, pool_effort::reuse) == nullptr);
  CHECK(state.calls == 0);
  void* const p = memory.allocate(s, 2_MiB, 256, pool_effort::grow);
  REQUIRE(p != nullptr);
  CHECK(memory.allocate(s, 1000, 256, pool_effort::all) == nullptr);
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void*) {}, nullptr) == cudaSuccess);
  CHECK(memory.deallocate(s, p, 2_MiB, 256));
  CHECK(memory.allocate(host_order, 2_MiB, 256, pool_effort::grow) == nullptr);  // that would make the host wait
  CHECK(memory.allocate(t, 2_MiB, 256, pool_effort::reuse) == p);                // a wait between streams is reuse
  CHECK(memory.numbers().waits == 1);
  CHECK(memory.deallocate(t, p, 2_MiB, 256));
  CHECK(memory.allocate(host_order, 2_MiB, 256, pool_effort::all) == p);
  CHECK(memory.deallocate(host_order, p, 2_MiB, 256));
}

TEST_CASE("a block may be larger than the request, which is what counts as requested") {
  source_state state;
  source_resource upstream(state);
  segments memory(upstream, pool{}, 0);
  void* const p = memory.allocate(host_order, 100, 256, pool_effort::all, 4096);
  CHECK(memory.numbers().requested.current == 100);
  CHECK(memory.numbers().allocated.current == 4096);
  CHECK_FALSE(memory.deallocate(host_order, p, 4096, 256));
  CHECK(memory.deallocate(host_order, p, 100, 256));
}

TEST_CASE("a deallocation that is wrong changes nothing, and can be explained") {
  source_state state;
  source_resource upstream(state);
  segments memory(upstream, pool{}, 0);
  void* const p = memory.allocate(host_order, 100, 256, pool_effort::all);
  CHECK_FALSE(memory.deallocate(host_order, p, 101, 256));
  CHECK(contains(memory.misuse(p, 101, 256), "allocated with 100 B"));
  CHECK_FALSE(memory.deallocate(host_order, &state, 100, 256));
  CHECK(contains(memory.misuse(&state, 100, 256), "not this pool's memory"));
  CHECK(memory.numbers().requested.current == 100);
  CHECK(memory.deallocate(host_order, p, 100, 256));
  CHECK(contains(memory.misuse(p, 100, 256), "freed twice"));
}

TEST_CASE("growing on demand stays below the limit") {
  source_state state;
  source_resource upstream(state);
  segments memory(upstream, pool{.max_bytes = 1000}, 0);
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
    segments memory(upstream, pool{}, 0);
    std::vector<void*> blocks(60);
    for (void*& p : blocks) p = memory.allocate(host_order, 1000, 256, pool_effort::all);
    kept = blocks.back();
    std::vector<std::unique_ptr<destroyable_stream>> streams;
    std::size_t const lists_are_out = sim::calls("cudaStreamSynchronize") + 1;
    for (void* const p : blocks) {
      streams.push_back(std::make_unique<destroyable_stream>());
      REQUIRE(cudaLaunchHostFunc(
                  streams.back()->get(), [](void*) {}, nullptr) == cudaSuccess);
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
