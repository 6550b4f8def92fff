#pragma once
// Zeroes device memory before it gets another owner.

#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream.hpp>

#include <cstddef>

namespace weir::detail {

/// Zeroes memory of one device on a stream of its own, for which the host waits: whatever uses the memory afterwards
/// comes after that. Thread-safe.
class scrubber {
 public:
  /// Throws `cuda_error` or `std::bad_alloc` where there is no stream to be had.
  explicit scrubber(int device) : device_(device), stream_(stream_of(device)) {}

  struct outcome {
    cudaError_t code = cudaSuccess;
    bool is_under_way = false;  ///< CUDA cannot say whether it is done: the memory may still be written
  };
  /// Zeroes [p, p + bytes). Breaks no capture.
  outcome zero(void* p, std::size_t bytes) const noexcept {
    device_switch const on_device(device_);
    if (!on_device.is_current()) return {cudaErrorInvalidDevice};
    cudaError_t const code = cudaMemsetAsync(p, 0, bytes, stream_.get());
    if (!succeeded(code)) return {code};
    if (!wait_for(stream_, device_)) return {cudaErrorUnknown, true};
    return {};
  }

 private:
  static stream stream_of(int device) {
    device_guard const on_device(device);
    return stream();
  }

  int const device_;
  stream const stream_;
};

}  // namespace weir::detail
