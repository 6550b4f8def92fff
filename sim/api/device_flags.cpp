// How the host is to wait for a device. The flags are kept and returned, and have no effect here.

#include "api/entry.hpp"

namespace weir::sim::detail {
namespace {

// What `cudaSetDeviceFlags` takes: one way to wait, and two switches.
bool valid(unsigned flags) {
  constexpr unsigned switches = cudaDeviceMapHost | cudaDeviceLmemResizeToMax | cudaDeviceSyncMemops;
  unsigned const schedule = flags & ~switches;
  return schedule == cudaDeviceScheduleAuto || schedule == cudaDeviceScheduleSpin ||
         schedule == cudaDeviceScheduleYield || schedule == cudaDeviceScheduleBlockingSync;
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags) {
  return sim::api("cudaSetDeviceFlags", [&](sim::runtime& r, sim::held_lock&) {
    if (!sim::valid(flags)) return cudaErrorInvalidValue;
    r.current_device().flags = flags;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int* flags) {
  return sim::api("cudaGetDeviceFlags", [&](sim::runtime& r, sim::held_lock&) {
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = r.current_device().flags | cudaDeviceMapHost;  // which the runtime always sets
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  return sim::api("cudaInitDevice", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    bool const sets_flags = flags == cudaInitDeviceFlagsAreValid;
    if ((flags != 0 && !sets_flags) || (sets_flags && !sim::valid(device_flags))) return cudaErrorInvalidValue;
    if (sets_flags) r.device(device).flags = device_flags;
    return cudaSuccess;
  });
}

}  // extern "C"
