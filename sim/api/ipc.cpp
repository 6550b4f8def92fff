// Sharing single allocations and events with other processes: refused, always with `cudaErrorNotSupported`. A device
// attribute says so too (`cudaDevAttrIpcEventSupport`).

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

}  // extern "C"
