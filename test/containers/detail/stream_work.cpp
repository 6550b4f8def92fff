#include <weir/containers/detail/stream_work.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <stdexcept>
#include <support/captures.hpp>

using namespace weir;
using detail::stream_work;

namespace {

int device_in(auto const& call) {
  int device = -1;
  call([&] { device = current_device(); });
  return device;
}

}  // namespace

TEST_CASE("the device is made current only for default streams, and for memory that does not say its own") {
  test::fresh_world const world;
  auto memory = make(device{.device = 1});
  auto unsaid = make(host{});
  stream const s;
  for (stream_ref const order : {stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread), stream_ref(s)}) {
    stream_work const work(order, memory);
    CHECK(work.device() == 1);
    int const expected = order == stream_ref(s) ? 0 : 1;
    CHECK(device_in([&](auto const& f) { work.at_home(f); }) == expected);
    CHECK(device_in([&](auto const& f) { work.free_at_home(f); }) == expected);
    CHECK(current_device() == 0);
  }
  sim::reset_counters();
  stream_work const on_stream(s, memory);
  on_stream.at_home([] {});
  on_stream.free_at_home([] {});
  CHECK(sim::calls() == 0);

  cudaSetDevice(1);
  stream_work const work(s, unsaid);
  cudaSetDevice(0);
  CHECK(work.device() == 1);
  CHECK(device_in([&](auto const& f) { work.at_home(f); }) == 1);
}

TEST_CASE("a free on a default stream is its device's, though making that current fails once") {
  test::fresh_world const world;
  auto memory = make(device{.device = 1});
  stream_work const work(cudaStreamLegacy, memory);
  for (char const* const call : {"cudaGetDevice", "cudaSetDevice"}) {
    CAPTURE(call);
    sim::fail_call(call, 1, cudaErrorUnknown);
    CHECK(device_in([&](auto const& f) { work.free_at_home(f); }) == 1);
    CHECK(current_device() == 0);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("work on the own stream needs no event; work on another is ordered both ways") {
  test::fresh_world const world;
  auto memory = make(device{});
  stream const s, t;
  stream_work const work(s, memory);
  sim::reset_counters();
  int called = 0;
  work.on(s, [&] { ++called; });
  CHECK(sim::calls() == 0);
  work.on(t, [&] {
    ++called;
    CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  });
  CHECK(sim::calls("cudaStreamWaitEvent") == 2);
  CHECK(sim::calls("cudaEventRecord") == 2);
  CHECK(called == 2);
  CHECK(sim::live_handles() == 2);  // the streams
}

TEST_CASE("where the order after work on another stream cannot be made, the host waits for that work") {
  test::fresh_world const world(sim::mode::lazy);
  auto memory = make(device{});
  stream const s, t;
  stream_work const work(s, memory);
  void* const p = memory.allocate(s, 8);
  sim::fail_call("cudaStreamWaitEvent", 2, cudaErrorUnknown);
  CHECK_THROWS_AS(work.on(t, [&] { CHECK(cudaMemsetAsync(p, 0, 8, t.get()) == cudaSuccess); }), cuda_error);
  CHECK(cudaStreamQuery(t.get()) == cudaSuccess);
  memory.deallocate(s, p, 8);
}

#if CUDART_VERSION >= 12080  // which can say whose a stream is
TEST_CASE("a stream of another device than the memory's is named with both devices") {
  test::fresh_world const world;
  auto memory = make(device{});
  std::optional<stream> first, second;
  first.emplace();
  {
    device_guard const on_second(1);
    second.emplace();
  }
  stream_work const work(*first, memory);
  CHECK_THROWS_WITH_AS(
      work.on(*second, [] {}),
      doctest::Contains("a container's work on a stream of device 1 for memory of device 0 (its streams have to be of "
                        "the memory's device) failed: cudaErrorInvalidResourceHandle"),
      cuda_error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  sim::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
  CHECK_THROWS_WITH_AS(work.on(*second, [] {}), doctest::Contains("cudaEventRecord failed: cudaErrorUnknown"),
                       cuda_error);
}
#endif

TEST_CASE("a wait that would break a capture is refused before anything is queued") {
  test::watched_world const world;
  auto memory = make(device{});
  stream const s;
  stream_work const work(s, memory);
  test::begin_capture(s);
  bool called = false;
  CHECK_THROWS_AS(work.wait_on(s, [&] { called = true; }), cuda_error);
  CHECK(!called);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(s.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a stream that joined a capture comes back to it though what was to be done there throws") {
  test::watched_world const world;
  auto memory = make(device{});
  stream const s, t;
  stream_work const work(s, memory);
  void* const p = memory.allocate(s, 8);
  test::begin_capture(s);
  CHECK_THROWS_AS(work.on(t,
                          [&] {
                            REQUIRE(cudaMemsetAsync(p, 0, 8, t.get()) == cudaSuccess);
                            throw std::logic_error("no more");
                          }),
                  std::logic_error);
  test::end_capture(s);
  memory.deallocate(s, p, 8);
}

TEST_CASE("a move to another stream orders it, if there is memory to use") {
  test::fresh_world const world;
  auto memory = make(device{});
  stream const s, t;
  stream_work work(s, memory);
  sim::reset_counters();
  work.move_to(t, false);
  CHECK(sim::calls() == 0);
  CHECK(work.stream() == stream_ref(t));
  work.move_to(s, true);
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  CHECK_THROWS_AS(work.move_to(host_order, true), std::invalid_argument);
  CHECK(work.stream() == stream_ref(s));
}
