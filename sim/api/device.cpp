// Devices: which there are, what they can do, and waiting for all of one.

#include "allocations/blocks.hpp"
#include "api/device_attributes.hpp"
#include "api/entry.hpp"
#include "api/host_memory.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/streams.hpp"
#include "scheduler/synchronize.hpp"

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
    *value = sim::device_attribute(r, attribute, device);
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
      if (r.check != nullptr) r.check->taken_back(reinterpret_cast<void*>(address));
      sim::finish_free(r, address, sim::begin_free(r, r.allocations.at(address)));
    }
    sim::forget_registrations(r, device);
    r.current_device().reaches = {};
    for (sim::device_state& other : r.devices) other.reaches[static_cast<std::size_t>(device)] = false;
    r.current_device().flags = 0;
    r.current_device().limits.clear();
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
