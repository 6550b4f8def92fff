// The driver's physical memory, which has handles in place of addresses.

#include "allocations/virtual_memory.hpp"
#include "api/driver_functions.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"

namespace weir::sim::detail {
namespace {

// Success, or why no device has such memory.
cudaError_t check_properties(runtime& r, CUmemAllocationProp const* wanted) {
  if (!r.virtual_memory.supported) return cudaErrorNotSupported;
  if (wanted == nullptr || wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED) return cudaErrorInvalidValue;
  if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return cudaErrorNotSupported;
  if (!r.has_device(wanted->location.id)) return cudaErrorInvalidDevice;
  auto const& more = wanted->allocFlags;
  // Programs ask for memory that could be shared by a file descriptor and never share it; what is refused is to share.
  bool const plain = (wanted->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0 &&
                     wanted->win32HandleMetaData == nullptr && more.compressionType == CU_MEM_ALLOCATION_COMP_NONE &&
                     more.gpuDirectRDMACapable == 0 && more.usage == 0;
  return plain ? cudaSuccess : cudaErrorNotSupported;
}

physical_memory* memory_of(runtime& r, CUmemGenericAllocationHandle handle) {
  return find_physical(r, reinterpret_cast<physical_handle>(handle));
}

CUmemGenericAllocationHandle handle_of(physical_memory const& memory) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(memory.handle);
}

}  // namespace

CUresult mem_create(CUmemGenericAllocationHandle* handle, std::size_t bytes, CUmemAllocationProp const* properties,
                    unsigned long long flags) {
  return driver_api("cuMemCreate", [=](runtime& r, held_lock&) {
    if (cudaError_t const code = check_properties(r, properties); code != cudaSuccess) return code;
    if (handle == nullptr || bytes == 0 || bytes % granularity != 0 || flags != 0) return cudaErrorInvalidValue;
    physical_memory* const made = create_physical(r, properties->location.id, bytes);
    if (made == nullptr) {
      allocation wanted;
      wanted.bytes = bytes;
      wanted.kind = memory_kind::mapped;
      wanted.device = properties->location.id;
      return refuse_allocation(r, wanted);
    }
    made->handle_types = properties->requestedHandleTypes;
    *handle = handle_of(*made);
    return cudaSuccess;
  });
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
  return driver_api("cuMemRelease", [=](runtime& r, held_lock&) {
    if (!r.virtual_memory.supported) return cudaErrorNotSupported;
    if (cudaError_t const code = admit_unsafe(r); code != cudaSuccess) return code;
    physical_memory* const memory = memory_of(r, handle);
    if (memory == nullptr) {
      if (r.check != nullptr) r.check->refused_release(handle);
      return cudaErrorInvalidValue;
    }
    release_physical(r, *memory);
    return cudaSuccess;
  });
}

CUresult mem_get_allocation_granularity(std::size_t* bytes, CUmemAllocationProp const* properties,
                                        CUmemAllocationGranularity_flags option) {
  return driver_api("cuMemGetAllocationGranularity", [=](runtime& r, held_lock&) {
    if (cudaError_t const code = check_properties(r, properties); code != cudaSuccess) return code;
    bool const known = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    if (bytes == nullptr || !known) return cudaErrorInvalidValue;
    *bytes = granularity;
    return cudaSuccess;
  });
}

CUresult mem_get_allocation_properties_from_handle(CUmemAllocationProp* properties,
                                                   CUmemGenericAllocationHandle handle) {
  return driver_api("cuMemGetAllocationPropertiesFromHandle", [=](runtime& r, held_lock&) {
    physical_memory const* const memory = memory_of(r, handle);
    if (properties == nullptr || memory == nullptr) return cudaErrorInvalidValue;
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = memory->device;
    properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(memory->handle_types);
    return cudaSuccess;
  });
}

CUresult mem_retain_allocation_handle(CUmemGenericAllocationHandle* handle, void* p) {
  return driver_api("cuMemRetainAllocationHandle", [=](runtime& r, held_lock&) {
    view const found = view_at(r, reinterpret_cast<std::uintptr_t>(p));
    if (handle == nullptr || found == r.virtual_memory.views.end()) return cudaErrorInvalidValue;
    physical_memory& memory = *found->second.physical;
    ++memory.handles;
    *handle = handle_of(memory);
    return cudaSuccess;
  });
}

// Sharing with other processes is not modelled.
CUresult mem_export_to_shareable_handle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                        unsigned long long) {
  return driver_api("cuMemExportToShareableHandle", [](runtime&, held_lock&) { return cudaErrorNotSupported; });
}

CUresult mem_import_from_shareable_handle(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) {
  return driver_api("cuMemImportFromShareableHandle", [](runtime&, held_lock&) { return cudaErrorNotSupported; });
}

}  // namespace weir::sim::detail
