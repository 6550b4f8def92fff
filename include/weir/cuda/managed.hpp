#pragma once
// Where managed memory shall be: prefetches and advice, in the signatures of CUDA 12 and of CUDA 13.

#include <weir/cuda/capture.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace weir::detail {

#if CUDART_VERSION >= 13000
/// `device`, or the host for `cudaCpuDeviceId`.
inline cudaMemLocation location_of(int device) noexcept {
  cudaMemLocation location{};
  location.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device == cudaCpuDeviceId ? 0 : device;
  return location;
}
#endif

/// Moves what of the memory is elsewhere to `device` (`cudaCpuDeviceId`: the host), behind the work of `stream`, which
/// must not be capturing: a graph has no node for it. A hint; the caller clears the error.
inline cudaError_t prefetch_to(void* p, std::size_t bytes, int device, cudaStream_t stream) noexcept {
#if CUDART_VERSION >= 13000
  return cudaMemPrefetchAsync(p, bytes, location_of(device), 0, stream);
#else
  return cudaMemPrefetchAsync(p, bytes, device, stream);
#endif
}

/// The same for advice, which takes effect at once.
inline cudaError_t advise(void* p, std::size_t bytes, cudaMemoryAdvise advice, int device) noexcept {
#if CUDART_VERSION >= 13000
  return relaxed([&] { return cudaMemAdvise(p, bytes, advice, location_of(device)); });
#else
  return relaxed([&] { return cudaMemAdvise(p, bytes, advice, device); });
#endif
}

}  // namespace weir::detail
