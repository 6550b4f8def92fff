// How much kernels may take besides their arguments: stacks, heaps, buffers. Kept and returned; there are no kernels.

#include "api/device_attributes.hpp"
#include "api/entry.hpp"

#include <algorithm>
#include <optional>

namespace weir::sim::detail {
namespace {

// What a limit is before a program sets it; none if devices do not have it.
std::optional<std::size_t> default_limit(runtime& r, cudaLimit which) {
  switch (which) {
    case cudaLimitStackSize:
      return 1024;
    case cudaLimitPrintfFifoSize:
      return std::size_t{1} << 20;
    case cudaLimitMallocHeapSize:
      return std::size_t{8} << 20;
    case cudaLimitDevRuntimePendingLaunchCount:
      return 2048;
    case cudaLimitMaxL2FetchGranularity:
      return 64;
    case cudaLimitPersistingL2CacheSize:
      return 0;
    case cudaLimitDevRuntimeSyncDepth:
      if (r.model->major < 9) return 2;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// CUDA is free to give another value than was asked for: what the device has is the most.
std::size_t adjusted(runtime& r, cudaLimit which, std::size_t value) {
  if (which != cudaLimitPersistingL2CacheSize) return value;
  int const most = device_attribute(r, cudaDevAttrMaxPersistingL2CacheSize, this_thread().device);
  return std::min(value, static_cast<std::size_t>(most));
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaDeviceSetLimit(cudaLimit which, size_t value) {
  return sim::api("cudaDeviceSetLimit", [=](sim::runtime& r, sim::held_lock&) {
    if (!sim::default_limit(r, which)) return cudaErrorUnsupportedLimit;
    r.current_device().limits[which] = sim::adjusted(r, which, value);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t* value, cudaLimit which) {
  return sim::api("cudaDeviceGetLimit", [=](sim::runtime& r, sim::held_lock&) {
    std::optional<std::size_t> const by_default = sim::default_limit(r, which);
    if (!by_default) return cudaErrorUnsupportedLimit;
    if (value == nullptr) return cudaErrorInvalidValue;
    auto const set = r.current_device().limits.find(which);
    *value = set == r.current_device().limits.end() ? *by_default : set->second;
    return cudaSuccess;
  });
}

}  // extern "C"
