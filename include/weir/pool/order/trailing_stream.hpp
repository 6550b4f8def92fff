#pragma once
// A stream of a pool's own that comes after others: for what is freed on streams that there is no list for.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>

namespace weir::detail {

/// Whatever it follows, it has no work of its own: what is freed on it is done when the work of all that it followed
/// before is. So one list is enough for any number of streams, where each of them would need one, and host memory for
/// that, or a wait for it by the host. But then all of them wait for the slowest. Guarded by its pool's lock.
class trailing_stream {
 public:
  trailing_stream() = default;
  ~trailing_stream() {
    if (handle_ != nullptr && !life_.is_exiting()) succeeded(cudaStreamDestroy(handle_));
  }
  trailing_stream(trailing_stream const&) = delete;
  trailing_stream& operator=(trailing_stream const&) = delete;

  /// Null until it is made.
  cudaStream_t get() const noexcept { return handle_; }
  /// Makes it on `device`, if it is not there yet. False if CUDA fails.
  bool make(int device) noexcept {
    if (handle_ != nullptr) return true;
    life_.settle();
    device_switch const on_device(device);
    auto const create = [&] { return cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking); };
    return on_device.is_current() && succeeded(relaxed(create));
  }
  /// From now on it comes after the work that `user`, a stream of `device` that the caller uses, was given so far. Once
  /// it is made. False, and nothing changed, if CUDA fails. Not for one that is being captured.
  bool follow(stream_ref user, int device) noexcept {
    device_switch const on_device(device);
    cudaEvent_t behind = nullptr;
    if (!on_device.is_current() || !succeeded(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming))) return false;
    bool const done =
        succeeded(cudaEventRecord(behind, user.get())) && succeeded(cudaStreamWaitEvent(handle_, behind, 0));
    succeeded(cudaEventDestroy(behind));  // CUDA keeps it for as long as it is waited for
    return done;
  }

 private:
  cudaStream_t handle_ = nullptr;
  process_exit life_;
};

}  // namespace weir::detail
