// Handles and ids of streams, snapshots of events, and the codes that their calls answer with.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <utility>

using namespace sim_test;

TEST_CASE_FIXTURE(fresh, "a destroyed stream's handle comes back at once, its id never") {
  cudaStream_t const first = make_stream();
  auto const first_id = id_of(first);
  ok(cudaStreamDestroy(first));
  CHECK_EQ(cudaStreamQuery(first), cudaErrorInvalidResourceHandle);
  cudaStream_t const second = make_stream();
  CHECK_EQ(second, first);
  CHECK_NE(id_of(second), first_id);
}

TEST_CASE_FIXTURE(fresh, "the handle destroyed last is the one that comes back first") {
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  ok(cudaStreamDestroy(a));
  ok(cudaStreamDestroy(b));
  CHECK_EQ(make_stream(), b);
  CHECK_EQ(make_stream(), a);
}

TEST_CASE_FIXTURE(fresh, "ids differ between streams, default streams and devices") {
  std::vector<unsigned long long> ids{id_of(cudaStreamLegacy), id_of(cudaStreamPerThread), id_of(make_stream())};
  ok(cudaSetDevice(1));
  ids.push_back(id_of(cudaStreamLegacy));
  ids.push_back(id_of(cudaStreamPerThread));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK_NE(ids[i], ids[j]);
  }
  ok(cudaSetDevice(0));
  CHECK_EQ(id_of(cudaStreamLegacy), ids[0]);
  CHECK_EQ(id_of(cudaStreamPerThread), ids[1]);
}

TEST_CASE_FIXTURE(fresh, "handle 0 is the legacy stream for a file that is compiled without the per-thread default") {
  CHECK_EQ(id_of(nullptr), id_of(cudaStreamLegacy));
}

TEST_CASE_FIXTURE(fresh, "a stream knows its device, flags and clamped priority") {
  ok(cudaSetDevice(1));
  cudaStream_t s = nullptr;
  ok(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -1000));
  ok(cudaSetDevice(0));
  unsigned flags = 0;
  int priority = 0;
  int least = 0;
  int greatest = 0;
  ok(cudaStreamGetFlags(s, &flags));
  ok(cudaStreamGetPriority(s, &priority));
  ok(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK_EQ(flags, unsigned{cudaStreamNonBlocking});
  CHECK_EQ(priority, greatest);
  CHECK_LT(greatest, least);
#if CUDART_VERSION >= 12080
  int device = -1;
  ok(cudaStreamGetDevice(s, &device));
  CHECK_EQ(device, 1);
#endif
}

TEST_CASE_FIXTURE(fresh, "no stream is being captured") {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  ok(cudaStreamIsCapturing(make_stream(), &status));
  CHECK_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_CASE_FIXTURE(fresh, "stream calls refuse wrong arguments with the documented codes") {
  int dummy = 0;
  auto const nobody = reinterpret_cast<cudaStream_t>(&dummy);
  cudaStream_t s = nullptr;
  unsigned long long id = 0;
  CHECK_EQ(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamCreateWithFlags(&s, 2), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamDestroy(nobody), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamSynchronize(nobody), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamGetId(nobody, &id), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamGetId(make_stream(), nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaLaunchHostFunc(make_stream(), nullptr, nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamWaitEvent(make_stream(), nullptr, 0), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamWaitEvent(make_stream(), make_event(), 2), cudaErrorInvalidValue);
  CHECK_EQ(s, nullptr);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "an event that was never recorded is done, and nobody waits for it") {
  cudaEvent_t const e = make_event();
  cudaStream_t const s = make_stream();
  CHECK_EQ(cudaEventQuery(e), cudaSuccess);
  ok(cudaEventSynchronize(e));
  ok(cudaStreamWaitEvent(s, e, 0));
  CHECK_EQ(cudaStreamQuery(s), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "an event is pending until its stream gets there") {
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, make_stream()));
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  ok(cudaEventSynchronize(e));
  CHECK_EQ(cudaEventQuery(e), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "waiting for an event does not run what its stream got later") {
  diary d;
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  d.mark(s, 1);
  ok(cudaEventRecord(e, s));
  d.mark(s, 2);
  ok(cudaEventSynchronize(e));
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "recording again replaces the snapshot for later calls, not for earlier waits") {
  diary d;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaStream_t const waits = make_stream();
  cudaEvent_t const e = make_event();
  d.mark(a, 1);
  ok(cudaEventRecord(e, a));
  ok(cudaStreamWaitEvent(waits, e, 0));
  d.mark(b, 2);
  ok(cudaEventRecord(e, b));
  d.mark(waits, 3);
  ok(cudaStreamSynchronize(waits));
  CHECK_EQ(d.reached(), numbers{1, 3});
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  ok(cudaEventSynchronize(e));
  CHECK_EQ(d.reached(), numbers{1, 3, 2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "an event on the legacy stream covers the blocking streams") {
  diary d;
  cudaEvent_t const e = make_event();
  d.mark(make_stream(cudaStreamDefault), 1);
  ok(cudaEventRecord(e, cudaStreamLegacy));
  ok(cudaEventSynchronize(e));
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a pending event may be destroyed without harm to those who wait for it") {
  diary d;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaEvent_t const e = make_event();
  d.mark(a, 1);
  ok(cudaEventRecord(e, a));
  ok(cudaStreamWaitEvent(b, e, 0));
  ok(cudaEventDestroy(e));
  d.mark(b, 2);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(d.reached(), numbers{1, 2});
}

TEST_CASE_FIXTURE(fresh, "an event records only streams of its own device, but any stream may wait for it") {
  cudaEvent_t const e = make_event();
  cudaStream_t const here = make_stream();
  ok(cudaSetDevice(1));
  cudaStream_t const there = make_stream();
  CHECK_EQ(cudaEventRecord(e, there), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventRecord(e, cudaStreamLegacy), cudaErrorInvalidResourceHandle);
  ok(cudaEventRecord(e, here));
  ok(cudaStreamWaitEvent(there, e, 0));
}

TEST_CASE_FIXTURE(fresh, "event calls refuse wrong arguments with the documented codes") {
  cudaEvent_t e = nullptr;
  CHECK_EQ(cudaEventCreate(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaEventCreateWithFlags(&e, 64), cudaErrorInvalidValue);
  CHECK_EQ(cudaEventCreateWithFlags(&e, cudaEventInterprocess), cudaErrorInvalidValue);
  ok(cudaEventCreateWithFlags(&e, cudaEventInterprocess | cudaEventDisableTiming));
  CHECK_EQ(cudaEventRecordWithFlags(e, make_stream(), cudaEventRecordExternal), cudaErrorInvalidValue);
  ok(cudaEventRecordWithFlags(e, make_stream(), cudaEventRecordDefault));
  ok(cudaEventDestroy(e));
  CHECK_EQ(cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventRecord(e, make_stream()), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventSynchronize(nullptr), cudaErrorInvalidResourceHandle);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "elapsed time needs two timed events that are recorded and done") {
  cudaStream_t const s = make_stream();
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  float ms = -1;
  ok(cudaEventCreate(&start));
  ok(cudaEventCreate(&end));
  ok(cudaEventRecord(start, s));
  CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  ok(cudaEventRecord(end, s));
  CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ok(cudaEventSynchronize(end));
  ok(cudaEventElapsedTime(&ms, start, end));
  CHECK_GE(ms, 0);
  cudaEvent_t const untimed = make_event();
  ok(cudaEventRecord(untimed, s));
  ok(cudaEventSynchronize(untimed));
  CHECK_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventElapsedTime(nullptr, start, end), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a callback runs at its place in the stream, knows it, and may not call CUDA") {
  struct told {
    cudaStream_t stream = nullptr;
    cudaError_t status = cudaErrorUnknown;
    cudaError_t inside = cudaSuccess;
    int times = 0;
  } found;
  auto const callback = [](cudaStream_t stream, cudaError_t status, void* data) {
    auto* const f = static_cast<told*>(data);
    *f = {stream, status, cudaStreamQuery(stream), f->times + 1};
  };
  cudaStream_t const s = make_stream();
  ok(cudaStreamAddCallback(s, callback, &found, 0));
  CHECK_EQ(found.times, 0);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(found.times, 1);
  CHECK_EQ(found.stream, s);
  CHECK_EQ(found.status, cudaSuccess);
  CHECK_EQ(found.inside, cudaErrorNotPermitted);
  CHECK_EQ(cudaStreamAddCallback(s, callback, &found, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamAddCallback(s, nullptr, &found, 0), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "a host function that throws is done with that; what comes after it runs for the next who waits") {
  cudaStream_t const s = make_stream(), behind = make_stream(), other = make_stream();
  cudaEvent_t const end = make_event();
  diary d;
  ok(cudaLaunchHostFunc(
      s, [](void*) { throw 42; }, nullptr));
  d.mark(s, 1);
  ok(cudaEventRecord(end, s));
  ok(cudaStreamWaitEvent(behind, end, 0));
  d.mark(behind, 2);
  d.mark(other, 3);
  CHECK_THROWS_AS(static_cast<void>(cudaStreamSynchronize(behind)), int);
  CHECK_EQ(d.reached(), numbers{});
  ok(cudaStreamSynchronize(behind));
  CHECK_EQ(d.reached(), numbers{1, 2});
  ok(cudaStreamSynchronize(other));
  d.mark(s, 4);
  ok(cudaDeviceSynchronize());
  CHECK_EQ(d.reached(), numbers{1, 2, 3, 4});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "memory is free though a host function threw in the cudaFree that waited for it") {
  auto const unused = [] {
    std::size_t free = 0, total = 0;
    ok(cudaMemGetInfo(&free, &total));
    return free;
  };
  std::size_t const before = unused();
  void* p = nullptr;
  ok(cudaMalloc(&p, 1 << 20));
  ok(cudaLaunchHostFunc(
      make_stream(), [](void*) { throw 42; }, nullptr));
  CHECK_THROWS_AS(static_cast<void>(cudaFree(p)), int);
  CHECK_EQ(unused(), before);
}
