// Devices: which there are, what they can do, and waiting for all of one.

#include "allocations/blocks.hpp"
#include "api/device_attributes.hpp"
#include "api/entry.hpp"
#include "api/host_memory.hpp"
#include "api/pitch.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/streams.hpp"
#include "scheduler/synchronize.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>

namespace weir::sim::detail {
namespace {

struct attribute_value {
  cudaDeviceAttr which;
  int value;
};

// What these devices can do.
constexpr attribute_value attributes[] = {
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrComputePreemptionSupported, 1},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrMemoryPoolSupportedHandleTypes, cudaMemHandleTypePosixFileDescriptor},
    {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0},
    {cudaDevAttrDirectManagedMemAccessFromHost, 0},
    {cudaDevAttrHostRegisterReadOnlySupported, 0},
    {cudaDevAttrHostNativeAtomicSupported, 0},
    {cudaDevAttrCanFlushRemoteWrites, 0},
    {cudaDevAttrGPUDirectRDMASupported, 0},
    {cudaDevAttrIpcEventSupport, 0},
    {cudaDevAttrIsMultiGpuBoard, 0},
    {cudaDevAttrIntegrated, 0},
    {cudaDevAttrEccEnabled, 0},
    {cudaDevAttrTccDriver, 0},
    {cudaDevAttrComputeMode, 0},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrAsyncEngineCount, 2},
    {cudaDevAttrMultiProcessorCount, 8},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrTextureAlignment, static_cast<int>(pitch_unit)},
    {cudaDevAttrTexturePitchAlignment, 32},
    {cudaDevAttrMaxPitch, static_cast<int>(max_pitch)},
#if CUDART_VERSION >= 12020
    {cudaDevAttrHostNumaId, 0},
    {cudaDevAttrNumaConfig, 0},
    {cudaDevAttrNumaId, -1},  // the devices' memory is no NUMA node of the host
#endif
#if CUDART_VERSION >= 13000
    {cudaDevAttrHostMemoryPoolsSupported, 1},
    {cudaDevAttrHostNumaMemoryPoolsSupported, 1},
#endif
};

}  // namespace

std::optional<int> device_attribute(cudaDeviceAttr which) {
  if (which == cudaDevAttrPageableMemoryAccess) return state().pageable_access ? 1 : 0;
  auto const* const found = std::find_if(std::begin(attributes), std::end(attributes),
                                         [which](attribute_value const& a) { return a.which == which; });
  return found == std::end(attributes) ? std::nullopt : std::optional(found->value);
}

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
    std::optional<int> const found = sim::device_attribute(attribute);
    if (!found) return cudaErrorNotSupported;
    *value = *found;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return sim::api("cudaGetDeviceProperties", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (properties == nullptr) return cudaErrorInvalidValue;
    auto const get = [](cudaDeviceAttr which) { return sim::device_attribute(which).value_or(0); };
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
    properties->pageableMemoryAccess = get(cudaDevAttrPageableMemoryAccess);
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
    sim::synchronize_device(r, held, device);
    return cudaSuccess;
  });
}

// Ends the device's streams and events and frees its memory, except stream-ordered memory.
cudaError_t CUDARTAPI cudaDeviceReset(void) {
  return sim::api("cudaDeviceReset", [&](sim::runtime& r, sim::held_lock& held) {
    int const device = sim::this_thread().device;
    if (cudaError_t const code = sim::admit_device_wait(r, device); code != cudaSuccess) return code;
    sim::synchronize_device(r, held, device);
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
