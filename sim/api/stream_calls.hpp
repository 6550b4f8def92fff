#pragma once
// The calls on streams that default_stream.cpp passes on, internal: with the stream's handle resolved, never 0.

#include "model/call.hpp"
#include "model/runtime.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace weir::sim::detail {

// ---- streams.cpp
cudaError_t stream_query(cudaStream_t stream);
cudaError_t stream_synchronize(cudaStream_t stream);
cudaError_t stream_get_device(cudaStream_t stream, int* device);
cudaError_t stream_get_flags(cudaStream_t stream, unsigned* flags);
cudaError_t stream_get_id(cudaStream_t stream, unsigned long long* id);
cudaError_t stream_get_priority(cudaStream_t stream, int* priority);

// ---- events.cpp
cudaError_t event_record(call which, cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags);

// ---- captures.cpp
cudaError_t stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t stream_begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t stream_end_capture(cudaStream_t stream, cudaGraph_t* graph);
/// Where the caller wants the nodes that the stream's next one depends on; null: nowhere. What is stored there is valid
/// until the stream's next operation.
struct dependencies_asked {
  cudaGraphNode_t const** nodes = nullptr;
  std::size_t* count = nullptr;
#if CUDART_VERSION >= 12030
  cudaGraphEdgeData const** edges = nullptr;
#endif
};
cudaError_t stream_get_capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                    cudaGraph_t* graph, dependencies_asked const& asked);
cudaError_t stream_update_capture_dependencies(cudaStream_t stream);
cudaError_t stream_begin_capture_to_graph(cudaStream_t stream);

// ---- graphs.cpp
cudaError_t graph_launch(cudaGraphExec_t execution, cudaStream_t stream);

// ---- host_functions.cpp
cudaError_t launch_host_function(cudaStream_t stream, cudaHostFn_t function, void* data);
/// `handle` is what the callback is told, `stream` the stream it is put into.
cudaError_t add_callback(cudaStream_t handle, cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                         unsigned flags);

// ---- stream_ordered.cpp
cudaError_t malloc_async(void** p, std::size_t bytes, cudaStream_t stream);
cudaError_t malloc_from_pool_async(void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
cudaError_t free_async(void* p, cudaStream_t stream);

// ---- managed.cpp; a device is `cudaCpuDeviceId` for the host
inline constexpr int no_device = -2;
int device_at(cudaMemLocation location);
cudaError_t prefetch(void const* p, std::size_t bytes, int device, unsigned flags, cudaStream_t stream);
cudaError_t attach(cudaStream_t stream, void* p, std::size_t bytes, unsigned flags);

// ---- kernels.cpp
/// `function` is what stands for a kernel on the host, or a handle of one.
/// `cudaSuccess` if it is a kernel and launches are skipped; otherwise the code to refuse with.
cudaError_t admit_kernel(runtime& r, call which, void const* function);
cudaError_t launch_kernel(call which, void const* function, dim3 grid, dim3 block, cudaStream_t stream);

// ---- refused.cpp
cudaError_t refuse_symbol(call which, void const* symbol);

// ---- driver_entry_points.cpp
cudaError_t driver_entry_point(call which, char const* symbol, void** function, unsigned version,
                               unsigned long long flags, cudaDriverEntryPointQueryResult* result);

}  // namespace weir::sim::detail
