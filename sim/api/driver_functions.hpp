#pragma once
// The functions of the driver that a program finds by name, internal. They have no names to the linker: a program may
// link the driver's library as well.

#include "api/entry.hpp"

#include <cuda.h>

#include <cstddef>

namespace weir::sim::detail {

/// A call of the driver. It leaves the runtime's last error alone. Driver and runtime number their errors alike, so
/// that an injected `cudaError_t` comes out as the `CUresult` of its number.
template <class Body>
CUresult driver_api(call which, Body&& body) {
  return static_cast<CUresult>(counted(which, std::forward<Body>(body)));
}

// ---- driver_device.cpp
CUresult init(unsigned flags);
CUresult device_get_name(char* name, int length, CUdevice device);
CUresult device_total_memory(std::size_t* bytes, CUdevice device);
CUresult device_get(CUdevice* device, int ordinal);
CUresult device_get_uuid(CUuuid* uuid, CUdevice device);
CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice device);
CUresult get_error_name(CUresult error, char const** name);
CUresult get_error_string(CUresult error, char const** meaning);

// ---- driver_contexts.cpp
CUresult primary_context_retain(CUcontext* context, CUdevice device);
CUresult primary_context_release(CUdevice device);
CUresult primary_context_get_state(CUdevice device, unsigned* flags, int* active);
CUresult primary_context_set_flags(CUdevice device, unsigned flags);
CUresult context_set_current(CUcontext context);
CUresult context_push(CUcontext context);
CUresult context_pop(CUcontext* context);
CUresult context_get_current(CUcontext* context);
CUresult stream_get_context(CUstream stream, CUcontext* context);

// ---- driver_memory.cpp; the stream is resolved, never 0
CUresult memcpy_any_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, cudaStream_t stream);
#if CUDA_VERSION >= 13000
/// Copies, and how their sources may be read: `attributes[i]` is of the copies from number `begins[i]` on.
struct copy_batch {
  CUdeviceptr const* to;
  CUdeviceptr const* from;
  std::size_t const* bytes;
  std::size_t count;
  CUmemcpyAttributes const* attributes;
  std::size_t const* begins;
  std::size_t kinds;
};
/// All of them in stream order. Where a source is to be read during the call, waits for the stream.
CUresult memcpy_batch_async(copy_batch const& batch, cudaStream_t stream);
#endif
CUresult memset_16_async(CUdeviceptr to, unsigned short value, std::size_t count, cudaStream_t stream);
CUresult memset_32_async(CUdeviceptr to, unsigned value, std::size_t count, cudaStream_t stream);
CUresult pointer_get_attribute(void* to, CUpointer_attribute which, CUdeviceptr p);
CUresult pointer_get_attributes(unsigned count, CUpointer_attribute* which, void** to, CUdeviceptr p);

// ---- addresses.cpp
CUresult mem_get_address_range(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr p);
CUresult mem_address_reserve(CUdeviceptr* at, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                             unsigned long long flags);
CUresult mem_address_free(CUdeviceptr at, std::size_t bytes);
CUresult mem_map(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags);
CUresult mem_unmap(CUdeviceptr at, std::size_t bytes);
CUresult mem_set_access(CUdeviceptr at, std::size_t bytes, CUmemAccessDesc const* access, std::size_t count);
CUresult mem_get_access(unsigned long long* flags, CUmemLocation const* location, CUdeviceptr p);

// ---- physical_memory.cpp
CUresult mem_create(CUmemGenericAllocationHandle* handle, std::size_t bytes, CUmemAllocationProp const* properties,
                    unsigned long long flags);
CUresult mem_release(CUmemGenericAllocationHandle handle);
CUresult mem_get_allocation_granularity(std::size_t* bytes, CUmemAllocationProp const* properties,
                                        CUmemAllocationGranularity_flags option);
CUresult mem_get_allocation_properties_from_handle(CUmemAllocationProp* properties,
                                                   CUmemGenericAllocationHandle handle);
CUresult mem_retain_allocation_handle(CUmemGenericAllocationHandle* handle, void* p);
CUresult mem_export_to_shareable_handle(void* shareable, CUmemGenericAllocationHandle handle,
                                        CUmemAllocationHandleType type, unsigned long long flags);
CUresult mem_import_from_shareable_handle(CUmemGenericAllocationHandle* handle, void* shareable,
                                          CUmemAllocationHandleType type);

}  // namespace weir::sim::detail
