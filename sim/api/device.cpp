// Devices: which there are, what they can do, and waiting for all of one.

#include "api/entry.hpp"
#include "api/host_memory.hpp"
#include "api/pitch.hpp"
#include "checker/checker.hpp"
#include "memory/blocks.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

#include <cstdio>
#include <optional>

namespace weir::sim::detail {
namespace {

// What these devices can do. Nothing for an attribute that nobody has thought about yet: no answer beats a wrong one.
std::optional<int> attribute(cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      return 1;
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrHostRegisterReadOnlySupported:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrCanFlushRemoteWrites:
    case cudaDevAttrGPUDirectRDMASupported:
    case cudaDevAttrIpcEventSupport:
    case cudaDevAttrIsMultiGpuBoard:
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrTccDriver:
    case cudaDevAttrComputeMode:
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrAsyncEngineCount:
      return 2;
    case cudaDevAttrMultiProcessorCount:
      return 8;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrTextureAlignment:
      return static_cast<int>(pitch_unit);
    case cudaDevAttrTexturePitchAlignment:
      return 32;
    case cudaDevAttrMaxPitch:
      return static_cast<int>(max_pitch);
    default:
      break;
  }
#if CUDART_VERSION >= 12020
  if (which == cudaDevAttrHostNumaId || which == cudaDevAttrNumaConfig) return 0;
  if (which == cudaDevAttrNumaId) return -1;  // the devices' memory is no node of the host's
#endif
#if CUDART_VERSION >= 13000
  if (which == cudaDevAttrHostMemoryPoolsSupported || which == cudaDevAttrHostNumaMemoryPoolsSupported) return 0;
#endif
  return std::nullopt;
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return sim::api("cudaGetDevice", [&](sim::runtime&, sim::held_lock&) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = sim::this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return sim::api("cudaSetDevice", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    sim::this_thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return sim::api("cudaGetDeviceCount", [&](sim::runtime& r, sim::held_lock&) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = r.device_count;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return sim::api("cudaDeviceGetAttribute", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (value == nullptr || attribute <= 0 || attribute >= cudaDevAttrMax) return cudaErrorInvalidValue;
    std::optional<int> const found = sim::attribute(attribute);
    if (!found) return cudaErrorNotSupported;
    *value = *found;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return sim::api("cudaGetDeviceProperties", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (properties == nullptr) return cudaErrorInvalidValue;
    auto const get = [](cudaDeviceAttr which) { return sim::attribute(which).value_or(0); };
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "weir::sim device %d", device);
    properties->totalGlobalMem = r.device(device).capacity;
    properties->major = get(cudaDevAttrComputeCapabilityMajor);
    properties->minor = get(cudaDevAttrComputeCapabilityMinor);
    properties->multiProcessorCount = get(cudaDevAttrMultiProcessorCount);
    properties->warpSize = get(cudaDevAttrWarpSize);
    properties->maxThreadsPerBlock = get(cudaDevAttrMaxThreadsPerBlock);
    properties->asyncEngineCount = get(cudaDevAttrAsyncEngineCount);
    properties->textureAlignment = sim::pitch_unit;
    properties->texturePitchAlignment = static_cast<std::size_t>(get(cudaDevAttrTexturePitchAlignment));
    properties->memPitch = sim::max_pitch;
    properties->hostRegisterSupported = get(cudaDevAttrHostRegisterSupported);
    properties->canUseHostPointerForRegisteredMem = get(cudaDevAttrCanUseHostPointerForRegisteredMem);
    properties->unifiedAddressing = get(cudaDevAttrUnifiedAddressing);
    properties->managedMemory = get(cudaDevAttrManagedMemory);
    properties->concurrentManagedAccess = get(cudaDevAttrConcurrentManagedAccess);
    properties->canMapHostMemory = get(cudaDevAttrCanMapHostMemory);
    properties->concurrentKernels = get(cudaDevAttrConcurrentKernels);
    properties->streamPrioritiesSupported = get(cudaDevAttrStreamPrioritiesSupported);
    properties->computePreemptionSupported = get(cudaDevAttrComputePreemptionSupported);
    properties->memoryPoolsSupported = get(cudaDevAttrMemoryPoolsSupported);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  return sim::api("cudaDeviceSynchronize", [&](sim::runtime& r, sim::held_lock& held) {
    int const device = sim::this_thread().device;
    if (cudaError_t const code = sim::admit_device_wait(r, device); code != cudaSuccess) return code;
    sim::seeing(
        r, [&](sim::order_checker& check) { return check.end_of_device(device); },
        [&] { sim::force_device(r, held, device); });
    sim::come_after(sim::end_of_device(r, device));
    return cudaSuccess;
  });
}

// Takes the device's streams, events and memory with it, but not what `cudaMallocAsync` and its like gave out.
cudaError_t CUDARTAPI cudaDeviceReset(void) {
  return sim::api("cudaDeviceReset", [&](sim::runtime& r, sim::held_lock& held) {
    int const device = sim::this_thread().device;
    if (cudaError_t const code = sim::admit_device_wait(r, device); code != cudaSuccess) return code;
    sim::seeing(
        r, [&](sim::order_checker& check) { return check.end_of_device(device); },
        [&] { sim::force_device(r, held, device); });
    sim::come_after(sim::end_of_device(r, device));
    r.events.remove_if([&](sim::event_state const& e) { return e.device == device; });
    std::vector<sim::timeline*> over;
    r.streams.remove_if([&](sim::timeline* t) {
      if (t->device == device) over.push_back(t);
      return t->device == device;
    });
    for (sim::timeline* t : over) sim::end_stream(r, t);
    std::vector<std::uintptr_t> addresses;
    for (auto const& [address, a] : r.allocations) {
      if (a.device == device && a.kind != sim::memory_kind::async && !a.freeing) addresses.push_back(address);
    }
    for (std::uintptr_t const address : addresses) {
      if (r.check != nullptr) r.check->forget(reinterpret_cast<void*>(address));
      sim::finish_free(r, address, sim::begin_free(r, r.allocations.at(address)));
    }
    sim::forget_registrations(r, device);
    r.current_device().reaches = {};
    for (sim::device_state& other : r.devices) other.reaches[static_cast<std::size_t>(device)] = false;
    r.current_device().flags = 0;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free, size_t* total) {
  return sim::api("cudaMemGetInfo", [&](sim::runtime& r, sim::held_lock&) {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    sim::device_state const& device = r.current_device();
    *free = device.used < device.capacity ? device.capacity - device.used : 0;
    *total = device.capacity;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  return sim::api("cudaDriverGetVersion", [&](sim::runtime&, sim::held_lock&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  return sim::api("cudaRuntimeGetVersion", [&](sim::runtime&, sim::held_lock&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

}  // extern "C"
