#pragma once
// A point in a stream's work that others can wait for.

#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <utility>

namespace weir {

/// Owns a CUDA event without timing, made on the current device. Move-only; one that was moved from throws
/// `std::logic_error` whatever is asked of it, until another is assigned to it.
/// Recording it takes a snapshot of the stream; a wait or query refers to the latest snapshot.
/// An event that was never recorded counts as done, so a forgotten `record` is silent: record before you share it.
class event {
 public:
  event() { detail::check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~event() {
    if (handle_ != nullptr && !life_.is_exiting()) detail::succeeded(cudaEventDestroy(handle_));
  }
  event(event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), life_(other.life_) {}
  event& operator=(event&& other) noexcept {
    event taken(std::move(other));
    std::swap(handle_, taken.handle_);
    std::swap(life_, taken.life_);
    return *this;
  }

  void record(stream_ref stream) { detail::check(cudaEventRecord(get(), stream.get()), "cudaEventRecord"); }
  /// Work given to `stream` from now on starts after the recorded point; the host does not wait.
  void hold_back(stream_ref stream) const {
    detail::check(cudaStreamWaitEvent(stream.get(), get(), 0), "cudaStreamWaitEvent");
  }
  /// True once all work before the recorded point is done. Does not block.
  bool done() const {
    cudaError_t const code = cudaEventQuery(get());
    if (code == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    detail::check(code, "cudaEventQuery");
    return true;
  }
  /// Blocks the host until the recorded point is reached.
  void synchronize() const { detail::check(cudaEventSynchronize(get()), "cudaEventSynchronize"); }

  cudaEvent_t get() const {
    if (handle_ == nullptr) [[unlikely]]
      detail::refuse_moved_from("event");
    return handle_;
  }

 private:
  cudaEvent_t handle_ = nullptr;
  detail::process_exit life_;
};

}  // namespace weir
