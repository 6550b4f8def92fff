#pragma once
// Probes: events. Most answers are in the comment of cudaEventRecord in cuda_runtime_api.h ("captures in event the
// contents of stream at the time of this call", "overwrite the previously captured state", "not affected by later
// calls", "an event represents an empty set of work").

#include "probe.hpp"

#include <optional>

namespace probes {

inline void event_never_recorded_is_done(verdict& v) {
  event const e;
  v.ok("query", cudaEventQuery(e));
  v.ok("synchronise", cudaEventSynchronize(e));
}

inline void wait_for_event_never_recorded_is_none(verdict& v) {
  stream const held, other;
  event const e;
  gate g(v, held);
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("synchronise", cudaStreamSynchronize(other));
}

inline void record_after_the_wait_is_too_late(verdict& v) {
  stream const held, other;
  event const e;
  gate g(v, held);
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("record", cudaEventRecord(e, held));
  v.ok("synchronise", cudaStreamSynchronize(other));
  v.code("query", cudaEventQuery(e), cudaErrorNotReady);
}

inline void event_behind_pending_work_is_not_ready(verdict& v) {
  stream const s;
  event const e;
  gate g(v, s);
  v.ok("record", cudaEventRecord(e, s));
  v.code("query", cudaEventQuery(e), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaEventSynchronize(e));
  v.ok("query", cudaEventQuery(e));
}

inline void record_does_not_see_later_work(verdict& v) {
  stream const s;
  event const e;
  v.ok("record", cudaEventRecord(e, s));
  gate g(v, s);
  v.ok("synchronise", cudaEventSynchronize(e));
  v.ok("query", cudaEventQuery(e));
  v.code("the stream", cudaStreamQuery(s), cudaErrorNotReady);
}

inline void second_record_replaces_the_first(verdict& v) {
  stream const held, other;
  event const e;
  gate g(v, held);
  v.ok("record", cudaEventRecord(e, held));
  v.ok("record again", cudaEventRecord(e, other));
  v.ok("synchronise", cudaEventSynchronize(e));
  v.ok("query", cudaEventQuery(e));
}

inline void wait_keeps_the_record_of_its_time(verdict& v) {
  stream const held, other, third;
  event const e;
  flag f;
  gate g(v, held);
  v.ok("work", f.raise(held));
  v.ok("record", cudaEventRecord(e, held));
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("record elsewhere", cudaEventRecord(e, third));
  v.ok("look", f.look(other));
  v.code("the waiting stream", cudaStreamQuery(other), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(other));
  v.yes("it waited for the first record", f.was_up());
}

inline void wait_orders_streams(verdict& v) {
  stream const first, second;
  event const e;
  flag f;
  gate g(v, first);
  v.ok("work", f.raise(first));
  v.ok("record", cudaEventRecord(e, first));
  v.ok("wait", cudaStreamWaitEvent(second, e, 0));
  v.ok("look", f.look(second));
  v.code("the waiting stream", cudaStreamQuery(second), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(second));
  v.yes("ordered", f.was_up());
}

// Waits hold what comes after them, not what came before.
inline void wait_holds_later_work_only(verdict& v) {
  stream const held, other;
  event const e, early;
  v.ok("record early", cudaEventRecord(early, other));
  gate g(v, held);
  v.ok("record", cudaEventRecord(e, held));
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("synchronise with the early work", cudaEventSynchronize(early));
  v.code("the later work", cudaStreamQuery(other), cudaErrorNotReady);
}

// Waits are transitive: an event that follows a wait stands for what was waited for as well.
inline void order_passes_through_a_third_stream(verdict& v) {
  stream const a, b, c;
  event const first, second;
  flag f;
  gate g(v, a);
  v.ok("work", f.raise(a));
  v.ok("record", cudaEventRecord(first, a));
  v.ok("wait", cudaStreamWaitEvent(b, first, 0));
  v.ok("record", cudaEventRecord(second, b));
  v.ok("wait", cudaStreamWaitEvent(c, second, 0));
  v.ok("look", f.look(c));
  v.code("the second event", cudaEventQuery(second), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(c));
  v.yes("ordered", f.was_up());
}

// cudaEventDestroy: "the call does not block on completion of the event".
inline void destroyed_event_keeps_its_waits(verdict& v) {
  stream const first, second;
  flag f;
  cudaEvent_t e = nullptr;
  v.ok("create", cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  gate g(v, first);
  v.ok("work", f.raise(first));
  v.ok("record", cudaEventRecord(e, first));
  v.ok("wait", cudaStreamWaitEvent(second, e, 0));
  v.ok("destroy", cudaEventDestroy(e));
  v.ok("look", f.look(second));
  v.code("the waiting stream", cudaStreamQuery(second), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(second));
  v.yes("ordered", f.was_up());
}

// cudaEventInterprocess "must be specified along with cudaEventDisableTiming".
inline void event_flags_are_checked(verdict& v) {
  cudaEvent_t e = nullptr;
  v.code("unknown", cudaEventCreateWithFlags(&e, 0x80), cudaErrorInvalidValue);
  v.code("interprocess, timed", cudaEventCreateWithFlags(&e, cudaEventInterprocess), cudaErrorInvalidValue);
  v.ok("blocking", cudaEventCreateWithFlags(&e, cudaEventBlockingSync));
  v.ok("destroy", cudaEventDestroy(e));
}

// The comment of cudaEventElapsedTime has each of these.
inline void elapsed_time_needs_timed_recorded_events(verdict& v) {
  stream const s;
  event const untimed(cudaEventDisableTiming), never(cudaEventDefault), timed(cudaEventDefault);
  v.ok("record", cudaEventRecord(untimed, s));
  v.ok("record", cudaEventRecord(timed, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  float ms = -1;
  v.code("untimed", cudaEventElapsedTime(&ms, untimed, timed), cudaErrorInvalidResourceHandle);
  v.code("never recorded", cudaEventElapsedTime(&ms, timed, never), cudaErrorInvalidResourceHandle);
  v.ok("both", cudaEventElapsedTime(&ms, timed, timed));
  v.yes("not negative", ms >= 0);
}

inline void elapsed_time_waits_for_nothing(verdict& v) {
  stream const s;
  event const first(cudaEventDefault), second(cudaEventDefault);
  v.ok("record", cudaEventRecord(first, s));
  gate g(v, s);
  v.ok("record", cudaEventRecord(second, s));
  float ms = -1;
  v.code("pending", cudaEventElapsedTime(&ms, first, second), cudaErrorNotReady);
}

// Note in NVIDIA's reference: cudaErrorInvalidResourceHandle if the event is null.
inline void null_is_no_event(verdict& v) {
  stream const s;
  auto const documented = {cudaErrorInvalidResourceHandle, cudaErrorInvalidValue};
  v.code("record", cudaEventRecord(nullptr, s), documented);
  v.code("query", cudaEventQuery(nullptr), documented);
  v.code("synchronise", cudaEventSynchronize(nullptr), documented);
  v.code("wait", cudaStreamWaitEvent(s, nullptr, 0), documented);
  v.code("destroy", cudaEventDestroy(nullptr), documented);
}

// "When an action is taken in the legacy stream [it] first waits on all blocking streams" (stream-sync-behavior).
inline void record_on_legacy_covers_blocking_streams(verdict& v) {
  stream const blocking(cudaStreamDefault);
  event const e;
  gate g(v, blocking);
  v.ok("record", cudaEventRecord(e, cudaStreamLegacy));
  v.code("behind a blocking stream", cudaEventQuery(e), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaEventSynchronize(e));
}

inline void record_on_legacy_leaves_non_blocking_streams_out(verdict& v) {
  stream const free_one;
  event const e;
  gate g(v, free_one);
  v.ok("record", cudaEventRecord(e, cudaStreamLegacy));
  v.ok("synchronise", cudaEventSynchronize(e));
}

// "event and stream must be on the same CUDA context"; "cudaStreamWaitEvent: event may be from a different device".
inline void events_belong_to_a_device(verdict& v) {
  event const of_first;
  v.ok("cudaSetDevice(1)", cudaSetDevice(1));
  stream const of_second;
  v.code("record elsewhere", cudaEventRecord(of_first, of_second), cudaErrorInvalidResourceHandle);
  v.ok("wait elsewhere", cudaStreamWaitEvent(of_second, of_first, 0));
  v.ok("query elsewhere", cudaEventQuery(of_first));
  v.ok("synchronise elsewhere", cudaEventSynchronize(of_first));
}

inline constexpr probe event_probes[] = {
    {"event_never_recorded_is_done", needs::nothing, &event_never_recorded_is_done},
    {"wait_for_event_never_recorded_is_none", needs::pending_work, &wait_for_event_never_recorded_is_none},
    {"record_after_the_wait_is_too_late", needs::pending_work, &record_after_the_wait_is_too_late},
    {"event_behind_pending_work_is_not_ready", needs::pending_work, &event_behind_pending_work_is_not_ready},
    {"record_does_not_see_later_work", needs::pending_work, &record_does_not_see_later_work},
    {"second_record_replaces_the_first", needs::pending_work, &second_record_replaces_the_first},
    {"wait_keeps_the_record_of_its_time", needs::pending_work, &wait_keeps_the_record_of_its_time},
    {"wait_orders_streams", needs::pending_work, &wait_orders_streams},
    {"wait_holds_later_work_only", needs::pending_work, &wait_holds_later_work_only},
    {"order_passes_through_a_third_stream", needs::pending_work, &order_passes_through_a_third_stream},
    {"destroyed_event_keeps_its_waits", needs::pending_work, &destroyed_event_keeps_its_waits},
    {"event_flags_are_checked", needs::nothing, &event_flags_are_checked},
    {"elapsed_time_needs_timed_recorded_events", needs::nothing, &elapsed_time_needs_timed_recorded_events},
    {"elapsed_time_waits_for_nothing", needs::pending_work, &elapsed_time_waits_for_nothing},
    {"null_is_no_event", needs::nothing, &null_is_no_event},
    {"record_on_legacy_covers_blocking_streams", needs::pending_work, &record_on_legacy_covers_blocking_streams},
    {"record_on_legacy_leaves_non_blocking_streams_out", needs::pending_work,
     &record_on_legacy_leaves_non_blocking_streams_out},
    {"events_belong_to_a_device", needs::two_devices, &events_belong_to_a_device},
};

}  // namespace probes
