#pragma once
// The driver's functions of virtual memory, found by name as a program without the driver's library finds them.

#include "support.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace sim_test {

inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t chunk = 2 * MiB;  // the granularity

inline void ok(CUresult code) { REQUIRE_EQ(code, CUDA_SUCCESS); }

inline void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p)); }

template <class Function>
Function* found(char const* name, Function*) {
  void* function = nullptr;
  auto result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  ok(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result));
#else
  ok(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result));
#endif
  REQUIRE_EQ(result, cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function*>(function);
}
#define FOUND(name) found(#name, static_cast<decltype(&::name)>(nullptr))

struct driver {
  decltype(&::cuMemAddressReserve) address_reserve = FOUND(cuMemAddressReserve);
  decltype(&::cuMemAddressFree) free = FOUND(cuMemAddressFree);
  decltype(&::cuMemCreate) create_handle = FOUND(cuMemCreate);
  decltype(&::cuMemRelease) release = FOUND(cuMemRelease);
  decltype(&::cuMemMap) map = FOUND(cuMemMap);
  decltype(&::cuMemUnmap) unmap = FOUND(cuMemUnmap);
  decltype(&::cuMemSetAccess) set_access = FOUND(cuMemSetAccess);
  decltype(&::cuMemGetAccess) get_access = FOUND(cuMemGetAccess);
  decltype(&::cuMemGetAllocationGranularity) granularity = FOUND(cuMemGetAllocationGranularity);
  decltype(&::cuMemGetAllocationPropertiesFromHandle) properties = FOUND(cuMemGetAllocationPropertiesFromHandle);
  decltype(&::cuMemRetainAllocationHandle) retain = FOUND(cuMemRetainAllocationHandle);
  decltype(&::cuMemExportToShareableHandle) export_handle = FOUND(cuMemExportToShareableHandle);
  decltype(&::cuDeviceGet) device = FOUND(cuDeviceGet);
  decltype(&::cuDeviceGetAttribute) attribute = FOUND(cuDeviceGetAttribute);
  decltype(&::cuGetErrorName) error_name = FOUND(cuGetErrorName);
  decltype(&::cuGetErrorString) error_string = FOUND(cuGetErrorString);

  static CUmemAllocationProp memory_of(int device) {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device;
    return wanted;
  }

  CUdeviceptr reserve(std::size_t bytes) const {
    CUdeviceptr at = 0;
    ok(address_reserve(&at, bytes, 0, 0, 0));
    return at;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes, int on_device = 0) const {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp const wanted = memory_of(on_device);
    ok(create_handle(&handle, bytes, &wanted, 0));
    return handle;
  }
  /// Gives a device access.
  void open(CUdeviceptr at, std::size_t bytes, int to_device = 0,
            CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) const {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = to_device;
    access.flags = flags;
    ok(set_access(at, bytes, &access, 1));
  }
};

}  // namespace sim_test
