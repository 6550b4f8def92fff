// The runtime's functions that take a stream or use the default one. This file is compiled twice: as it is, and by
// default_stream_per_thread.cpp, where NVIDIA's header gives each of these functions its per-thread twin's name.

#include "api/copies.hpp"
#include "api/copies_3d.hpp"
#include "api/stream_calls.hpp"

namespace sim = weir::sim::detail;

namespace {

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
cudaStream_t default_stream() { return cudaStreamPerThread; }
#else
cudaStream_t default_stream() { return cudaStreamLegacy; }
#endif

cudaStream_t resolve(cudaStream_t stream) { return stream != nullptr ? stream : default_stream(); }

// A function of the driver is found for the caller's default stream, unless it says for which.
unsigned long long resolve(unsigned long long flags) {
  if (flags != cudaEnableDefault) return flags;
  return default_stream() == cudaStreamPerThread ? cudaEnablePerThreadDefaultStream : cudaEnableLegacyStream;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMemcpy(void* to, void const* from, size_t bytes, cudaMemcpyKind kind) {
  return sim::copy("cudaMemcpy", to, from, {bytes}, kind, default_stream(), sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, void const* from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return sim::copy("cudaMemcpyAsync", to, from, {bytes}, kind, resolve(stream), sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaMemset(void* to, int value, size_t bytes) {
  return sim::set("cudaMemset", to, value, {bytes}, default_stream(), sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return sim::set("cudaMemsetAsync", to, value, {bytes}, resolve(stream), sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaMemcpy2D(void* to, size_t to_pitch, void const* from, size_t from_pitch, size_t width,
                                   size_t height, cudaMemcpyKind kind) {
  return sim::copy("cudaMemcpy2D", to, from, {width, height, to_pitch, from_pitch}, kind, default_stream(),
                   sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* to, size_t to_pitch, void const* from, size_t from_pitch, size_t width,
                                        size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return sim::copy("cudaMemcpy2DAsync", to, from, {width, height, to_pitch, from_pitch}, kind, resolve(stream),
                   sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return sim::set("cudaMemset2D", to, value, {width, height, pitch}, default_stream(), sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                                        cudaStream_t stream) {
  return sim::set("cudaMemset2DAsync", to, value, {width, height, pitch}, resolve(stream), sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaMemcpy3D(cudaMemcpy3DParms const* asked) {
  return sim::copy_slices("cudaMemcpy3D", asked, default_stream(), sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemcpy3DAsync(cudaMemcpy3DParms const* asked, cudaStream_t stream) {
  return sim::copy_slices("cudaMemcpy3DAsync", asked, resolve(stream), sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaMemcpy3DPeer(cudaMemcpy3DPeerParms const* asked) {
  return sim::copy_slices("cudaMemcpy3DPeer", asked, default_stream(), sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemcpy3DPeerAsync(cudaMemcpy3DPeerParms const* asked, cudaStream_t stream) {
  return sim::copy_slices("cudaMemcpy3DPeerAsync", asked, resolve(stream), sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  return sim::set_slices("cudaMemset3D", to, value, extent, default_stream(), sim::host_waits::as_documented);
}

cudaError_t CUDARTAPI cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t stream) {
  return sim::set_slices("cudaMemset3DAsync", to, value, extent, resolve(stream), sim::host_waits::no);
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) { return sim::stream_query(resolve(stream)); }

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) { return sim::stream_synchronize(resolve(stream)); }

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return sim::stream_wait_event(resolve(stream), event, flags);
}

#if CUDART_VERSION >= 12080
cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return sim::stream_get_device(resolve(stream), device);
}
#endif

cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return sim::stream_get_flags(resolve(stream), flags);
}

cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return sim::stream_get_id(resolve(stream), id);
}

cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return sim::stream_get_priority(resolve(stream), priority);
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return sim::stream_is_capturing(resolve(stream), status);
}

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return sim::stream_begin_capture(resolve(stream), mode);
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return sim::stream_end_capture(resolve(stream), graph);
}

// NOLINTBEGIN(readability-non-const-parameter): the types are NVIDIA's
#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               cudaGraphNode_t const** nodes, cudaGraphEdgeData const** edges,
                                               size_t* count) {
  return sim::stream_get_capture_info(resolve(stream), status, id, graph, {nodes, count, edges});
}
#else  // NVIDIA's header gives this the name of its second version
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               cudaGraphNode_t const** nodes, size_t* count) {
  return sim::stream_get_capture_info(resolve(stream), status, id, graph, {.nodes = nodes, .count = count});
}
#endif

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t*,
                                                          cudaGraphEdgeData const*, size_t, unsigned int) {
  return sim::stream_update_capture_dependencies(resolve(stream));
}
#else
cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t*, size_t, unsigned int) {
  return sim::stream_update_capture_dependencies(resolve(stream));
}
#endif

#if CUDART_VERSION >= 12030
// A capture makes a graph of its own here.
cudaError_t CUDARTAPI cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t, cudaGraphNode_t const*,
                                                    cudaGraphEdgeData const*, size_t, cudaStreamCaptureMode) {
  return sim::stream_begin_capture_to_graph(resolve(stream));
}
#endif
// NOLINTEND(readability-non-const-parameter)

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t execution, cudaStream_t stream) {
  return sim::graph_launch(execution, resolve(stream));
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return sim::launch_host_function(resolve(stream), function, data);
}

cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                            unsigned int flags) {
  return sim::add_callback(stream, resolve(stream), callback, data, flags);
}

cudaError_t CUDARTAPI cudaStreamAttachMemAsync(cudaStream_t stream, void* p, size_t bytes, unsigned int flags) {
  return sim::attach(resolve(stream), p, bytes, flags);
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return sim::event_record("cudaEventRecord", event, resolve(stream), cudaEventRecordDefault);
}

cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return sim::event_record("cudaEventRecordWithFlags", event, resolve(stream), flags);
}

cudaError_t CUDARTAPI cudaMallocAsync(void** p, size_t bytes, cudaStream_t stream) {
  return sim::malloc_async(p, bytes, resolve(stream));
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return sim::malloc_from_pool_async(p, bytes, pool, resolve(stream));
}

cudaError_t CUDARTAPI cudaFreeAsync(void* p, cudaStream_t stream) { return sim::free_async(p, resolve(stream)); }

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaMemPrefetchAsync(void const* p, size_t bytes, cudaMemLocation location, unsigned int flags,
                                           cudaStream_t stream) {
  return sim::prefetch(p, bytes, sim::device_at(location), flags, resolve(stream));
}
#else
cudaError_t CUDARTAPI cudaMemPrefetchAsync(void const* p, size_t bytes, int device, cudaStream_t stream) {
  return sim::prefetch(p, bytes, device, 0, resolve(stream));
}

// Toolkit 12 has the form of 13 under this name.
cudaError_t CUDARTAPI cudaMemPrefetchAsync_v2(void const* p, size_t bytes, cudaMemLocation location, unsigned int flags,
                                              cudaStream_t stream) {
  return sim::prefetch(p, bytes, sim::device_at(location), flags, resolve(stream));
}
#endif

cudaError_t CUDARTAPI cudaGetDriverEntryPoint(char const* symbol, void** function, unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* result) {
  return sim::driver_entry_point("cudaGetDriverEntryPoint", symbol, function, CUDART_VERSION, resolve(flags), result);
}

#if CUDART_VERSION >= 12050
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(char const* symbol, void** function, unsigned int version,
                                                       unsigned long long flags,
                                                       cudaDriverEntryPointQueryResult* result) {
  return sim::driver_entry_point("cudaGetDriverEntryPointByVersion", symbol, function, version, resolve(flags), result);
}
#endif

cudaError_t CUDARTAPI cudaLaunchKernel(void const* function, dim3 grid, dim3 block, void**, size_t,
                                       cudaStream_t stream) {
  return sim::launch_kernel("cudaLaunchKernel", function, grid, block, resolve(stream));
}

cudaError_t CUDARTAPI cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* function, void**) {
  cudaLaunchConfig_t const how = config == nullptr ? cudaLaunchConfig_t{} : *config;  // of no threads: refused
  return sim::launch_kernel("cudaLaunchKernelExC", function, how.gridDim, how.blockDim, resolve(how.stream));
}

cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(void const* function, dim3 grid, dim3 block, void**, size_t,
                                                  cudaStream_t stream) {
  return sim::launch_kernel("cudaLaunchCooperativeKernel", function, grid, block, resolve(stream));
}

// A device's variables have no memory here.
cudaError_t CUDARTAPI cudaMemcpyToSymbol(void const* symbol, void const*, size_t, size_t, cudaMemcpyKind) {
  return sim::refuse_symbol("cudaMemcpyToSymbol", symbol);
}

}  // extern "C"
