#pragma once
// Overwrites memory with zeros, in the order of a stream or at once.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstring>

namespace weir::detail {

/// For memory that `device` reaches: `cudaMemsetAsync`, also where the host reaches it, so that managed memory stays
/// where it is. Thread-safe.
class device_zeroing {
 public:
  /// Throws `cuda_error`.
  explicit device_zeroing(int device) : device_(device), own_stream_(device) {}

  /// Queues it behind the work of `stream` so far. In a capture that makes a node of the graph.
  cudaError_t behind(stream_ref stream, void* p, std::size_t bytes) noexcept {
    if (stream.get() == cudaStreamLegacy && may_break_capture(stream.get())) return cudaErrorStreamCaptureImplicit;
    device_switch const on_device(
        is_default_stream(stream.get()) ? -1 : device_);  // a default stream is the current device's
    return cudaMemsetAsync(p, 0, bytes, stream.get());
  }
  /// For memory that no work uses. Returns once it is done.
  cudaError_t at_once(void* p, std::size_t bytes) noexcept {
    device_switch const on_device(device_);
    cudaError_t const code = cudaMemsetAsync(p, 0, bytes, own_stream_.get());
    return code != cudaSuccess ? code : relaxed([&] { return cudaStreamSynchronize(own_stream_.get()); });
  }
  int device() const noexcept { return device_; }

 private:
  int device_;
  internal_stream own_stream_;
};

/// For memory that only the host reaches: `memset`, which has to wait for the work of a stream. Thread-safe.
class host_zeroing {
 public:
  explicit host_zeroing(int) noexcept {}

  cudaError_t behind(stream_ref stream, void* p, std::size_t bytes) noexcept {
    return wait_for(stream, device()) ? at_once(p, bytes) : cudaErrorStreamCaptureUnsupported;
  }
  cudaError_t at_once(void* p, std::size_t bytes) noexcept {
    std::memset(p, 0, bytes);
    return cudaSuccess;
  }
  int device() const noexcept { return -1; }
};

}  // namespace weir::detail
