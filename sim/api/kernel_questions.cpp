// What programs ask of kernels before they launch them. Only device code could answer; where launches are skipped, the
// answers are those of a small kernel, so that the program goes on.

#include "api/device_attributes.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"

#include <algorithm>

namespace weir::sim::detail {
namespace {

int of_current_device(runtime& r, cudaDeviceAttr which) { return device_attribute(r, which, this_thread().device); }

/// Calls `answer(runtime&)` if launches are skipped and the function is a kernel.
template <class Answer>
cudaError_t ask(call which, void const* function, bool valid, Answer answer) {
  return api(which, [&](runtime& r, held_lock&) {
    if (cudaError_t const code = admit_kernel(r, which, function); code != cudaSuccess) return code;
    return valid ? answer(r) : cudaErrorInvalidValue;
  });
}

/// How many blocks of a kernel that needs no more than `shared` fit on a multiprocessor.
int blocks_that_fit(runtime& r, int threads, std::size_t shared) {
  std::size_t const needed =
      shared + static_cast<std::size_t>(of_current_device(r, cudaDevAttrReservedSharedMemoryPerBlock));
  auto const by_shared = static_cast<int>(
      static_cast<std::size_t>(of_current_device(r, cudaDevAttrMaxSharedMemoryPerMultiprocessor)) / needed);
  int const by_threads = of_current_device(r, cudaDevAttrMaxThreadsPerMultiProcessor) / threads;
  return std::min({by_shared, by_threads, of_current_device(r, cudaDevAttrMaxBlocksPerMultiprocessor)});
}

cudaError_t count_blocks(call which, int* count, void const* function, int threads, std::size_t shared) {
  return ask(which, function, count != nullptr && threads > 0, [=](runtime& r) {
    *count = blocks_that_fit(r, threads, shared);
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* attributes, void const* function) {
  return sim::ask("cudaFuncGetAttributes", function, attributes != nullptr, [=](sim::runtime& r) {
    *attributes = {};
    attributes->maxThreadsPerBlock = sim::of_current_device(r, cudaDevAttrMaxThreadsPerBlock);
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = 10 * r.model->major + r.model->minor;
    attributes->maxDynamicSharedSizeBytes = sim::of_current_device(r, cudaDevAttrMaxSharedMemoryPerBlock);
    attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
  });
}

// Taken, and without effect.
cudaError_t CUDARTAPI cudaFuncSetAttribute(void const* function, cudaFuncAttribute, int) {
  return sim::ask("cudaFuncSetAttribute", function, true, [](sim::runtime&) { return cudaSuccess; });
}

cudaError_t CUDARTAPI cudaFuncSetCacheConfig(void const* function, cudaFuncCache) {
  return sim::ask("cudaFuncSetCacheConfig", function, true, [](sim::runtime&) { return cudaSuccess; });
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void const* function, int threads,
                                                                    size_t shared) {
  return sim::count_blocks("cudaOccupancyMaxActiveBlocksPerMultiprocessor", count, function, threads, shared);
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, void const* function,
                                                                             int threads, size_t shared, unsigned) {
  return sim::count_blocks("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", count, function, threads, shared);
}

cudaError_t CUDARTAPI cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, void const* function, int blocks,
                                                                int threads) {
  bool const valid = bytes != nullptr && blocks > 0 && threads > 0;
  return sim::ask("cudaOccupancyAvailableDynamicSMemPerBlock", function, valid, [=](sim::runtime& r) {
    int const each = sim::of_current_device(r, cudaDevAttrMaxSharedMemoryPerMultiprocessor) / blocks -
                     sim::of_current_device(r, cudaDevAttrReservedSharedMemoryPerBlock);
    int const most = sim::of_current_device(r, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    *bytes = static_cast<std::size_t>(std::clamp(each, 0, most));
    return cudaSuccess;
  });
}

}  // extern "C"
