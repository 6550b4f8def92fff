#include <weir/adaptors/detail/zeroing.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <vector>

using namespace weir;
using namespace weir::test;
using detail::device_zeroing;
using detail::host_zeroing;

namespace {

struct device_bytes {
  explicit device_bytes(int device) {
    device_guard const on_device(device);
    REQUIRE(cudaMalloc(&p, size) == cudaSuccess);
    REQUIRE(cudaMemset(p, 5, size) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  ~device_bytes() { cudaFree(p); }
  /// The simulated runtime's memory is the host's.
  long ones_of(int value) const {
    auto const* const first = static_cast<unsigned char const*>(p);
    return std::count(first, first + size, static_cast<unsigned char>(value));
  }

  static constexpr std::size_t size = 1000;
  void* p = nullptr;
};

}  // namespace

TEST_CASE("device memory is zeroed behind the work of a stream, and no further than it is told to") {
  lazy_world const world;
  device_bytes const memory(0);
  device_zeroing zeroing(0);
  destroyable_stream const s;
  REQUIRE(cudaMemsetAsync(memory.p, 7, 900, s.get()) == cudaSuccess);
  CHECK(zeroing.behind(s, memory.p, 800) == cudaSuccess);
  CHECK(memory.ones_of(0) == 0);
  s.finish();
  CHECK(memory.ones_of(0) == 800);
  CHECK(memory.ones_of(7) == 100);
  CHECK(memory.ones_of(5) == 100);
}

TEST_CASE("at once means done on return, whatever device is current, and the current one stays") {
  lazy_world const world;
  device_bytes const memory(1);
  device_zeroing zeroing(1);
  CHECK(zeroing.at_once(memory.p, memory.size) == cudaSuccess);
  CHECK(memory.ones_of(0) == static_cast<long>(memory.size));
  CHECK(current_device() == 0);
}

TEST_CASE("what would break a capture is not called") {
  fresh_world const world;
  device_bytes const memory(0);
  device_zeroing zeroing(0);
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(zeroing.behind(cudaStreamLegacy, memory.p, 10) == cudaErrorStreamCaptureImplicit);
  CHECK(zeroing.at_once(memory.p, 10) == cudaSuccess);
  CHECK(memory.ones_of(0) == 10);
  CHECK(host_zeroing(0).behind(blocking, memory.p, 20) == cudaErrorStreamCaptureUnsupported);
  CHECK(memory.ones_of(0) == 10);
  CHECK(sim::captures_invalidated() == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("what CUDA refuses is told") {
  fresh_world const world;
  device_bytes const memory(0);
  device_zeroing zeroing(0);
  for (char const* const call : {"cudaMemsetAsync", "cudaStreamSynchronize"}) {
    sim::fail_call(call, 1, cudaErrorUnknown);
    CHECK(zeroing.at_once(memory.p, 10) == cudaErrorUnknown);
  }
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("host memory is zeroed by the host, once the stream's work is done") {
  lazy_world const world;
  std::vector<unsigned char> bytes(100, 1);
  host_zeroing zeroing(0);
  sim::reset_counters();
  CHECK(zeroing.at_once(bytes.data(), 40) == cudaSuccess);
  CHECK(sim::calls() == 0);
  CHECK(std::count(bytes.begin(), bytes.end(), 0) == 40);
  auto const fill = [](void* to) { std::fill_n(static_cast<unsigned char*>(to), 100, 9); };
  REQUIRE(cudaLaunchHostFunc(cudaStreamPerThread, fill, bytes.data()) == cudaSuccess);
  CHECK(zeroing.behind(cudaStreamPerThread, bytes.data(), 60) == cudaSuccess);
  CHECK(std::count(bytes.begin(), bytes.end(), 0) == 60);
  CHECK(std::count(bytes.begin(), bytes.end(), 9) == 40);
}
