// What tests do to the simulated runtime: counting, failing, touching, starting afresh; and the last error of a thread.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <cstring>
#include <stdexcept>
#include <string>

using namespace sim_test;

TEST_CASE_FIXTURE(fresh, "calls are counted by name and together") {
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  sim::reset_counters();
  ok(cudaEventRecord(e, s));
  ok(cudaEventRecord(e, s));
  ok(cudaEventQuery(e));
  CHECK_EQ(sim::calls("cudaEventRecord"), 2);
  CHECK_EQ(sim::calls("cudaEventQuery"), 1);
  CHECK_EQ(sim::calls("cudaMalloc"), 0);
  CHECK_EQ(sim::calls(), 3);
  sim::reset_counters();
  CHECK_EQ(sim::calls(), 0);
}

TEST_CASE_FIXTURE(fresh, "calls that fail count too, asking for errors does not") {
  CHECK_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
  static_cast<void>(cudaPeekAtLastError());
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaGetErrorName(cudaSuccess));
  static_cast<void>(cudaGetErrorString(cudaSuccess));
  CHECK_EQ(sim::calls(), 1);
}

TEST_CASE_FIXTURE(fresh, "asking for the count of a call that does not exist is an error") {
  CHECK_THROWS_AS(static_cast<void>(sim::calls("cudaMallok")), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh, "the k-th call fails with the code that was asked for, and does nothing; the next works") {
  void* p = nullptr;
  sim::fail_call(2, cudaErrorMemoryAllocation);
  ok(cudaMalloc(&p, 10));
  void* q = nullptr;
  CHECK_EQ(cudaMalloc(&q, 10), cudaErrorMemoryAllocation);
  CHECK_EQ(q, nullptr);
  CHECK_EQ(sim::live_bytes(0), 10);
  CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ok(cudaMalloc(&q, 10));
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_EQ(cudaFree(p), cudaErrorUnknown);
  CHECK_EQ(sim::live_bytes(0), 20);
  ok(cudaFree(p));
}

TEST_CASE_FIXTURE(fresh, "a failure to come can be forgotten, and there is no call number 0") {
  sim::fail_call(1, cudaErrorUnknown);
  sim::clear_failure();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_THROWS_AS(sim::fail_call(0, cudaErrorUnknown), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh, "the last error stays until it is taken, whatever succeeds meanwhile") {
  CHECK_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  ok(cudaSetDevice(0));
  CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a query that answers \"not ready\" leaves that as the last error") {
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, make_stream()));
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  CHECK_EQ(cudaGetLastError(), cudaErrorNotReady);
}

TEST_CASE("codes have CUDA's names") {
  CHECK_EQ(std::string(cudaGetErrorName(cudaSuccess)), "cudaSuccess");
  CHECK_EQ(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)), "cudaErrorMemoryAllocation");
  CHECK_EQ(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)), "out of memory");
  CHECK_EQ(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))), "unrecognized error code");
}

TEST_CASE_FIXTURE(fresh, "there are two devices, or as many as a test asks for") {
  int count = 0;
  ok(cudaGetDeviceCount(&count));
  CHECK_EQ(count, 2);
  CHECK_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  sim::set_device_count(3);
  CHECK_EQ(cudaSetDevice(2), cudaSuccess);
  CHECK_THROWS_AS(sim::set_device_count(0), std::invalid_argument);
  CHECK_THROWS_AS(sim::set_capacity(8, 1), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh, "devices say what they can do, for every attribute that there is") {
  int value = -1;
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 1));
  CHECK_EQ(value, 1);
  for (int each = 1; each < cudaDevAttrMax; ++each)
    CHECK_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(each), 0), cudaSuccess);
  CHECK_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 2), cudaErrorInvalidDevice);
  CHECK_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMax, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
  cudaDeviceProp properties{};
  sim::set_capacity(1, 12345);
  ok(cudaGetDeviceProperties(&properties, 1));
  CHECK_EQ(properties.totalGlobalMem, 12345);
  int version = 0;
  ok(cudaRuntimeGetVersion(&version));
  CHECK_EQ(version, CUDART_VERSION);
}

TEST_CASE_FIXTURE(fresh, "a real device's numbers and memory are had by its name") {
  sim::set_device_model("a100-80g");
  cudaDeviceProp properties{};
  ok(cudaGetDeviceProperties(&properties, 1));
  CHECK_EQ(std::string(properties.name), "NVIDIA A100-SXM4-80GB");
  CHECK_EQ(properties.major, 8);
  CHECK_EQ(properties.multiProcessorCount, 108);
  CHECK_EQ(properties.sharedMemPerBlockOptin, 163 << 10);
  std::size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(total, properties.totalGlobalMem);
  CHECK_LT(free, total);  // the context's
  void* p = nullptr;
  CHECK_EQ(cudaMalloc(&p, total), cudaErrorMemoryAllocation);

  sim::set_device_model("default");
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, total);
  CHECK_THROWS_WITH_AS(sim::set_device_model("a100"), doctest::Contains("it can be one of default a100-40g"),
                       std::invalid_argument);
  sim::set_device_model("rtx-4090");
  sim::reset();
  ok(cudaGetDeviceProperties(&properties, 0));
  CHECK_EQ(std::string(properties.name), "weir::sim device 0");
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, total);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "touch reads or overwrites all its bytes when the stream gets there") {
  void* p = nullptr;
  ok(cudaMallocHost(&p, 100));
  std::memset(p, 0, 100);
  auto const* const bytes = static_cast<unsigned char const*>(p);
  cudaStream_t const s = make_stream();
  sim::touch(s, p, 100, sim::access::write);
  CHECK_EQ(bytes[0], 0);
  ok(cudaStreamSynchronize(s));
  unsigned char const written = bytes[99];
  CHECK_NE(written, 0);
  CHECK_EQ(bytes[0], written);
  sim::touch(s, p, 100, sim::access::read);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(bytes[99], written);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "touch refuses what no kernel may do") {
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 100, s));
  CHECK_THROWS_AS(sim::touch(s, p, 101, sim::access::read), std::invalid_argument);
  ok(cudaFreeAsync(p, s));
  CHECK_THROWS_AS(sim::touch(s, p, 1, sim::access::read), std::invalid_argument);
  ok(cudaStreamDestroy(s));
  CHECK_THROWS_AS(sim::touch(s, p, 0, sim::access::read), std::invalid_argument);
}

TEST_CASE("reset forgets work, memory and settings, and leaves streams and events usable") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  sim::set_capacity(0, 1000);
  diary d;
  cudaStream_t const s = make_stream();
  cudaEvent_t e = nullptr;
  ok(cudaEventCreate(&e));
  auto const id = id_of(s);
  void* p = nullptr;
  ok(cudaSetDevice(1));
  ok(cudaMalloc(&p, 100));
  d.mark(s, 1);
  ok(cudaSetDevice(0));
  ok(cudaEventRecord(e, s));
  CHECK_EQ(cudaSetDevice(9), cudaErrorInvalidDevice);
  ok(cudaSetDevice(1));
  sim::fail_call(1, cudaErrorUnknown);
  sim::reset();
  CHECK_EQ(sim::calls(), 0);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
  int device = -1;
  ok(cudaGetDevice(&device));
  CHECK_EQ(device, 0);
  CHECK_EQ(sim::live_bytes(1), 0);
  std::size_t free = 0;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, total);
  CHECK_GT(total, 1000);
  CHECK_EQ(id_of(s), id);
  CHECK_EQ(cudaEventQuery(e), cudaSuccess);
  float ms = 0;
  CHECK_EQ(cudaEventElapsedTime(&ms, e, e), cudaErrorInvalidResourceHandle);
  CHECK(d.reached().empty());
  d.mark(s, 2);
  CHECK_EQ(d.reached(), numbers{2});
}

TEST_CASE_FIXTURE(
    fresh, "reset ends the streams and events that an injected fault did not let the program destroy, and only those") {
  for (bool const sticky : {false, true}) {
    cudaStream_t const kept = make_stream(), s = make_stream();
    cudaEvent_t const kept_event = make_event(), e = make_event();
    auto const id = id_of(kept);
    if (sticky) {
      sim::fail_from(1, cudaErrorLaunchFailure);
    } else {
      sim::fail_call("cudaStreamDestroy", 1, cudaErrorLaunchFailure);
      sim::fail_call("cudaEventDestroy", 1, cudaErrorLaunchFailure);
    }
    CHECK_EQ(cudaStreamDestroy(s), cudaErrorLaunchFailure);
    CHECK_EQ(cudaEventDestroy(e), cudaErrorLaunchFailure);
    sim::clear_failure();
    ok(cudaStreamQuery(s));  // until then they are there
    ok(cudaEventQuery(e));
    sim::reset();
    CHECK_EQ(cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
    CHECK_EQ(id_of(kept), id);
    ok(cudaEventDestroy(kept_event));
    ok(cudaStreamDestroy(kept));
  }
}

TEST_CASE_FIXTURE(fresh, "handles that are live are counted: streams, events and pools") {
  std::size_t const before = sim::live_handles();  // of other tests, whose streams and events stay
  cudaStream_t const stream = make_stream();
  cudaEvent_t const event = make_event();
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool = nullptr;
  ok(cudaMemPoolCreate(&pool, &properties));
  CHECK_EQ(sim::live_handles(), before + 3);
  ok(cudaMemPoolDestroy(pool));
  ok(cudaEventDestroy(event));
  CHECK_EQ(sim::live_handles(), before + 1);
  ok(cudaStreamDestroy(stream));
  CHECK_EQ(sim::live_handles(), before);
}

TEST_CASE_FIXTURE(fresh, "a device's limits are kept until it is reset") {
  std::size_t before = 0, now = 0;
  ok(cudaDeviceGetLimit(&before, cudaLimitStackSize));
  ok(cudaDeviceSetLimit(cudaLimitStackSize, before + 4096));
  ok(cudaDeviceGetLimit(&now, cudaLimitStackSize));
  CHECK_EQ(now, before + 4096);
  ok(cudaDeviceReset());
  ok(cudaDeviceGetLimit(&now, cudaLimitStackSize));
  CHECK_EQ(now, before);
}

TEST_CASE_FIXTURE(fresh, "device flags are kept for each device until it is reset") {
  unsigned flags = 0;
  ok(cudaGetDeviceFlags(&flags));
  CHECK_EQ(flags, cudaDeviceMapHost);
  ok(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  ok(cudaInitDevice(1, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid));
  ok(cudaGetDeviceFlags(&flags));
  CHECK_EQ(flags, cudaDeviceScheduleBlockingSync | cudaDeviceMapHost);
  ok(cudaSetDevice(1));
  ok(cudaGetDeviceFlags(&flags));
  CHECK_EQ(flags, cudaDeviceScheduleSpin | cudaDeviceMapHost);
  ok(cudaDeviceReset());
  ok(cudaGetDeviceFlags(&flags));
  CHECK_EQ(flags, cudaDeviceMapHost);
  CHECK_EQ(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetDeviceFlags(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaInitDevice(2, 0, 0), cudaErrorInvalidDevice);
  CHECK_EQ(cudaInitDevice(0, 0, 2), cudaErrorInvalidValue);
}
