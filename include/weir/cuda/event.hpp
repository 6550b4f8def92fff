#pragma once
// A point in a stream's work that others can wait for.

#include <weir/cuda/error.hpp>
#include <weir/cuda/process.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <utility>

namespace weir {

/// Owns a CUDA event without timing, made on the current device. Move-only.
/// Recording it takes a snapshot of the stream; a wait or query refers to the latest snapshot.
/// An event that was never recorded counts as done, so a forgotten `record` is silent: record before you share it.
class event {
 public:
  event() { detail::check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~event() {
    if (handle_ != nullptr && !life_.is_over()) detail::succeeded(cudaEventDestroy(handle_));
  }
  event(event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  event& operator=(event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  void record(stream_ref stream) { detail::check(cudaEventRecord(handle_, stream.get()), "cudaEventRecord"); }
  /// Work given to `stream` from now on starts after the recorded point; the host does not wait.
  void hold_back(stream_ref stream) const {
    detail::check(cudaStreamWaitEvent(stream.get(), handle_, 0), "cudaStreamWaitEvent");
  }
  /// True once all work before the recorded point is done. Does not block.
  bool done() const {
    cudaError_t const code = cudaEventQuery(handle_);
    if (code == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    detail::check(code, "cudaEventQuery");
    return true;
  }
  /// Blocks the host until the recorded point is reached.
  void synchronize() const { detail::check(cudaEventSynchronize(handle_), "cudaEventSynchronize"); }

  cudaEvent_t get() const noexcept { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
  detail::cuda_life life_;
};

}  // namespace weir
