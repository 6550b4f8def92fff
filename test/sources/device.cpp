#include <weir/sources/device.hpp>

#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

using namespace weir;

static_assert(recipe<weir::device> && resource<device_resource>);
static_assert(device_accessible<device_resource> && !host_accessible<device_resource> && host_ordered<device_resource>);

TEST_CASE("a free on a stream that captures breaks nothing, even if CUDA does not say that it captures") {
  weir::test::fresh_world const world;
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

TEST_CASE("peers use its memory only if they are asked in; to ask twice is no error") {
  weir::test::fresh_world const world;
  sim::check_access(true);
  auto memory = make(weir::device{.device = 1});
  void* const p = memory.allocate(host_order, 1000);
  weir::stream const near;
  auto const touch = [&] { sim::touch(near.get(), p, 1000, sim::access::write); };
  CHECK_THROWS_AS(touch(), std::invalid_argument);
  auto const open = make(weir::device{.device = 1, .peers = true});
  CHECK_NOTHROW(touch());
  CHECK(sim::calls("cudaDeviceEnablePeerAccess") == 1);
  CHECK_NOTHROW(static_cast<void>(make(weir::device{.device = 1, .peers = true})));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(current_device() == 0);
  near.synchronize();
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("devices that cannot reach it are not let in, and that is no error") {
  weir::test::fresh_world const world;
  sim::set_peers(false);
  auto memory = make(weir::device{.peers = true});
  CHECK(sim::calls("cudaDeviceEnablePeerAccess") == 0);
}

TEST_CASE("each CUDA call on the way to a source with peers may fail; the device that was current is so again") {
  weir::test::fresh_world const world;
  for (std::uint64_t k = 1;; ++k) {
    sim::fail_call(k, cudaErrorUnknown);
    try {
      auto const memory = make(weir::device{.peers = true});
      CHECK(k > 5);
      break;
    } catch (cuda_error const&) {
      sim::clear_failure();
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      CHECK(current_device() == 0);
    }
  }
}

TEST_CASE("a block costs one call, and its end another") {
  weir::test::fresh_world const world;
  auto memory = make(device{});
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls("cudaMalloc") == 1);
  CHECK(sim::calls("cudaFree") == 1);
}

TEST_CASE("if neither the stream nor its device can be waited for, the memory is kept") {
  weir::test::fresh_world const world;
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
  weir::test::fresh_world const world;
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
  weir::test::fresh_world const world;
  auto memory = make(device{});
  sim::fail_call(1, cudaErrorUnknown);
  CHECK(report_of(memory).lines().find("its memory could not be asked for") != std::string::npos);
}

TEST_CASE("a request that only fits without the room to align it is told to ask for less") {
  weir::test::fresh_world const world;
  sim::set_capacity(0, 8_MiB);
  auto memory = make(device{});
  try {
    memory.allocate(host_order, 8_MiB, 2_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.hint()).find("is larger than all memory of device 0 (8.00 MiB)") != std::string::npos);
  }
}
