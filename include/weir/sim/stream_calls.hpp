#pragma once
// The calls that depend on a file's default stream, internal: here with the stream's handle resolved, never 0.

#include <weir/sim/call.hpp>

namespace weir::sim::detail {

/// Waiting for the host: `cudaMemcpy` and `cudaMemset` wait where CUDA says so, their `Async` forms elsewhere.
enum class host_waits { as_documented, no };

cudaError_t copy(call which, void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 host_waits waits);
cudaError_t set(call which, void* to, int value, std::size_t bytes, cudaStream_t stream, host_waits waits);

cudaError_t stream_query(cudaStream_t stream);
cudaError_t stream_synchronize(cudaStream_t stream);
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t stream_get_device(cudaStream_t stream, int* device);
cudaError_t stream_get_flags(cudaStream_t stream, unsigned* flags);
cudaError_t stream_get_id(cudaStream_t stream, unsigned long long* id);
cudaError_t stream_get_priority(cudaStream_t stream, int* priority);
cudaError_t stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t stream_begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t stream_end_capture(cudaStream_t stream, cudaGraph_t* graph);
/// `nodes`: the caller also asks for the nodes that the stream's next one depends on.
cudaError_t stream_get_capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                    cudaGraph_t* graph, bool nodes);
cudaError_t graph_launch(cudaGraphExec_t execution, cudaStream_t stream);
cudaError_t launch_host_function(cudaStream_t stream, cudaHostFn_t function, void* data);

cudaError_t event_record(call which, cudaEvent_t event, cudaStream_t stream, unsigned flags);

cudaError_t malloc_async(void** p, std::size_t bytes, cudaStream_t stream);
cudaError_t malloc_from_pool_async(void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
cudaError_t free_async(void* p, cudaStream_t stream);
/// `device` is -1 for the host.
cudaError_t prefetch(void const* p, std::size_t bytes, int device, unsigned flags, cudaStream_t stream);

}  // namespace weir::sim::detail
