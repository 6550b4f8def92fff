#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>
#include <support/test_source.hpp>

#include <stdexcept>
#include <string>

using namespace weir;
using namespace weir::test;

namespace {

int ask(cudaMemRangeAttribute what, void* p, std::size_t bytes) {
  int answer = 77;
  REQUIRE(cudaMemRangeGetAttribute(&answer, sizeof answer, what, p, bytes) == cudaSuccess);
  return answer;
}
int last_prefetch(void* p, std::size_t bytes) { return ask(cudaMemRangeAttributeLastPrefetchLocation, p, bytes); }

}  // namespace

TEST_CASE("what is allocated is prefetched to the stack's device, in the stream's order") {
  lazy_world const world;
  auto memory = make(managed{.device = 1} | pool{} | prefetch{});
  destroyable_stream const s;
  void* const p = memory.allocate(s, 1000);
  CHECK(last_prefetch(p, 1000) == cudaInvalidDeviceId);
  s.finish();
  CHECK(last_prefetch(p, 1000) == 1);
  CHECK(last_prefetch(p, 1001) == cudaInvalidDeviceId);
  memory.deallocate(s, p, 1000);
  CHECK(memory.hints().hints == 1);
  CHECK(memory.hints().refused == 0);
}

TEST_CASE("in host order nobody waits for the prefetch") {
  lazy_world const world;
  auto memory = make(managed{} | prefetch{.device = 1});
  sim::reset_counters();
  void* const p = memory.allocate(host_order, 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  CHECK(sim::calls("cudaMemPrefetchAsync") == 1);
  sim::run_all();
  CHECK(last_prefetch(p, 1000) == 1);
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("advice is given where it was asked for") {
  for (bool const with : {false, true}) {
    fresh_world const world;
    auto memory =
        make(managed{} | prefetch{.device = 1, .preferred_location = with, .accessed_by = with, .read_mostly = with});
    void* const p = memory.allocate(cudaStreamPerThread, 1000);
    CHECK(ask(cudaMemRangeAttributePreferredLocation, p, 1000) == (with ? 1 : cudaInvalidDeviceId));
    CHECK(ask(cudaMemRangeAttributeReadMostly, p, 1000) == (with ? 1 : 0));
    CHECK(ask(cudaMemRangeAttributeAccessedBy, p, 1000) == (with ? 1 : cudaInvalidDeviceId));
    CHECK(memory.hints().hints == (with ? 4 : 1));
    CHECK(memory.hints().refused == 0);
    memory.deallocate(cudaStreamPerThread, p, 1000);
  }
}

TEST_CASE("what CUDA refuses is no error, and is counted") {
  fresh_world const world;
  auto on_device = make(async{} | prefetch{.read_mostly = true});
  on_device.deallocate(cudaStreamPerThread, on_device.allocate(cudaStreamPerThread, 1000), 1000);
  CHECK(on_device.hints().refused == 2);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(contains(report_of(on_device).lines(), "2 hints for device 0, of which CUDA refused 2"));

  auto memory = make(managed{} | prefetch{});
  for (char const* const call : {"cudaMemPrefetchAsync", "cudaStreamIsCapturing"}) {
    sim::fail_call(call, 1, cudaErrorUnknown);
    void* const p = memory.allocate(destroyable_stream(), 1000);
    CHECK(p != nullptr);
    memory.deallocate(host_order, p, 1000);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("memory that no device reaches passes without a call") {
  fresh_world const world;
  sim::reset_counters();
  auto memory = make(host{} | prefetch{.read_mostly = true});
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls() == 0);
  CHECK(memory.hints().hints == 0);
}

TEST_CASE("a capture is neither prefetched in nor broken") {
  for (auto const mode : all_capture_modes) {
    watched_world const world;
    auto memory = make(managed{} | pool{} | prefetch{.preferred_location = true});
    destroyable_stream const s;
    begin_capture(s, mode);
    sim::reset_counters();
    void* const p = memory.allocate(s, 1000);
    CHECK(sim::calls("cudaMemPrefetchAsync") == 0);
    CHECK(sim::calls("cudaMemAdvise") == 0);
    CHECK(is_capturing(s));
    memory.deallocate(s, p, 1000);
    captured_graph const graph(s);
    CHECK(memory.hints().hints == 0);
  }
}

TEST_CASE("it passes on what it stands on, and its errors") {
  source_state state;
  fresh_world const world;
  auto memory = make(source{&state} | prefetch{});
  CHECK(memory.allocate(host_order, 0) == nullptr);
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(host_order, 1000); });
  CHECK(contains(what, "refused by source; chain: prefetch > source"));
  CHECK(contains(what, "0 hints for device 0"));
  CHECK(memory.hints().hints == 0);
  auto budget = make(managed{} | limit{1_MiB} | prefetch{});
  CHECK(taken(budget, 1000, 4096) == 1000 + 4096 - 256);
}

TEST_CASE("a device has to be there") {
  fresh_world const world;
  CHECK(prefetch{.device = -2}.problem() ==
        "prefetch: device is -2; it must be at least -1, which is the stack's device");
  CHECK_THROWS_WITH_AS(static_cast<void>(make(managed{} | prefetch{.device = 2})),
                       "weir: prefetch: there is no device 2; this process sees 2, numbered from 0",
                       std::invalid_argument);
}
