// Prefetch, advice and attachment of managed memory: the arguments are checked as CUDA does, and there is no effect.

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

namespace weir::sim::detail {

int device_at(cudaMemLocation location) {
  if (location.type == cudaMemLocationTypeDevice) return location.id;
  bool const on_host = location.type == cudaMemLocationTypeHost || location.type == cudaMemLocationTypeHostNuma ||
                       location.type == cudaMemLocationTypeHostNumaCurrent;
  return on_host ? cudaCpuDeviceId : no_device;
}

cudaError_t attach(cudaStream_t stream, void* p, std::size_t bytes, unsigned flags) {
  return api("cudaStreamAttachMemAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    allocation const* const a = find_live(r, p);
    bool const whole = a != nullptr && a->kind == memory_kind::managed && (bytes == 0 || bytes == a->bytes);
    bool const known = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    // Memory cannot be attached to the legacy stream alone.
    if (!whole || !known || (flags == cudaMemAttachSingle && t->legacy)) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;  // no part of a graph
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [](held_lock&) {});  // a hint, but one that takes its place in the stream
    return cudaSuccess;
  });
}

cudaError_t prefetch(void const* p, std::size_t bytes, int device, unsigned flags, cudaStream_t stream) {
  return api("cudaMemPrefetchAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (device < cudaCpuDeviceId || device >= r.device_count) return cudaErrorInvalidDevice;
    range const what = look_up(r, p, bytes);
    if (flags != 0 || bytes == 0 || !what.valid || !what.is(memory_kind::managed)) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [](held_lock&) {});  // a hint, but one that takes its place in the stream
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

namespace {

cudaError_t advise(void const* p, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  return sim::api("cudaMemAdvise", [&](sim::runtime& r, sim::held_lock&) {
    bool const ignores_device = advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly ||
                                advice == cudaMemAdviseUnsetPreferredLocation;
    sim::range const what = sim::look_up(r, p, bytes);
    if (bytes == 0 || !what.valid || !what.is(sim::memory_kind::managed)) return cudaErrorInvalidValue;
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy) return cudaErrorInvalidValue;
    if (!ignores_device && (device < cudaCpuDeviceId || device >= r.device_count)) return cudaErrorInvalidDevice;
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaMemAdvise(void const* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return advise(p, bytes, advice, sim::device_at(location));
}
#else
cudaError_t CUDARTAPI cudaMemAdvise(void const* p, size_t bytes, cudaMemoryAdvise advice, int device) {
  return advise(p, bytes, advice, device);
}

// Toolkit 12 has the form of 13 under this name.
cudaError_t CUDARTAPI cudaMemAdvise_v2(void const* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return advise(p, bytes, advice, sim::device_at(location));
}
#endif

}  // extern "C"
