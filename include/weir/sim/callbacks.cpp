// Stream callbacks, the older form of host functions.

#include <weir/sim/capture.hpp>
#include <weir/sim/checker.hpp>
#include <weir/sim/schedule.hpp>
#include <weir/sim/stream_calls.hpp>

namespace weir::sim::detail {

cudaError_t add_callback(cudaStream_t handle, cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                         unsigned flags) {
  return api("cudaStreamAddCallback", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;  // no part of a graph
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [handle, callback, data](held_lock& lock) {
      lock.unlock();
      this_thread().in_host_function = true;
      callback(handle, cudaSuccess, data);
      this_thread().in_host_function = false;
      lock.lock();
    });
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
