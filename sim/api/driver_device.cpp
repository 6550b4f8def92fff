// The driver's devices and error texts.

#include "api/device_attributes.hpp"
#include "api/device_properties.hpp"
#include "api/driver_functions.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace weir::sim::detail {
namespace {

struct error_name {
  CUresult code;
  char const* name;
};

// Those that functions here return, and those that tests like to inject.
constexpr error_name error_names[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
};

char const* name_of(CUresult code) {
  auto const* const found = std::find_if(std::begin(error_names), std::end(error_names),
                                         [code](error_name const& e) { return e.code == code; });
  return found == std::end(error_names) ? nullptr : found->name;
}

// Driver and runtime number their attributes alike. The runtime has no name for that of virtual memory.
int attribute_of(runtime& r, CUdevice_attribute which, CUdevice device) {
  if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) return r.virtual_memory.supported ? 1 : 0;
  return device_attribute(r, static_cast<cudaDeviceAttr>(which), device);
}

}  // namespace

CUresult init(unsigned flags) {
  return driver_api("cuInit", [=](runtime&, held_lock&) { return flags == 0 ? cudaSuccess : cudaErrorInvalidValue; });
}

CUresult device_get_name(char* name, int length, CUdevice device) {
  return driver_api("cuDeviceGetName", [=](runtime& r, held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (name == nullptr || length <= 0) return cudaErrorInvalidValue;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", device_title(r, device).c_str());
    return cudaSuccess;
  });
}

CUresult device_get_uuid(CUuuid* uuid, CUdevice device) {
  return driver_api("cuDeviceGetUuid", [=](runtime& r, held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (uuid == nullptr) return cudaErrorInvalidValue;
    *uuid = uuid_of(device);
    return cudaSuccess;
  });
}

CUresult device_total_memory(std::size_t* bytes, CUdevice device) {
  return driver_api("cuDeviceTotalMem", [=](runtime& r, held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (bytes == nullptr) return cudaErrorInvalidValue;
    *bytes = r.device(device).capacity;
    return cudaSuccess;
  });
}

CUresult device_get(CUdevice* device, int ordinal) {
  return driver_api("cuDeviceGet", [=](runtime& r, held_lock&) {
    if (device == nullptr) return cudaErrorInvalidValue;
    if (!r.has_device(ordinal)) return cudaErrorInvalidDevice;
    *device = ordinal;
    return cudaSuccess;
  });
}

CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return driver_api("cuDeviceGetAttribute", [=](runtime& r, held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return cudaErrorInvalidValue;
    *value = attribute_of(r, attribute, device);
    return cudaSuccess;
  });
}

CUresult get_error_name(CUresult error, char const** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = name_of(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult get_error_string(CUresult error, char const** meaning) {
  if (meaning == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *meaning = name_of(error) == nullptr ? nullptr : cudaGetErrorString(static_cast<cudaError_t>(error));
  return *meaning == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace weir::sim::detail
