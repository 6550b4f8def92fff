// The one function of `libcuda.so.1`: programs that look for the driver's functions there find what the simulated
// runtime in the same program has. A library of its own, which nothing else of the runtime is in.

#include <cuda.h>
#include <cuda_runtime_api.h>

#undef cuGetProcAddress_v2  // NOLINT: some toolkits' headers make a macro of it

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's name
extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI cuGetProcAddress_v2(
    char const* symbol, void** function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* result) {
  auto found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t const code =
      cudaGetDriverEntryPointByVersion(symbol, function, static_cast<unsigned>(version), flags, &found);
#else
  static_cast<void>(version);
  cudaError_t const code = cudaGetDriverEntryPoint(symbol, function, flags, &found);
#endif
  if (result != nullptr) *result = static_cast<CUdriverProcAddressQueryResult>(found);
  return static_cast<CUresult>(code);
}
// NOLINTEND(readability-identifier-naming)
