// Streams: their creation, their end, and what can be asked of them.

#include "scheduler/streams.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/synchronize.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

// Least and greatest priority; the smaller number comes first.
constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

enum class in_capture { answers, breaks_it };

template <class T, class Get>
cudaError_t ask(call which, cudaStream_t stream, T* answer, in_capture then, Get get) {
  return api(which, [&](runtime& r, held_lock&) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (answer == nullptr) return cudaErrorInvalidValue;
    if (then == in_capture::breaks_it && t->capture != nullptr) return admit_wait(r, *t);
    *answer = get(*t);
    return cudaSuccess;
  });
}

cudaError_t create(call which, cudaStream_t* stream, unsigned flags, int priority) {
  return api(which, [&](runtime& r, held_lock&) {
    if (stream == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
    int const kept = std::clamp(priority, greatest_priority, least_priority);
    *stream = r.streams.add(make_timeline(r, this_thread().device, flags, kept));
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t stream_query(cudaStream_t stream) {
  return api("cudaStreamQuery", [&](runtime& r, held_lock&) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;
    if (!done(r, *t)) return cudaErrorNotReady;
    come_after(end_of(r, *t));
    if (r.check != nullptr) [[unlikely]]
      r.check->host_saw(r.check->end_of(*t));
    return cudaSuccess;
  });
}

cudaError_t stream_synchronize(cudaStream_t stream) {
  return api("cudaStreamSynchronize", [&](runtime& r, held_lock& held) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;
    synchronize(r, held, *t);
    return cudaSuccess;
  });
}

cudaError_t stream_get_device(cudaStream_t stream, int* device) {
  return ask("cudaStreamGetDevice", stream, device, in_capture::breaks_it, [](timeline const& t) { return t.device; });
}
cudaError_t stream_get_flags(cudaStream_t stream, unsigned* flags) {
  return ask("cudaStreamGetFlags", stream, flags, in_capture::answers, [](timeline const& t) { return t.flags; });
}
cudaError_t stream_get_id(cudaStream_t stream, unsigned long long* id) {
  return ask("cudaStreamGetId", stream, id, in_capture::breaks_it,
             [](timeline const& t) { return static_cast<unsigned long long>(t.id); });
}
cudaError_t stream_get_priority(cudaStream_t stream, int* priority) {
  return ask("cudaStreamGetPriority", stream, priority, in_capture::answers,
             [](timeline const& t) { return t.priority; });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* stream) {
  return sim::create("cudaStreamCreate", stream, cudaStreamDefault, 0);
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return sim::create("cudaStreamCreateWithFlags", stream, flags, 0);
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return sim::create("cudaStreamCreateWithPriority", stream, flags, priority);
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  cudaError_t const code = sim::api("cudaStreamDestroy", [&](sim::runtime& r, sim::held_lock&) {
    sim::timeline** const found = r.streams.find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    sim::timeline* const t = *found;
    r.streams.remove(stream);  // the handle may come back at once, though the work goes on
    sim::end_stream(r, t);
    return cudaSuccess;
  });
  if (code != cudaSuccess) [[unlikely]]
    sim::destroy_with_reset([&](sim::runtime& r) {
      if (sim::timeline** const found = r.streams.find(stream)) (*found)->dies_with_reset = true;
    });
  return code;
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return sim::api("cudaDeviceGetStreamPriorityRange", [&](sim::runtime&, sim::held_lock&) {
    if (least != nullptr) *least = sim::least_priority;
    if (greatest != nullptr) *greatest = sim::greatest_priority;
    return cudaSuccess;
  });
}

}  // extern "C"
