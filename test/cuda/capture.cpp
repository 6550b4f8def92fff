// needs: tsan
#include <weir/cuda/capture.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

using namespace weir;
using weir::test::fresh_world;

namespace {

/// A stream that captures until the end of the scope.
struct capturing : weir::stream {
  explicit capturing(kind k = kind::non_blocking) : weir::stream(k) {
    REQUIRE(cudaStreamBeginCapture(get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  }
  ~capturing() {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(get(), &graph);
    cudaGraphDestroy(graph);
  }
};

cudaError_t try_allocation() {
  void* p = nullptr;
  cudaError_t const code = cudaMalloc(&p, 64);
  if (code == cudaSuccess) detail::relaxed([p] { return cudaFree(p); });
  return code;
}

}  // namespace

TEST_CASE("a capture has an id, and a stream that captures nothing has 0") {
  fresh_world const world;
  weir::stream const s;
  CHECK(capture_id(s) == 0);
  std::uint64_t first = 0;
  {
    capturing const c;
    first = capture_id(c);
    CHECK(first != 0);
    CHECK(capture_id(c) == first);
    CHECK(capture_id(s) == 0);
  }
  capturing const c;
  CHECK(capture_id(c) != first);
  CHECK(capture_id(c) != 0);
}

TEST_CASE("the legacy stream and the host's order are in no capture, and are not asked") {
  fresh_world const world;
  capturing const c(weir::stream::kind::blocking);
  sim::reset_counters();
  CHECK(capture_id(cudaStreamLegacy) == 0);
  CHECK(capture_id(host_order) == 0);
  CHECK(sim::calls() == 0);
}

TEST_CASE("a broken capture has no id, but is told from none") {
  fresh_world const world;
  capturing const c;
  cudaStreamSynchronize(c.get());
  CHECK(capture_id(c) == 0);
  std::uint64_t id = 0;
  CHECK(detail::capture_of(c.get(), id) == cudaSuccess);
  CHECK(id == detail::invalidated_capture);
}

TEST_CASE("what is no stream is an error, and leaves none behind") {
  fresh_world const world;
  int nothing = 0;
  auto const nobody = reinterpret_cast<cudaStream_t>(&nothing);
  CHECK_THROWS_AS(capture_id(nobody), cuda_error);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_FALSE(detail::may_break_capture(nobody));
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a call may break a capture on the stream that it names, or through the legacy stream") {
  fresh_world const world;
  weir::stream const s;
  {
    capturing const c;
    CHECK(detail::may_break_capture(c.get()));
    CHECK_FALSE(detail::may_break_capture(s.get()));
    CHECK_FALSE(detail::may_break_capture(cudaStreamLegacy));
  }
  capturing const c(weir::stream::kind::blocking);
  CHECK(detail::may_break_capture(cudaStreamLegacy));
  CHECK_FALSE(detail::may_break_capture(s.get()));
  CHECK(sim::captures_invalidated() == 0);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("where CUDA does not say whether a stream captures, a call may break a capture") {
  fresh_world const world;
  weir::stream const s;
  for (cudaError_t const code : {cudaErrorUnknown, cudaErrorMemoryAllocation, cudaErrorNotPermitted}) {
    sim::fail_call(1, code);
    CHECK_FALSE(detail::may_break_capture(s.get()));  // it is asked again
    sim::fail_call(1, code);
    sim::fail_call("cudaStreamIsCapturing", 2, code);
    CHECK(detail::may_break_capture(s.get()));
  }
  CHECK(cudaGetLastError() == cudaSuccess);
  for (cudaError_t const no_cuda : {cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorCudartUnloading}) {
    sim::fail_call("cudaStreamIsCapturing", 1, no_cuda);
    CHECK_FALSE(detail::may_break_capture(s.get()));
  }
}

TEST_CASE("a default stream is asked for as a device's, whichever is current") {
  fresh_world const world;
  capturing const c(weir::stream::kind::blocking);
  for (int const current : {0, 1}) {
    device_guard const on_device(current);
    CHECK(detail::may_break_capture(cudaStreamLegacy, 0));
    CHECK_FALSE(detail::may_break_capture(cudaStreamLegacy, 1));
    CHECK_FALSE(detail::may_break_capture(cudaStreamPerThread, 0));
    CHECK(detail::may_break_capture(c.get(), 1));
    CHECK(current_device() == current);
  }
  sim::fail_call("cudaGetDevice", 1, cudaErrorUnknown);
  CHECK(detail::may_break_capture(cudaStreamLegacy, 1));  // nobody knows
  CHECK(sim::captures_invalidated() == 0);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("relaxed calls break no capture; the thread's mode is as before afterwards") {
  fresh_world const world;
  {
    capturing const c;
    detail::relaxed_capture calls;
    calls.enter().enter();
    CHECK(try_allocation() == cudaSuccess);
    CHECK(detail::relaxed([] { return try_allocation(); }) == cudaSuccess);
    CHECK(try_allocation() == cudaSuccess);
    CHECK(sim::captures_invalidated() == 0);
  }
  capturing const c;
  { detail::relaxed_capture const never_entered; }
  CHECK(try_allocation() == cudaErrorStreamCaptureUnsupported);
  CHECK(sim::captures_invalidated() == 1);
}

TEST_CASE("where the mode cannot be changed, nothing is changed back") {
  fresh_world const world;
  sim::fail_call(1, cudaErrorUnknown);
  {
    detail::relaxed_capture calls;
    calls.enter();
  }
  CHECK(sim::calls("cudaThreadExchangeStreamCaptureMode") == 1);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("captures are declared while a scope lives, and nobody records elsewhere then") {
  auto const may_record = [] { return detail::record_elsewhere().allowed(); };
  CHECK_FALSE(detail::captures_declared());
  CHECK(may_record());
  {
    capture_scope const outer;
    { capture_scope const inner; }
    CHECK(detail::captures_declared());
    CHECK_FALSE(may_record());
  }
  CHECK_FALSE(detail::captures_declared());
  CHECK(may_record());
}

TEST_CASE("a scope begins when nobody records any more") {
  std::atomic<bool> declared{false};
  auto recording = std::make_unique<detail::record_elsewhere>();
  REQUIRE(recording->allowed());
  std::thread other([&] {
    capture_scope const scope;
    declared = true;
  });
  while (!detail::captures_declared()) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  CHECK_FALSE(declared);
  recording.reset();
  other.join();
  CHECK(declared);
}

TEST_CASE("a refusal names the capture as a reason, where there is one") {
  fresh_world const world;
  weir::stream const s;
  CHECK(std::string(detail::capture_reason(s)).empty());
  CHECK(std::string(detail::capture_reason(host_order)).empty());
  capturing const c(weir::stream::kind::blocking);
  CHECK(std::string(detail::capture_reason(cudaStreamLegacy)).empty());
  CHECK_FALSE(std::string(detail::capture_reason(c)).empty());
}
