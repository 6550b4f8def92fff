// Calls that are there for programs whose libraries name them, and that need what the simulated runtime has not: device
// code and its variables, graphs built by hand. Each is refused with a code that CUDA documents for it.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"

namespace weir::sim::detail {
namespace {

cudaError_t refuse(call which, cudaError_t code) {
  return api(which, [code](runtime&, held_lock&) { return code; });
}

}  // namespace

cudaError_t refuse_symbol(call which, void const*) { return refuse(which, cudaErrorInvalidSymbol); }

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaGetSymbolAddress(void**, void const* symbol) {
  return sim::refuse_symbol("cudaGetSymbolAddress", symbol);
}

// ---- graphs built by hand, and what they keep alive
#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, cudaGraphNode_t const*, cudaGraphEdgeData const*,
                                       size_t, cudaGraphNodeParams*) {
  return sim::refuse("cudaGraphAddNode", cudaErrorNotSupported);
}
#else
cudaError_t CUDARTAPI cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, cudaGraphNode_t const*, size_t,
                                       cudaGraphNodeParams*) {
  return sim::refuse("cudaGraphAddNode", cudaErrorNotSupported);
}
#endif

#if CUDART_VERSION >= 12030
cudaError_t CUDARTAPI cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned, unsigned) {
  return sim::refuse("cudaGraphConditionalHandleCreate", cudaErrorNotSupported);
}
#endif

cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned) {
  return sim::refuse("cudaUserObjectCreate", cudaErrorNotSupported);
}

cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t, unsigned) {
  return sim::refuse("cudaUserObjectRelease", cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  return sim::refuse("cudaGraphRetainUserObject", cudaErrorInvalidValue);
}

// ---- libraries of kernels: none can be loaded, so that no handle of one is valid
#if CUDART_VERSION >= 12080
cudaError_t CUDARTAPI cudaLibraryLoadData(cudaLibrary_t*, void const*, cudaJitOption*, void**, unsigned,
                                          cudaLibraryOption*, void**, unsigned) {
  return sim::refuse("cudaLibraryLoadData", cudaErrorNoKernelImageForDevice);
}

cudaError_t CUDARTAPI cudaLibraryLoadFromFile(cudaLibrary_t*, char const*, cudaJitOption*, void**, unsigned,
                                              cudaLibraryOption*, void**, unsigned) {
  return sim::refuse("cudaLibraryLoadFromFile", cudaErrorNoKernelImageForDevice);
}

cudaError_t CUDARTAPI cudaLibraryUnload(cudaLibrary_t) {
  return sim::refuse("cudaLibraryUnload", cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, char const*) {
  return sim::refuse("cudaLibraryGetKernel", cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaLibraryGetKernelCount(unsigned*, cudaLibrary_t) {
  return sim::refuse("cudaLibraryGetKernelCount", cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaLibraryGetGlobal(void**, size_t*, cudaLibrary_t, char const*) {
  return sim::refuse("cudaLibraryGetGlobal", cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaLibraryGetManaged(void**, size_t*, cudaLibrary_t, char const*) {
  return sim::refuse("cudaLibraryGetManaged", cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaLibraryGetUnifiedFunction(void**, cudaLibrary_t, char const*) {
  return sim::refuse("cudaLibraryGetUnifiedFunction", cudaErrorInvalidResourceHandle);
}

cudaError_t CUDARTAPI cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return sim::refuse("cudaKernelSetAttributeForDevice", cudaErrorInvalidDeviceFunction);
}
#endif

}  // extern "C"
