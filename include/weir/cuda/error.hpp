#pragma once
// Turns the CUDA runtime's error codes into exceptions, in one place.

#include <weir/version.hpp>

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#if CUDART_VERSION < 12020  // as in Debian 12's own packages, which are of 11.8
#error \
    "weir needs CUDA 12.2 or newer; this cuda_runtime_api.h is older: have a newer one found first (CMake: CUDAToolkit_ROOT)"
#define WEIR_STOP <weir needs CUDA 12.2 or newer>
#include WEIR_STOP
#endif

namespace weir {

/// A CUDA call that failed for a reason other than lack of memory.
class __attribute__((visibility("default"))) cuda_error : public std::runtime_error {
 public:
  cuda_error(cudaError_t code, char const* call, char const* file, int line)
      : std::runtime_error(std::string("weir: ") + call + " failed: " + cudaGetErrorName(code) + " (" +
                           std::to_string(static_cast<int>(code)) + "), " + cudaGetErrorString(code) + ", at " + file +
                           ":" + std::to_string(line)),
        code_(code) {}

  cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

namespace detail {

/// True if `code` is success. A failure is taken off the thread's last error: whoever asks this handles it.
inline bool succeeded(cudaError_t code) noexcept {
  if (code == cudaSuccess) [[likely]]
    return true;
  static_cast<void>(cudaGetLastError());
  return false;
}

/// Throws `cuda_error` unless `code` is success; the thread's last error is cleared first.
inline void check(cudaError_t code, char const* call, char const* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!succeeded(code)) throw cuda_error(code, call, file, line);
}

/// True where `code` says that CUDA is not there (not yet, no longer, or not at all), so that no work can be running.
inline bool cuda_is_absent(cudaError_t code) noexcept {
  return code == cudaErrorCudartUnloading || code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver;
}

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_moved_from(char const* what) {
  throw std::logic_error(std::string("weir: this ") + what + " was moved from; assign another to it before it is used");
}

}  // namespace detail
}  // namespace weir
