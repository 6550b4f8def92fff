// Host functions, and stream callbacks, their older form.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

namespace weir::sim::detail {
namespace {

// Before the function runs: it may tell another thread at any time.
void tell_host(host_function_place const* place) {
  runtime const& r = state();
  if (place != nullptr && r.check != nullptr) r.check->host_function_begins(*place);
}

}  // namespace

cudaError_t launch_host_function(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return api("cudaLaunchHostFunc", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    std::shared_ptr<host_function_place const> place;
    if (r.check != nullptr) [[unlikely]]
      place = std::make_shared<host_function_place const>(r.check->host_function(*t, r.check->operate(*t)));
    auto const call = [function, data, place](held_lock& lock) {
      in_host_function const scope(place.get());
      tell_host(place.get());
      unlocked(lock, [function, data] { function(data); });
    };
    submit(r, held, *t, call, operation_kind::host_function);
    return cudaSuccess;
  });
}

cudaError_t add_callback(cudaStream_t handle, cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                         unsigned flags) {
  return api("cudaStreamAddCallback", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_wait(r, *t); code != cudaSuccess) return code;  // no part of a graph
    std::shared_ptr<host_function_place const> place;
    if (r.check != nullptr) [[unlikely]]
      place = std::make_shared<host_function_place const>(r.check->host_function(*t, r.check->operate(*t)));
    auto const call = [handle, callback, data, place](held_lock& lock) {
      in_host_function const scope(place.get());
      tell_host(place.get());
      unlocked(lock, [handle, callback, data] { callback(handle, cudaSuccess, data); });
    };
    submit(r, held, *t, call, operation_kind::host_function);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
