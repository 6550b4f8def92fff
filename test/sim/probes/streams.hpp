#pragma once
// Probes: streams, the default ones and others. What is called stream-sync-behavior is the page of that name in
// NVIDIA's reference; the other answers are in the comments of cuda_runtime_api.h.

#include "probe.hpp"

#include <memory>
#include <thread>

namespace probes {

inline unsigned long long id_of(cudaStream_t s) {
  unsigned long long id = 0;
  static_cast<void>(cudaStreamGetId(s, &id));
  return id;
}

// stream-sync-behavior: the legacy stream waits on all blocking streams, then all of them wait on it.
inline void legacy_comes_after_blocking(verdict& v) {
  stream const blocking(cudaStreamDefault);
  expect_order(v, blocking, cudaStreamLegacy);
}
inline void blocking_comes_after_legacy(verdict& v) {
  stream const blocking(cudaStreamDefault);
  expect_order(v, cudaStreamLegacy, blocking);
}
inline void legacy_passes_non_blocking(verdict& v) {
  stream const other;
  expect_no_order(v, other, cudaStreamLegacy);
}
inline void non_blocking_passes_legacy(verdict& v) {
  stream const other;
  expect_no_order(v, cudaStreamLegacy, other);
}
inline void blocking_streams_pass_each_other(verdict& v) {
  stream const a(cudaStreamDefault), b(cudaStreamDefault);
  expect_no_order(v, a, b);
}

// A stream that was made after the legacy stream got its work is a blocking stream like the others.
inline void new_blocking_stream_comes_after_legacy(verdict& v) {
  flag f;
  gate g(v, cudaStreamLegacy);
  v.ok("work", f.raise(cudaStreamLegacy));
  stream const blocking(cudaStreamDefault);
  v.ok("look", f.look(blocking));
  v.code("the new stream", cudaStreamQuery(blocking), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(blocking));
  v.yes("ordered", f.was_up());
}

// stream-sync-behavior: "The per-thread default stream is not a non-blocking stream and will synchronize with the
// legacy default stream if both are used in a program."
inline void per_thread_comes_after_legacy(verdict& v) { expect_order(v, cudaStreamLegacy, cudaStreamPerThread); }
inline void legacy_comes_after_per_thread(verdict& v) { expect_order(v, cudaStreamPerThread, cudaStreamLegacy); }
inline void per_thread_passes_other_streams(verdict& v) {
  stream const blocking(cudaStreamDefault), free_one;
  expect_no_order(v, blocking, cudaStreamPerThread);
  expect_no_order(v, free_one, cudaStreamPerThread);
}

// The default stream of a thread that ended still has work to do, and is as blocking as it was.
inline void legacy_comes_after_default_streams_of_ended_threads(verdict& v) {
  flag f;
  std::unique_ptr<gate> g;
  std::thread([&] {
    g = std::make_unique<gate>(v, cudaStreamPerThread);
    v.ok("work", f.raise(cudaStreamPerThread));
  }).join();
  event const e;
  v.ok("record", cudaEventRecord(e, cudaStreamLegacy));
  v.ok("look", f.look(cudaStreamLegacy));
  v.code("the event", cudaEventQuery(e), cudaErrorNotReady);
  g->open();
  v.ok("synchronise", cudaStreamSynchronize(cudaStreamLegacy));
  v.yes("ordered", f.was_up());
}

inline void each_thread_has_its_own_stream(verdict& v) {
  unsigned long long others = 0;
  std::thread([&] { others = id_of(cudaStreamPerThread); }).join();
  v.no("the same id", others == id_of(cudaStreamPerThread));
  v.no("the legacy stream's id", id_of(cudaStreamLegacy) == id_of(cudaStreamPerThread));
}

// This file is compiled without CUDA_API_PER_THREAD_DEFAULT_STREAM.
inline void stream_0_is_the_legacy_stream(verdict& v) {
  v.equal("its id", id_of(nullptr), id_of(cudaStreamLegacy));
  stream const blocking(cudaStreamDefault);
  expect_order(v, blocking, nullptr);
}

// "The Id is unique for the life of the program."
inline void ids_never_come_back(verdict& v) {
  cudaStream_t s = nullptr;
  v.ok("create", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  unsigned long long const first = id_of(s);
  v.ok("destroy", cudaStreamDestroy(s));
  for (int i = 0; i < 3; ++i) {
    v.ok("create", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    v.no("the same id", id_of(s) == first);
    v.ok("destroy", cudaStreamDestroy(s));
  }
}

inline void streams_know_their_flags(verdict& v) {
  unsigned flags = 99;
  stream const free_one, blocking(cudaStreamDefault);
  v.ok("non-blocking", cudaStreamGetFlags(free_one, &flags));
  v.equal("non-blocking", flags, unsigned{cudaStreamNonBlocking});
  v.ok("blocking", cudaStreamGetFlags(blocking, &flags));
  v.equal("blocking", flags, unsigned{cudaStreamDefault});
  cudaStream_t s = nullptr;
  v.code("unknown flags", cudaStreamCreateWithFlags(&s, 0x80), cudaErrorInvalidValue);
}

// "It will automatically be clamped to the lowest or the highest number in the range", "0 represents default".
inline void priorities_are_clamped(verdict& v) {
  int least = 0, greatest = 0;
  v.ok("range", cudaDeviceGetStreamPriorityRange(&least, &greatest));
  auto const got = [&](int asked) {
    cudaStream_t s = nullptr;
    int priority = 99;
    v.ok("create", cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, asked));
    v.ok("get", cudaStreamGetPriority(s, &priority));
    v.ok("destroy", cudaStreamDestroy(s));
    return priority;
  };
  v.equal("too low", got(least + 100), least);
  v.equal("too high", got(greatest - 100), greatest);
  v.equal("in range", got(greatest), greatest);
  stream const usual;
  int priority = 99;
  v.ok("get", cudaStreamGetPriority(usual, &priority));
  v.equal("default", priority, 0);
}

inline void idle_stream_is_done(verdict& v) {
  stream const s;
  v.ok("query", cudaStreamQuery(s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// cudaStreamDestroy: "the function will return immediately", the rest follows "once the device has completed all work".
inline void destroyed_stream_finishes_its_work(verdict& v) {
  flag f;
  stream const other;
  event const e;
  cudaStream_t s = nullptr;
  v.ok("create", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  gate g(v, s);
  v.ok("work", f.raise(s));
  v.ok("record", cudaEventRecord(e, s));
  v.ok("destroy", cudaStreamDestroy(s));
  v.code("its event", cudaEventQuery(e), cudaErrorNotReady);
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("look", f.look(other));
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(other));
  v.yes("done", f.was_up());
}

inline void default_streams_cannot_be_destroyed(verdict& v) {
  v.code("null", cudaStreamDestroy(nullptr), {cudaErrorInvalidResourceHandle, cudaErrorInvalidValue});
}

inline void device_synchronise_waits_for_all(verdict& v) {
  stream const a, b(cudaStreamDefault);
  flag f;
  v.ok("work", f.raise(a));
  v.ok("work", f.look(a));
  v.ok("work", cudaStreamSynchronize(cudaStreamPerThread));
  v.ok("synchronise", cudaDeviceSynchronize());
  v.yes("the work of a non-blocking stream", f.was_up());
  v.ok("query", cudaStreamQuery(a));
  v.ok("query", cudaStreamQuery(b));
}

// The programming guide on capture: the legacy stream's handle at all times encompasses the blocking streams.
inline void legacy_query_covers_blocking_streams(verdict& v) {
  stream const blocking(cudaStreamDefault);
  gate g(v, blocking);
  v.code("query", cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(cudaStreamLegacy));
  v.ok("the blocking stream", cudaStreamQuery(blocking));
}

inline void legacy_query_leaves_non_blocking_streams_out(verdict& v) {
  stream const other;
  gate g(v, other);
  v.ok("synchronise", cudaStreamSynchronize(cudaStreamLegacy));
  v.ok("query", cudaStreamQuery(cudaStreamLegacy));
}

// cudaLaunchHostFunc: "called after currently enqueued work and will block work added after it".
inline void host_functions_take_their_place(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMallocHost", cudaMallocHost(&p, 1));
  struct seen {
    char volatile* at;
    char found;
  } s{static_cast<char*>(p), 0};
  if (p == nullptr) return;
  *s.at = 0;
  auto const look = [](void* data) {
    auto* const in = static_cast<seen*>(data);
    in->found = *in->at;
    *in->at = 2;
  };
  stream const t;
  void* on_device = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&on_device, 1));
  v.ok("set", cudaMemsetAsync(p, 1, 1, t));
  v.ok("launch", cudaLaunchHostFunc(t, look, &s));
  v.ok("copy", cudaMemcpyAsync(on_device, p, 1, cudaMemcpyHostToDevice, t));
  v.ok("clear", cudaMemsetAsync(p, 3, 1, t));
  v.ok("synchronise", cudaStreamSynchronize(t));
  v.equal("before it", int{s.found}, 1);
  v.equal("after it", int{*s.at}, 3);
  char copied = 0;
  v.ok("read", cudaMemcpy(&copied, on_device, 1, cudaMemcpyDeviceToHost));
  v.equal("between", int{copied}, 2);
  v.code("null", cudaLaunchHostFunc(t, nullptr, nullptr), cudaErrorInvalidValue);
  v.ok("cudaFree", cudaFree(on_device));
  v.ok("cudaFreeHost", cudaFreeHost(p));
}

inline void wait_flags_are_checked(verdict& v) {
  stream const s;
  event const e;
  v.code("unknown", cudaStreamWaitEvent(s, e, 0x80), cudaErrorInvalidValue);
}

inline void streams_belong_to_a_device(verdict& v) {
  stream const of_first;
  v.ok("cudaSetDevice(1)", cudaSetDevice(1));
  v.ok("query", cudaStreamQuery(of_first));
  v.ok("synchronise", cudaStreamSynchronize(of_first));
  void* p = nullptr;
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 256, of_first));
  cudaPointerAttributes found{};
  v.ok("attributes", cudaPointerGetAttributes(&found, p));
  v.equal("memory of the stream's device, not the current one", found.device, 0);
  v.ok("cudaFreeAsync", cudaFreeAsync(p, of_first));
}

inline constexpr probe stream_probes[] = {
    {"legacy_comes_after_blocking", needs::pending_work, &legacy_comes_after_blocking},
    {"blocking_comes_after_legacy", needs::pending_work, &blocking_comes_after_legacy},
    {"legacy_passes_non_blocking", needs::pending_work, &legacy_passes_non_blocking},
    {"non_blocking_passes_legacy", needs::pending_work, &non_blocking_passes_legacy},
    {"blocking_streams_pass_each_other", needs::pending_work, &blocking_streams_pass_each_other},
    {"new_blocking_stream_comes_after_legacy", needs::pending_work, &new_blocking_stream_comes_after_legacy},
    {"per_thread_comes_after_legacy", needs::pending_work, &per_thread_comes_after_legacy},
    {"legacy_comes_after_per_thread", needs::pending_work, &legacy_comes_after_per_thread},
    {"per_thread_passes_other_streams", needs::pending_work, &per_thread_passes_other_streams},
    {"legacy_comes_after_default_streams_of_ended_threads", needs::pending_work,
     &legacy_comes_after_default_streams_of_ended_threads},
    {"each_thread_has_its_own_stream", needs::nothing, &each_thread_has_its_own_stream},
    {"stream_0_is_the_legacy_stream", needs::pending_work, &stream_0_is_the_legacy_stream},
    {"ids_never_come_back", needs::nothing, &ids_never_come_back},
    {"streams_know_their_flags", needs::nothing, &streams_know_their_flags},
    {"priorities_are_clamped", needs::nothing, &priorities_are_clamped},
    {"idle_stream_is_done", needs::nothing, &idle_stream_is_done},
    {"destroyed_stream_finishes_its_work", needs::pending_work, &destroyed_stream_finishes_its_work},
    {"default_streams_cannot_be_destroyed", needs::nothing, &default_streams_cannot_be_destroyed},
    {"device_synchronise_waits_for_all", needs::nothing, &device_synchronise_waits_for_all},
    {"legacy_query_covers_blocking_streams", needs::pending_work, &legacy_query_covers_blocking_streams},
    {"legacy_query_leaves_non_blocking_streams_out", needs::pending_work,
     &legacy_query_leaves_non_blocking_streams_out},
    {"host_functions_take_their_place", needs::nothing, &host_functions_take_their_place},
    {"wait_flags_are_checked", needs::nothing, &wait_flags_are_checked},
    {"streams_belong_to_a_device", needs::two_devices, &streams_belong_to_a_device},
};

}  // namespace probes
