#pragma once
// Probes: what is said of kernels that there are not, and of functions of the driver. Answers are in the comments of
// cuda_runtime_api.h.

#include "probe.hpp"

namespace probes {

// cudaErrorInvalidDeviceFunction: "the requested device function does not exist".
inline void no_function_is_no_kernel(verdict& v) {
  void const* const nothing = nullptr;
  v.code("launch", cudaLaunchKernel(nothing, dim3(1), dim3(1), nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  v.code("last error", cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  cudaFuncAttributes attributes{};
  v.code("attributes", cudaFuncGetAttributes(&attributes, nothing), cudaErrorInvalidDeviceFunction);
  v.ok("cudaDeviceSynchronize", cudaDeviceSynchronize());
}

// cudaErrorInvalidSymbol: "the symbol name/identifier passed to the API call is not a valid name or identifier".
inline void no_variable_is_no_symbol(verdict& v) {
  static int on_the_host = 0;
  void* address = nullptr;
  v.code("cudaGetSymbolAddress", cudaGetSymbolAddress(&address, &on_the_host), cudaErrorInvalidSymbol);
  v.code("cudaMemcpyToSymbol", cudaMemcpyToSymbol(&on_the_host, &address, 4, 0, cudaMemcpyHostToDevice),
         cudaErrorInvalidSymbol);
}

#if CUDART_VERSION >= 12050
// "The API will return cudaSuccess and set the returned funcPtr to NULL if ... the driver symbol is invalid."
inline void unknown_driver_functions_are_null(verdict& v) {
  int something = 0;
  void* function = &something;
  auto result = cudaDriverEntryPointSuccess;
  v.ok("by version",
       cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &function, 12000, cudaEnableDefault, &result));
  v.yes("null", function == nullptr);
  v.equal<int>("result", result, cudaDriverEntryPointSymbolNotFound);
  // "If the specified CUDA version is greater than the driver version, the API will return cudaErrorInvalidValue."
  v.code("a driver of tomorrow", cudaGetDriverEntryPointByVersion("cuInit", &function, 999000, 0, &result),
         cudaErrorInvalidValue);
}
#endif

inline constexpr probe kernel_probes[] = {
    {"no_function_is_no_kernel", needs::nothing, &no_function_is_no_kernel},
    {"no_variable_is_no_symbol", needs::nothing, &no_variable_is_no_symbol},
#if CUDART_VERSION >= 12050
    {"unknown_driver_functions_are_null", needs::nothing, &unknown_driver_functions_are_null},
#endif
};

}  // namespace probes
