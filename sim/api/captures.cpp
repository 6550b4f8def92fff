// Stream capture: the calls that begin it, end it and ask about it.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/streams.hpp"

#include <utility>

namespace weir::sim::detail {
namespace {

bool is_mode(cudaStreamCaptureMode mode) {
  return mode == cudaStreamCaptureModeGlobal || mode == cudaStreamCaptureModeThreadLocal ||
         mode == cudaStreamCaptureModeRelaxed;
}

}  // namespace

cudaError_t stream_begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", [&](runtime& r, held_lock&) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    return is_mode(mode) ? begin_capture(r, *t, mode) : cudaErrorInvalidValue;
  });
}

cudaError_t stream_end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  return api("cudaStreamEndCapture", [&](runtime& r, held_lock&) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph == nullptr) return cudaErrorInvalidValue;
    *graph = nullptr;
    return end_capture(r, *t, *graph);
  });
}

cudaError_t stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return api("cudaStreamIsCapturing", [&](runtime& r, held_lock&) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    return status == nullptr ? cudaErrorInvalidValue : status_of(r, *t, *status);
  });
}

cudaError_t stream_get_capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                    cudaGraph_t* graph, dependencies_asked const& asked) {
  return api("cudaStreamGetCaptureInfo", [&](runtime& r, held_lock&) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t const code = status_of(r, *t, *status); code != cudaSuccess) return code;
    if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
    if (id != nullptr) *id = t->capture->id;
    if (graph != nullptr) *graph = t->capture->handle;
    participant& its = t->capture->streams.at(t->id);
    if (asked.nodes != nullptr) *asked.nodes = its.next_after.data();
    if (asked.count != nullptr) *asked.count = its.next_after.size();
#if CUDART_VERSION >= 12030
    if (asked.edges != nullptr) {
      its.edges.assign(its.next_after.size(), {});
      *asked.edges = its.edges.data();
    }
#endif
    return cudaSuccess;
  });
}

// Which nodes come next is decided by streams and events alone here.
cudaError_t stream_update_capture_dependencies(cudaStream_t stream) {
  return api("cudaStreamUpdateCaptureDependencies", [&](runtime& r, held_lock&) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    return t->capture == nullptr ? cudaErrorIllegalState : cudaErrorNotSupported;
  });
}

cudaError_t stream_begin_capture_to_graph(cudaStream_t stream) {
  return api("cudaStreamBeginCaptureToGraph", [&](runtime& r, held_lock&) {
    return find_stream(r, stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaErrorNotSupported;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return sim::api("cudaThreadExchangeStreamCaptureMode", [&](sim::runtime&, sim::held_lock&) {
    if (mode == nullptr || !sim::is_mode(*mode)) return cudaErrorInvalidValue;
    *mode = std::exchange(sim::this_thread().capture_mode, *mode);
    return cudaSuccess;
  });
}
