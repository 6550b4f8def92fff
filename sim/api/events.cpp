// Events: snapshots of a stream's work.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

namespace weir::sim::detail {
namespace {

cudaError_t create_event(call which, cudaEvent_t* event, unsigned flags) {
  return api(which, [&](runtime& r, held_lock&) {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    bool const timed = (flags & cudaEventDisableTiming) == 0;
    if (event == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
    if ((flags & cudaEventInterprocess) != 0 && timed) return cudaErrorInvalidValue;
    event_state made;
    made.device = this_thread().device;
    made.timed = timed;
    made.number = ++r.event_count;
    *event = r.events.add(std::move(made));
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t event_record(call which, cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return api(which, [&](runtime& r, held_lock& held) {
    event_state* const e = r.events.find(event);
    timeline* const t = find_stream(r, stream);
    if (e == nullptr || t == nullptr || e->device != t->device) return cudaErrorInvalidResourceHandle;
    // The other flag, `cudaEventRecordExternal`, is for streams that are being captured.
    if (flags != cudaEventRecordDefault) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    e->captured = nullptr;
    if (t->capture != nullptr) {
      capture_event(*t, *e);
      e->recorded = true;
      if (r.check != nullptr) r.check->record(*t, *e);
      return cudaSuccess;
    }
    // A new place for the time, since work queued for the previous snapshot still writes to the old one.
    if (e->timed) e->reached = std::make_shared<clock::time_point>();
    e->at = record(r, held, *t, e->reached);
    e->recorded = true;
    if (r.check != nullptr) [[unlikely]]
      r.check->record(*t, *e);
    return cudaSuccess;
  });
}

cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return api("cudaStreamWaitEvent", [&](runtime& r, held_lock&) {
    timeline* const t = find_stream(r, stream);
    event_state* const e = r.events.find(event);
    if (t == nullptr || e == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    if (!e->recorded) {
      if (r.check != nullptr) r.check->waited_for_nothing(t, *e);
      return cudaSuccess;
    }
    bool const captured = t->capture != nullptr || e->captured != nullptr;
    if (cudaError_t const code = captured ? capture_wait(r, *t, *e) : cudaSuccess; code != cudaSuccess) return code;
    if (r.check != nullptr) [[unlikely]]
      r.check->wait(*t, *e);
    if (!captured) wait_for(r, *t, e->at);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) {
  return sim::create_event("cudaEventCreate", event, cudaEventDefault);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return sim::create_event("cudaEventCreateWithFlags", event, flags);
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return sim::api("cudaEventQuery", [&](sim::runtime& r, sim::held_lock& held) {
    sim::event_state* e = r.events.find(event);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = sim::admit_wait(r, *e); code != cudaSuccess) return code;
    if (!e->recorded) {
      if (r.check != nullptr) r.check->waited_for_nothing(nullptr, *e);
      return cudaSuccess;
    }
    if (sim::time_passes(r.how) && !sim::done(r, e->at)) {
      sim::let_asker_wait(r, held);
      e = r.events.find(event);  // while a host function ran, another thread may have destroyed it
      if (e == nullptr) return cudaErrorInvalidResourceHandle;
    }
    if (!sim::done(r, e->at)) return cudaErrorNotReady;
    sim::come_after(e->at.reached);
    e->waited_for = true;
    if (r.check != nullptr) [[unlikely]]
      r.check->host_saw(e->seen);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return sim::api("cudaEventSynchronize", [&](sim::runtime& r, sim::held_lock& held) {
    sim::event_state* const e = r.events.find(event);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = sim::admit_wait(r, *e); code != cudaSuccess) return code;
    if (!e->recorded) {
      if (r.check != nullptr) r.check->waited_for_nothing(nullptr, *e);
      sim::force(r, held, std::vector<sim::point>{});
      return cudaSuccess;
    }
    sim::point const end = e->at;
    e->waited_for = true;
    sim::seeing(
        r, [&](sim::order_checker&) { return e->seen; }, [&] { sim::force(r, held, std::vector{end}); });
    sim::come_after(end.reached);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  cudaError_t const code = sim::api("cudaEventDestroy", [&](sim::runtime& r, sim::held_lock&) {
    if (r.events.find(event) == nullptr) return cudaErrorInvalidResourceHandle;
    r.events.remove(event);
    return cudaSuccess;
  });
  if (code != cudaSuccess) [[unlikely]]
    sim::destroy_with_reset([&](sim::runtime& r) {
      if (sim::event_state* const e = r.events.find(event)) e->dies_with_reset = true;
    });
  return code;
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return sim::api("cudaEventElapsedTime", [&](sim::runtime& r, sim::held_lock&) {
    if (ms == nullptr) return cudaErrorInvalidValue;
    sim::event_state const* const from = r.events.find(start);
    sim::event_state const* const to = r.events.find(end);
    for (sim::event_state const* e : {from, to}) {
      if (e == nullptr || !e->timed || !e->recorded) return cudaErrorInvalidResourceHandle;
    }
    if (from->captured != nullptr || to->captured != nullptr) return cudaErrorCapturedEvent;
    if (!sim::done(r, from->at) || !sim::done(r, to->at)) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(*to->reached - *from->reached).count();
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 12080 && CUDART_VERSION < 13000
// The form that toolkit 13 calls `cudaEventElapsedTime`. The two differ in which errors of earlier work they report.
cudaError_t CUDARTAPI cudaEventElapsedTime_v2(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return cudaEventElapsedTime(ms, start, end);
}
#endif

}  // extern "C"
