#pragma once
// Stream capture: how a program declares it, and how the library's own calls keep from breaking one.

#include <weir/cuda/capture_owners.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <sched.h>

#include <cstdint>

namespace weir {
namespace detail {

/// Scopes that live, and events that are being recorded on streams of others just now. Changed by atomic operations
/// only: `<atomic>` would cost each file that includes a pool more than all of this header.
/// Visible like all that the process has one of: a library that hides its symbols would have one of its own, and its
/// pools would give others what a graph of the program's uses.
[[gnu::visibility("default")]] inline constinit unsigned declared_captures = 0;
[[gnu::visibility("default")]] inline constinit unsigned records_elsewhere = 0;
/// How many forks lie between this process and the first: a child begins with nothing declared, and a scope that it has
/// of its parent ends without a trace.
[[gnu::visibility("default")]] inline constinit unsigned forks = 0;

/// What a pool takes for the id of a capture that was invalidated: its graph will never be.
inline constexpr std::uint64_t invalidated_capture = ~std::uint64_t{0};

/// How many scopes say that streams may be capturing. One load.
inline unsigned count_declared_captures() noexcept { return __atomic_load_n(&declared_captures, __ATOMIC_RELAXED); }
/// True while a program says so.
inline bool captures_declared() noexcept { return count_declared_captures() != 0; }

/// Asks CUDA for the id of the capture that a stream is in, or of the one whose memory that one shares; 0: it is in
/// none. Not for the legacy stream.
inline cudaError_t capture_of(cudaStream_t stream, std::uint64_t& id) noexcept {
  bool const may_be_of_others = __atomic_load_n(&captures_of_others, __ATOMIC_RELAXED) != 0;
  if (may_be_of_others && acted_capture != 0) [[unlikely]] {
    id = acted_capture;
    return cudaSuccess;
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  cudaError_t const code = cudaStreamGetCaptureInfo(stream, &status, &number);
  id = code != cudaSuccess || status == cudaStreamCaptureStatusNone ? 0
       : status == cudaStreamCaptureStatusActive                    ? number
                                                                    : invalidated_capture;
  if (may_be_of_others && id != 0) [[unlikely]]
    id = owners_of_captures.owner_of(id);
  return code;
}

/// The same; 0 also for the host's order and the legacy stream, which do not capture, and where CUDA does not say.
inline std::uint64_t capture_in(stream_ref stream) noexcept {
  std::uint64_t id = 0;
  bool const can_capture = !stream.is_host_order() && stream.get() != cudaStreamLegacy;
  return can_capture && succeeded(capture_of(stream.get(), id)) ? id : 0;
}

/// While it lives, what this thread asks for is for a stream that is being captured, though it asks in host order, as a
/// pool does for its segments.
class asking_for_capture {
 public:
  asking_for_capture() noexcept { ++depth_; }
  ~asking_for_capture() { --depth_; }
  asking_for_capture(asking_for_capture const&) = delete;
  asking_for_capture& operator=(asking_for_capture const&) = delete;

  static bool is_set() noexcept { return depth_ != 0; }

 private:
  friend class in_program_code;
  [[gnu::visibility("default")]] inline static constinit thread_local unsigned depth_ = 0;
};

/// True if a request that arrives with this stream is for a capture: nobody may wait for it, or call what might break
/// the capture. At most one CUDA call.
inline bool is_for_capture(stream_ref stream) noexcept {
  return asking_for_capture::is_set() || capture_in(stream) != 0;
}

/// True if a call that names this stream could break a capture: it captures, or it is the legacy stream and a stream
/// that it waits for does, or CUDA does not say. A stream that is gone captures nothing. Any stream; one CUDA call, and
/// one more where that fails, since its error may be that of earlier work.
inline bool may_break_capture(cudaStream_t stream) noexcept {
  for (int asked = 0; asked < 2; ++asked) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t const code = cudaStreamIsCapturing(stream, &status);
    if (succeeded(code)) return status != cudaStreamCaptureStatusNone;
    if (code == cudaErrorStreamCaptureImplicit) return true;
    if (code == cudaErrorInvalidResourceHandle || cuda_is_absent(code)) return false;
  }
  return true;
}

/// The same for a stream of `device`, whichever is current: a default stream is the current device's. Up to three more
/// CUDA calls for those.
inline bool may_break_capture(cudaStream_t stream, int device) noexcept {
  if (!is_default_stream(stream)) return may_break_capture(stream);
  device_switch const on_device(device);
  return !on_device.is_current() || may_break_capture(stream);
}

/// Begins the line of a pool that refuses a request, where the stream's capture is a reason.
inline char const* capture_reason(stream_ref stream) noexcept {
  if (capture_in(stream) == 0) return "";
  return "the stream is being captured, and may have no memory that waits for work; ";
}

/// While entered, the calling thread may make calls that captures cannot see, such as `cudaMalloc` and
/// `cudaEventQuery`, without breaking one, its own or another thread's. One CUDA call each way.
class relaxed_capture {
 public:
  relaxed_capture() = default;
  ~relaxed_capture() {
    if (entered_) succeeded(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  relaxed_capture(relaxed_capture const&) = delete;
  relaxed_capture& operator=(relaxed_capture const&) = delete;

  relaxed_capture& enter() noexcept {
    if (!entered_) entered_ = succeeded(cudaThreadExchangeStreamCaptureMode(&mode_));
    return *this;
  }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // what to exchange for
  bool entered_ = false;
};

/// Calls `f()` so.
template <class F>
decltype(auto) relaxed(F f) {
  relaxed_capture calls;
  calls.enter();
  return f();
}

/// Held while an event is recorded on a stream that is not the caller's. Not allowed while a capture is declared: the
/// stream might begin to capture between a question and the record, and the event would then be the graph's.
class record_elsewhere {
 public:
  record_elsewhere() noexcept {
    __atomic_fetch_add(&records_elsewhere, 1, __ATOMIC_SEQ_CST);
    allowed_ = __atomic_load_n(&declared_captures, __ATOMIC_SEQ_CST) == 0;
  }
  ~record_elsewhere() { __atomic_fetch_sub(&records_elsewhere, 1, __ATOMIC_RELEASE); }
  record_elsewhere(record_elsewhere const&) = delete;
  record_elsewhere& operator=(record_elsewhere const&) = delete;

  bool allowed() const noexcept { return allowed_; }

 private:
  bool allowed_;
};

}  // namespace detail

/// Declares, while it lives, that streams of this process may be captured: make one before `cudaStreamBeginCapture`,
/// destroy it after `cudaStreamEndCapture`. A child that is forked after a
/// resource was made begins with none. Pools then ask CUDA at each call whether
/// the stream is being captured, also for streams that they otherwise know without a CUDA call (`weir::stream`,
/// per-thread default streams, those promised to outlive the pool), and record no event on a stream that is not the
/// caller's. Any thread; scopes may overlap. When not to use it: for as long as a program runs, since each pool call
/// then costs a CUDA call.
class capture_scope {
 public:
  [[nodiscard]] capture_scope() noexcept {
    __atomic_fetch_add(&detail::declared_captures, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&detail::records_elsewhere, __ATOMIC_SEQ_CST) != 0) ::sched_yield();  // none of them blocks
  }
  ~capture_scope() {
    if (made_after_ == detail::forks) __atomic_fetch_sub(&detail::declared_captures, 1, __ATOMIC_SEQ_CST);
  }
  capture_scope(capture_scope const&) = delete;
  capture_scope& operator=(capture_scope const&) = delete;

 private:
  unsigned made_after_ = detail::forks;  // changes only in a child with one thread
};

namespace detail {

/// While it lives, what this thread gives back is given back as by a stream of that capture, though it may have ended.
/// For memory of graphs that share it: the next of their captures may have it.
class acting_in_capture {
 public:
  explicit acting_in_capture(std::uint64_t capture) noexcept : before_(acted_capture) {
    __atomic_fetch_add(&captures_of_others, 1, __ATOMIC_SEQ_CST);
    acted_capture = capture;
  }
  ~acting_in_capture() {
    acted_capture = before_;
    __atomic_fetch_sub(&captures_of_others, 1, __ATOMIC_SEQ_CST);
  }
  acting_in_capture(acting_in_capture const&) = delete;
  acting_in_capture& operator=(acting_in_capture const&) = delete;

 private:
  capture_scope declared_;  // else nobody asks
  std::uint64_t before_;
};

}  // namespace detail

/// The id of the capture that `stream` takes part in (`cudaStreamGetCaptureInfo`), by which a pool can be told that its
/// graph is gone. 0: none, or one that was invalidated. One CUDA call. Throws `cuda_error`.
inline std::uint64_t capture_id(stream_ref stream) {
  if (stream.is_host_order() || stream.get() == cudaStreamLegacy) return 0;
  std::uint64_t id = 0;
  detail::check(detail::capture_of(stream.get(), id), "cudaStreamGetCaptureInfo");
  return id == detail::invalidated_capture ? 0 : id;
}

}  // namespace weir
