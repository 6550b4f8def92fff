// The driver's contexts: each device has its primary one, and no other. One is always current, as in a program whose
// thread has used the runtime before, and it is that of the runtime's current device.

#include "api/driver_as_runtime.hpp"
#include "api/driver_functions.hpp"
#include "scheduler/streams.hpp"

#include <cstddef>

namespace weir::sim::detail {
namespace {

// A context's handle is an address here: one that no program can mistake for its own.
char handles[max_devices];

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(&handles[device]); }

bool find_device(runtime& r, CUcontext context, int& device) {
  for (device = 0; device < r.device_count; ++device)
    if (context_of(device) == context) return true;
  return false;
}

}  // namespace

CUresult primary_context_retain(CUcontext* context, CUdevice device) {
  return driver_api("cuDevicePrimaryCtxRetain", [=](runtime& r, held_lock&) {
    if (context == nullptr) return cudaErrorInvalidValue;
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    *context = context_of(device);
    return cudaSuccess;
  });
}

CUresult primary_context_release(CUdevice device) {
  return driver_api("cuDevicePrimaryCtxRelease", [=](runtime& r, held_lock&) {
    return r.has_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

CUresult primary_context_get_state(CUdevice device, unsigned* flags, int* active) {
  return driver_api("cuDevicePrimaryCtxGetState", [=](runtime& r, held_lock&) {
    if (flags == nullptr || active == nullptr) return cudaErrorInvalidValue;
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    *flags = r.device(device).flags;
    *active = 1;
    return cudaSuccess;
  });
}

CUresult primary_context_set_flags(CUdevice device, unsigned flags) {
  return driver_api("cuDevicePrimaryCtxSetFlags", [=](runtime& r, held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    r.device(device).flags = flags;
    return cudaSuccess;
  });
}

// Null would leave the thread without a context; here it keeps the one that it has.
CUresult context_set_current(CUcontext context) {
  return driver_api("cuCtxSetCurrent", [=](runtime& r, held_lock&) {
    int device = this_thread().device;
    if (context != nullptr && !find_device(r, context, device)) return cudaErrorDeviceUninitialized;
    this_thread().device = device;
    return cudaSuccess;
  });
}

CUresult context_push(CUcontext context) {
  return driver_api("cuCtxPushCurrent", [=](runtime& r, held_lock&) {
    thread_state& me = this_thread();
    int device = 0;
    if (!find_device(r, context, device)) return cudaErrorDeviceUninitialized;  // the driver's "invalid context"
    if (me.contexts_below == me.devices_below.size()) return cudaErrorMemoryAllocation;
    me.devices_below[me.contexts_below++] = me.device;
    me.device = device;
    return cudaSuccess;
  });
}

CUresult context_pop(CUcontext* context) {
  return driver_api("cuCtxPopCurrent", [=](runtime&, held_lock&) {
    thread_state& me = this_thread();
    if (me.contexts_below == 0) return cudaErrorDeviceUninitialized;
    if (context != nullptr) *context = context_of(me.device);
    me.device = me.devices_below[--me.contexts_below];
    return cudaSuccess;
  });
}

CUresult context_get_current(CUcontext* context) {
  return driver_api("cuCtxGetCurrent", [=](runtime&, held_lock&) {
    if (context == nullptr) return cudaErrorInvalidValue;
    *context = context_of(this_thread().device);
    return cudaSuccess;
  });
}

CUresult stream_get_context(CUstream stream, CUcontext* context) {
  return driver_api("cuStreamGetCtx", [=](runtime& r, held_lock&) {
    timeline const* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (context == nullptr) return cudaErrorInvalidValue;
    *context = context_of(t->device);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
