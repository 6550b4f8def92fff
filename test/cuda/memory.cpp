#include <weir/cuda/memory.hpp>

#include <weir/cuda/device.hpp>
#include <weir/cuda/event.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <utility>

#include "support/captures.hpp"

using namespace weir;

TEST_CASE("too little memory is an answer, and leaves no last error") {
  sim::reset();
  auto const pool = detail::memory_pool::create(0, 0);
  weir::stream const s;
  for (int call = 0; call < 4; ++call) {
    sim::fail_call(call < 3 ? 2 : 1, cudaErrorMemoryAllocation);  // before it, the thread is made to break no capture
    CHECK((call == 0   ? detail::try_malloc(64)
           : call == 1 ? detail::try_malloc_managed(64)
           : call == 2 ? detail::try_malloc_host(64)
                       : detail::try_malloc_from_pool(pool.get(), 64, s.get())) == nullptr);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("any other failure is an error that names the call") {
  sim::reset();
  sim::fail_call(2, cudaErrorUnknown);
  try {
    detail::try_malloc_managed(64);
    FAIL("nothing was thrown");
  } catch (cuda_error const& error) {
    CHECK(error.code() == cudaErrorUnknown);
    CHECK(std::string(error.what()).find("cudaMallocManaged failed") != std::string::npos);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a pool of one's own is destroyed once, a device's default pool never") {
  sim::reset();
  {
    auto own = detail::memory_pool::create(1, 1 << 20);
    auto moved = std::move(own);
    auto const borrowed = detail::memory_pool::default_of(1);
    CHECK(moved.get() != nullptr);
    CHECK(borrowed.get() != moved.get());
    moved = detail::memory_pool::create(0, 0);
  }
  CHECK(sim::calls("cudaMemPoolCreate") == 2);
  CHECK(sim::calls("cudaMemPoolDestroy") == 2);
}

TEST_CASE("a pool's settings are those that were set") {
  sim::reset();
  auto pool = detail::memory_pool::create(0, 0);
  pool.set(cudaMemPoolAttrReleaseThreshold, 12345);
  CHECK(pool.get(cudaMemPoolAttrReleaseThreshold) == 12345);
  for (bool const allowed : {false, true}) {
    pool.allow(cudaMemPoolReuseAllowOpportunistic, allowed);
    int value = -1;
    REQUIRE(cudaMemPoolGetAttribute(pool.get(), cudaMemPoolReuseAllowOpportunistic, &value) == cudaSuccess);
    CHECK(value == (allowed ? 1 : 0));
  }
}

TEST_CASE("waiting for a stream waits for its work") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  weir::stream const s;
  bool done = false;
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
  CHECK(detail::wait_for(s, 0));
  CHECK(done);
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
}

TEST_CASE("waiting for a blocking stream without work waits for the legacy stream, which comes before it") {
  for (int const device : {0, 1}) {
    sim::reset();
    sim::set_mode(sim::mode::lazy);
    device_guard const on_device(device);
    weir::stream const blocking(weir::stream::kind::blocking), other;
    bool done = false;
    for (stream_ref const s : {stream_ref(blocking), stream_ref(cudaStreamPerThread), stream_ref(other)}) {
      done = false;
      REQUIRE(cudaLaunchHostFunc(
                  cudaStreamLegacy, [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
      device_guard const on_another(s.get() == cudaStreamPerThread ? device : 1 - device);
      CHECK(detail::wait_for(s, device));
      CHECK(done == (s.get() != other.get()));
    }
    CHECK(sim::calls("cudaDeviceSynchronize") == 0);
    sim::run_all();
  }
}

TEST_CASE("if a stream cannot be waited for, its device is, and the device that was current stays") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  device_guard const on_other(1);
  weir::stream const s;
  device_guard const back(0);
  bool done = false;
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorInvalidResourceHandle);
  CHECK(detail::wait_for(s, 1));
  CHECK(done);
  CHECK(current_device() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("if a stream is gone and nobody knows whose it was, all devices are waited for") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  bool done = false;
  cudaStream_t gone = nullptr;
  {
    device_guard const on_other(1);
    REQUIRE(cudaStreamCreate(&gone) == cudaSuccess);
    REQUIRE(cudaLaunchHostFunc(
                gone, [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
    REQUIRE(cudaStreamDestroy(gone) == cudaSuccess);
  }
  CHECK(detail::wait_for(gone, -1));
  CHECK(done);
  CHECK(current_device() == 0);
}

TEST_CASE("a stream of another device that could not be waited for at first is waited for again") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  device_guard const on_other(1);
  weir::stream const s;
  bool done = false;
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  CHECK(detail::wait_for(s, 0));
  CHECK(done);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a stream of another device that can neither be waited for nor asked is not taken for done") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  device_guard const on_other(1);
  weir::stream const s;
  bool done = false;
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  sim::fail_call("cudaStreamQuery", 1, cudaErrorLaunchFailure);
  CHECK_FALSE(detail::wait_for(s, 0));
  CHECK_FALSE(done);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  sim::reset();
}

TEST_CASE("a device is not waited for while a blocking stream of it captures") {
  sim::reset();
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  test::begin_capture(blocking, cudaStreamCaptureModeThreadLocal);
  CHECK_FALSE(detail::wait_for_device(0));
  CHECK(detail::wait_for_device(1));
  CHECK(sim::captures_invalidated() == 0);
  test::end_capture(blocking);
  CHECK(detail::wait_for_device(0));
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("if nothing can be waited for, that is said") {
  sim::reset();
  weir::stream const s;
  sim::fail_call(6, cudaErrorUnknown);  // after the stream's own wait, asking for the current device fails
  CHECK(detail::wait_for(s, 0));        // the stream itself could be waited for: nothing else is asked
  CHECK(!detail::wait_for_device(0));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("where CUDA is not there, or no longer, no work can be running") {
  sim::reset();
  weir::stream const s;
  for (cudaError_t const code : {cudaErrorCudartUnloading, cudaErrorNoDevice, cudaErrorInsufficientDriver}) {
    sim::fail_call(1, code);
    CHECK(detail::wait_for(s, 0));
  }
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
}

TEST_CASE("an internal stream is made on its device, stands apart from the default stream, and is destroyed") {
  sim::reset();
  {
    detail::internal_stream const s(1);
    unsigned flags = 0;
    REQUIRE(cudaStreamGetFlags(s.get(), &flags) == cudaSuccess);
    CHECK(flags == cudaStreamNonBlocking);
    CHECK(current_device() == 0);
    device_guard const on_device(1);
    event e;
    CHECK_NOTHROW(e.record(s.get()));  // CUDA refuses an event and a stream of different devices
  }
  CHECK(sim::calls("cudaStreamDestroy") == 1);
}
