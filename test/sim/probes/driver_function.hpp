#pragma once
// How probes find a function of the driver: by name, through the runtime.

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace probes {

/// One of the driver's functions, by its name; null if there is none.
template <class Function>
Function* driver_function(char const* name, Function*) {
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  static_cast<void>(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr));
#else
  static_cast<void>(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, nullptr));
#endif
  return reinterpret_cast<Function*>(found);
}
#define WEIR_DRIVER_FUNCTION(name) driver_function(#name, static_cast<decltype(&::name)>(nullptr))

}  // namespace probes
