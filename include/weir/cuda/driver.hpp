#pragma once
// The driver's functions for virtual memory, found through the runtime: nothing is linked from libcuda.

#include <weir/cuda/error.hpp>

#include <cuda.h>

#include <cstddef>
#include <ctime>
#include <stdexcept>
#include <string>

namespace weir::detail {

/// The functions that `virtual_memory` calls, each under its own name. They call the driver themselves: unlike the
/// runtime's functions, they touch no last error.
struct driver_functions {
  decltype(&::cuDeviceGet) cuDeviceGet = nullptr;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute = nullptr;
  decltype(&::cuMemGetAllocationGranularity) cuMemGetAllocationGranularity = nullptr;
  decltype(&::cuMemAddressReserve) cuMemAddressReserve = nullptr;
  decltype(&::cuMemAddressFree) cuMemAddressFree = nullptr;
  decltype(&::cuMemCreate) cuMemCreate = nullptr;
  decltype(&::cuMemRelease) cuMemRelease = nullptr;
  decltype(&::cuMemMap) cuMemMap = nullptr;
  decltype(&::cuMemUnmap) cuMemUnmap = nullptr;
  decltype(&::cuMemSetAccess) cuMemSetAccess = nullptr;
};

/// A driver's code as the runtime's: the two have the same numbers for what both can say.
inline cudaError_t runtime_code(CUresult code) noexcept { return static_cast<cudaError_t>(code); }

/// Throws `cuda_error` unless `code` is success.
inline void check(CUresult code, char const* call, char const* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (code != CUDA_SUCCESS) throw cuda_error(runtime_code(code), call, file, line);
}

/// Finds one function by its name in CUDA 10.2, the first version that has them all. Throws `cuda_error`, or
/// `std::invalid_argument` where the driver has no such function.
template <class Function>
void find_in_driver(char const* name, Function& function) {
  void* found = nullptr;
  auto answer = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(name, &found, 10020, cudaEnableDefault, &answer),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &answer), "cudaGetDriverEntryPoint");
#endif
  if (answer != cudaDriverEntryPointSuccess || found == nullptr)
    throw std::invalid_argument(std::string("weir: virtual_memory: the driver has no function ") + name +
                                "; it is too old, or one of a system that has no virtual memory management, such as "
                                "an early WSL. Use device or async");
  function = reinterpret_cast<Function>(found);
}

inline driver_functions find_driver_functions() {
  driver_functions f;
  find_in_driver("cuDeviceGet", f.cuDeviceGet);
  find_in_driver("cuDeviceGetAttribute", f.cuDeviceGetAttribute);
  find_in_driver("cuMemGetAllocationGranularity", f.cuMemGetAllocationGranularity);
  find_in_driver("cuMemAddressReserve", f.cuMemAddressReserve);
  find_in_driver("cuMemAddressFree", f.cuMemAddressFree);
  find_in_driver("cuMemCreate", f.cuMemCreate);
  find_in_driver("cuMemRelease", f.cuMemRelease);
  find_in_driver("cuMemMap", f.cuMemMap);
  find_in_driver("cuMemUnmap", f.cuMemUnmap);
  find_in_driver("cuMemSetAccess", f.cuMemSetAccess);
  return f;
}

/// The process's driver, looked up once; after a failure, again by the next call. Throws as `find_in_driver`.
/// Thread-safe.
inline driver_functions const& driver() {
  static driver_functions const found = find_driver_functions();
  return found;
}

/// Throws `std::invalid_argument` unless `device` has the attribute; `what` says what that means to people.
inline void require_driver_ability(int device, CUdevice_attribute attribute, char const* what) {
  CUdevice handle = 0;
  int value = 0;
  check(driver().cuDeviceGet(&handle, device), "cuDeviceGet");
  check(driver().cuDeviceGetAttribute(&value, attribute, handle), "cuDeviceGetAttribute");
  if (value == 0) throw std::invalid_argument("weir: virtual_memory: device " + std::to_string(device) + " " + what);
}

inline constexpr char const* no_virtual_memory =
    "has no virtual memory management, as most virtual GPUs; use device or async";

/// What sizes of such memory have to be multiples of. Throws `std::invalid_argument` where `device` says that it has
/// none of it.
inline std::size_t granularity_of(int device, CUmemAllocationProp const& kind) {
  require_driver_ability(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, no_virtual_memory);
  std::size_t granularity = 0;
  check(driver().cuMemGetAllocationGranularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  return granularity;
}

/// `cuMemSetAccess`, called again for some ten milliseconds where the driver says that it is not ready: some do so
/// (under WSL2) while the device works, and nothing has changed then.
inline CUresult set_access(driver_functions const& f, CUdeviceptr at, std::size_t bytes, CUmemAccessDesc const* who,
                           std::size_t count) noexcept {
  constexpr int most_calls = 100;
  constexpr std::timespec pause{0, 100'000};
  CUresult code = f.cuMemSetAccess(at, bytes, who, count);
  for (int calls = 1; code == CUDA_ERROR_NOT_READY && calls < most_calls; ++calls) {
    ::nanosleep(&pause, nullptr);
    code = f.cuMemSetAccess(at, bytes, who, count);
  }
  return code;
}

}  // namespace weir::detail
