// Managed memory: where it is meant to be, and whose it is. Checked as CUDA checks it, then without effect.

#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "model/memory.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"

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
    // Not to the legacy stream alone: that is no single stream.
    if (!whole || !known || (flags == cudaMemAttachSingle && t->legacy)) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;  // no part of a graph
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [](held_lock&) {});  // a hint, but one that takes its place in the stream
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
