// What runs when, and after what: lazy mode shows every order that the program did not ask for.

#include "support.hpp"

#include <weir/sim/sim.hpp>

using namespace sim_test;

TEST_CASE_FIXTURE(fresh, "in immediate mode work is done when the call returns") {
  diary d;
  cudaStream_t const s = make_stream();
  d.mark(s, 1);
  CHECK_EQ(d.reached(), numbers{1});
  CHECK_EQ(cudaStreamQuery(s), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "in lazy mode nothing runs until the host waits for it") {
  diary d;
  cudaStream_t const s = make_stream();
  d.mark(s, 1);
  d.mark(s, 2);
  CHECK_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  CHECK(d.reached().empty());
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{1, 2});
  CHECK_EQ(cudaStreamQuery(s), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "waiting for one stream leaves the others where they are") {
  diary d;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  d.mark(a, 1);
  d.mark(b, 2);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(d.reached(), numbers{2});
  CHECK_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  ok(cudaDeviceSynchronize());
  CHECK_EQ(d.reached(), numbers{2, 1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a stream that waits for an event runs after what the event recorded") {
  diary d;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaEvent_t const e = make_event();
  d.mark(a, 1);
  ok(cudaEventRecord(e, a));
  d.mark(a, 2);
  ok(cudaStreamWaitEvent(b, e, 0));
  d.mark(b, 3);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(d.reached(), numbers{1, 3});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "order passes through a chain of streams") {
  diary d;
  cudaStream_t const streams[] = {make_stream(), make_stream(), make_stream()};
  cudaEvent_t const first = make_event();
  cudaEvent_t const second = make_event();
  d.mark(streams[0], 1);
  ok(cudaEventRecord(first, streams[0]));
  ok(cudaStreamWaitEvent(streams[1], first, 0));
  ok(cudaEventRecord(second, streams[1]));
  ok(cudaStreamWaitEvent(streams[2], second, 0));
  d.mark(streams[2], 2);
  ok(cudaStreamSynchronize(streams[2]));
  CHECK_EQ(d.reached(), numbers{1, 2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "two streams that hand work to and fro ten thousand times need no deep stack") {
  cudaStream_t const streams[] = {make_stream(), make_stream()};
  cudaEvent_t const e = make_event();
  for (std::size_t i = 0; i < 10'000; ++i) {
    ok(cudaEventRecord(e, streams[i % 2]));
    ok(cudaStreamWaitEvent(streams[(i + 1) % 2], e, 0));
  }
  ok(cudaStreamSynchronize(streams[0]));
  CHECK_EQ(cudaEventQuery(e), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "the legacy stream waits for blocking streams and they wait for it") {
  diary d;
  cudaStream_t const before = make_stream(cudaStreamDefault);
  cudaStream_t const after = make_stream(cudaStreamDefault);
  d.mark(before, 1);
  d.mark(cudaStreamLegacy, 2);
  d.mark(after, 3);
  ok(cudaStreamSynchronize(after));
  CHECK_EQ(d.reached(), numbers{1, 2, 3});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a non-blocking stream and the legacy stream do not wait for each other") {
  diary d;
  cudaStream_t const s = make_stream(cudaStreamNonBlocking);
  d.mark(s, 1);
  d.mark(cudaStreamLegacy, 2);
  d.mark(s, 3);
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  CHECK_EQ(d.reached(), numbers{2});
  d.mark(cudaStreamLegacy, 4);
  d.mark(s, 5);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{2, 1, 3, 5});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "blocking streams do not wait for each other without legacy work between") {
  diary d;
  cudaStream_t const a = make_stream(cudaStreamDefault);
  cudaStream_t const b = make_stream(cudaStreamDefault);
  d.mark(a, 1);
  d.mark(b, 2);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(d.reached(), numbers{2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "the per-thread stream is a blocking one") {
  diary d;
  d.mark(cudaStreamPerThread, 1);
  d.mark(cudaStreamLegacy, 2);
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  CHECK_EQ(d.reached(), numbers{1, 2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a wait in the legacy stream is a barrier for blocking streams") {
  diary d;
  cudaStream_t const free_stream = make_stream(cudaStreamNonBlocking);
  cudaStream_t const blocking = make_stream(cudaStreamDefault);
  cudaEvent_t const e = make_event();
  d.mark(free_stream, 1);
  ok(cudaEventRecord(e, free_stream));
  ok(cudaStreamWaitEvent(cudaStreamLegacy, e, 0));
  d.mark(blocking, 2);
  ok(cudaStreamSynchronize(blocking));
  CHECK_EQ(d.reached(), numbers{1, 2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "asking the legacy stream asks all blocking streams") {
  cudaStream_t const s = make_stream(cudaStreamDefault);
  diary d;
  d.mark(s, 1);
  CHECK_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "the legacy streams of two devices have nothing to do with each other") {
  diary d;
  d.mark(cudaStreamLegacy, 1);
  ok(cudaSetDevice(1));
  d.mark(cudaStreamLegacy, 2);
  ok(cudaDeviceSynchronize());
  CHECK_EQ(d.reached(), numbers{2});
  ok(cudaSetDevice(0));
  ok(cudaDeviceSynchronize());
  CHECK_EQ(d.reached(), numbers{2, 1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "the work of a destroyed stream still runs, and an event still knows it") {
  diary d;
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  d.mark(s, 1);
  ok(cudaEventRecord(e, s));
  ok(cudaStreamDestroy(s));
  CHECK(d.reached().empty());
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  cudaStream_t const other = make_stream();
  ok(cudaStreamWaitEvent(other, e, 0));
  d.mark(other, 2);
  ok(cudaStreamSynchronize(other));
  CHECK_EQ(d.reached(), numbers{1, 2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a new stream with an old handle does not inherit the old one's work") {
  diary d;
  cudaStream_t const s = make_stream();
  d.mark(s, 1);
  ok(cudaStreamDestroy(s));
  cudaStream_t const again = make_stream();
  REQUIRE_EQ(again, s);
  d.mark(again, 2);
  ok(cudaStreamSynchronize(again));
  CHECK_EQ(d.reached(), numbers{2});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "going back to immediate mode runs what is queued") {
  diary d;
  d.mark(make_stream(), 1);
  sim::set_mode(sim::mode::immediate);
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "run_all runs everything in the order of the calls") {
  diary d;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  d.mark(a, 1);
  d.mark(b, 2);
  d.mark(a, 3);
  sim::run_all();
  CHECK_EQ(d.reached().size(), 3);
  CHECK_EQ(cudaStreamQuery(a), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(b), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh, "a host function must not call CUDA") {
  cudaError_t seen = cudaSuccess;
  auto const call_cuda = [](void* data) {
    int device = 0;
    *static_cast<cudaError_t*>(data) = cudaGetDevice(&device);
  };
  ok(cudaLaunchHostFunc(make_stream(), call_cuda, &seen));
  CHECK_EQ(seen, cudaErrorNotPermitted);
  int device = -1;
  CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a host function has a last error of its own, whichever thread runs it") {
  auto const call_cuda = [](void* data) {
    int device = 0;
    static_cast<void>(cudaGetDevice(&device));
    *static_cast<cudaError_t*>(data) = cudaGetLastError();
  };
  cudaStream_t const s = make_stream();
  cudaError_t seen = cudaSuccess;
  SUBCASE("which is no error of that thread") {
    ok(cudaLaunchHostFunc(s, call_cuda, &seen));
    ok(cudaStreamSynchronize(s));
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
  }
  SUBCASE("nor takes one away from it") {
    ok(cudaLaunchHostFunc(s, call_cuda, &seen));
    CHECK_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
    ok(cudaStreamSynchronize(s));
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  }
  CHECK_EQ(seen, cudaErrorNotPermitted);
}
