// Sharing memory and events with other processes: refused, always with `cudaErrorNotSupported`. The device attributes
// say so too (`cudaDevAttrIpcEventSupport`, `cudaDevAttrMemoryPoolSupportedHandleTypes`).

#include "api/entry.hpp"

namespace weir::sim::detail {
namespace {

cudaError_t not_supported(call which) {
  return api(which, [](runtime&, held_lock&) { return cudaErrorNotSupported; });
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return sim::not_supported("cudaIpcGetMemHandle");
}

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned int) {
  return sim::not_supported("cudaIpcOpenMemHandle");
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void*) { return sim::not_supported("cudaIpcCloseMemHandle"); }

cudaError_t CUDARTAPI cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return sim::not_supported("cudaIpcGetEventHandle");
}

cudaError_t CUDARTAPI cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return sim::not_supported("cudaIpcOpenEventHandle");
}

cudaError_t CUDARTAPI cudaMemPoolExportToShareableHandle(void*, cudaMemPool_t, cudaMemAllocationHandleType,
                                                         unsigned int) {
  return sim::not_supported("cudaMemPoolExportToShareableHandle");
}

cudaError_t CUDARTAPI cudaMemPoolImportFromShareableHandle(cudaMemPool_t*, void*, cudaMemAllocationHandleType,
                                                           unsigned int) {
  return sim::not_supported("cudaMemPoolImportFromShareableHandle");
}

cudaError_t CUDARTAPI cudaMemPoolExportPointer(cudaMemPoolPtrExportData*, void*) {
  return sim::not_supported("cudaMemPoolExportPointer");
}

cudaError_t CUDARTAPI cudaMemPoolImportPointer(void**, cudaMemPool_t, cudaMemPoolPtrExportData*) {
  return sim::not_supported("cudaMemPoolImportPointer");
}

}  // extern "C"
