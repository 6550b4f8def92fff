#include <weir/sources/device.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;

static_assert(recipe<weir::device> && resource<device_resource>);
static_assert(device_accessible<device_resource> && !host_accessible<device_resource> && host_ordered<device_resource>);

TEST_CASE("memory is of the device named, or of the one current at make, and the current one stays") {
  sim::reset();
  auto named = make(device{.device = 1});
  auto current = make(device{});
  device_guard const on_other(1);
  void* const p = named.allocate(host_order, 1_MiB);
  void* const q = current.allocate(host_order, 2_MiB);
  CHECK(sim::live_bytes(0) == 2_MiB);
  CHECK(sim::live_bytes(1) == 1_MiB);
  CHECK(current_device() == 1);
  named.deallocate(host_order, p, 1_MiB);
  current.deallocate(host_order, q, 2_MiB);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("memory freed on a stream is not given back before the stream's work is done") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  auto memory = make(device{});
  bool done = false;
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  REQUIRE(cudaLaunchHostFunc(
              cudaStreamPerThread, [](void* f) { *static_cast<bool*>(f) = true; }, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
  CHECK(sim::live_allocations() == 0);
  sim::reset();
}

TEST_CASE("a free on a stream that captures breaks nothing, even if CUDA does not say that it captures") {
  sim::reset();
  auto memory = make(device{});
  void* const p = memory.allocate(host_order, 1000);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  sim::fail_call("cudaStreamIsCapturing", 1, cudaErrorUnknown);
  memory.deallocate(stream, p, 1000);
  CHECK(sim::captures_invalidated() == 0);
  sim::fail_call("cudaStreamIsCapturing", 1, cudaErrorUnknown);
  sim::fail_call(2, cudaErrorUnknown);  // when it is asked again
  memory.deallocate(stream, p, 1000);
  CHECK(sim::captures_invalidated() == 0);
  CHECK(sim::live_allocations() == 1);  // the graph may use it
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("in host order nothing waits") {
  sim::reset();
  auto memory = make(device{});
  sim::reset_counters();
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  CHECK(sim::calls("cudaMalloc") == 1);
  CHECK(sim::calls("cudaFree") == 1);
}

TEST_CASE("if neither the stream nor its device can be waited for, the memory is kept") {
  sim::reset();
  auto memory = make(device{});
  void* const p = memory.allocate(host_order, 1000);
  cudaStream_t dead = nullptr;
  REQUIRE(cudaStreamCreate(&dead) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(dead) == cudaSuccess);
  sim::fail_call(5, cudaErrorUnknown);  // after all that asks for the stream, asking for its device
  memory.deallocate(dead, p, 1000);
  CHECK(sim::live_allocations() == 1);
  memory.deallocate(dead, p, 1000);  // now its device can
  CHECK(sim::live_allocations() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("out of memory says what the device has") {
  sim::reset();
  sim::set_capacity(0, 4_MiB);
  auto memory = make(device{});
  void* const p = memory.allocate(host_order, 3_MiB);
  try {
    memory.allocate(cudaStreamPerThread, 2_MiB + 1);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(error.bytes() == 2_MiB + 1);
    CHECK(error.request().rounded == 2_MiB + 256);
    CHECK(error.request().stream == stream_ref(cudaStreamPerThread));
    CHECK(std::string(error.what()).find("chain: device(0)") != std::string::npos);
    CHECK(std::string(error.what()).find("device 0: 1.00 MiB free of 4.00 MiB") != std::string::npos);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  memory.deallocate(host_order, p, 3_MiB);
}

TEST_CASE("a report is made even if CUDA does not answer") {
  sim::reset();
  auto memory = make(device{});
  sim::fail_call(1, cudaErrorUnknown);
  CHECK(report_of(memory).lines().find("its memory could not be asked for") != std::string::npos);
}

TEST_CASE("a device that is not there is refused with words") {
  sim::reset();
  CHECK_THROWS_WITH_AS(static_cast<void>(make(device{.device = 2})),
                       "weir: device: there is no device 2; this process sees 2, numbered from 0",
                       std::invalid_argument);
  CHECK(!device{.device = -5}.valid());
  CHECK(device{.device = 0}.valid());
}
