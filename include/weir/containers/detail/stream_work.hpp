#pragma once
// The stream and device that a container lives on, and its work there or on another stream.

#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/event.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

namespace weir::detail {

/// Queues a copy; any two pointers. Throws `cuda_error`.
inline void copy_bytes(void* to, void const* from, std::size_t bytes, stream_ref stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
}
inline void zero_bytes(void* p, std::size_t bytes, stream_ref stream) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(p, 0, bytes, stream.get()), "cudaMemsetAsync");
}

/// The same for memory that the device may not reach, where a memset is refused: by copies, each as long as all before.
inline void zero_bytes_on_host(std::byte* p, std::size_t bytes, stream_ref stream) {
  static constexpr std::byte zeros[1024] = {};
  std::size_t done = bytes < sizeof zeros ? bytes : sizeof zeros;
  copy_bytes(p, zeros, done, stream);
  while (done < bytes) {
    std::size_t const more = bytes - done < done ? bytes - done : done;
    copy_bytes(p + done, p, more, stream);
    done += more;
  }
}

/// Throws `cuda_error` in words where `stream` is of another device than the current one, which the memory is of.
[[gnu::noinline, gnu::cold]] inline void require_same_device([[maybe_unused]] cudaError_t code,
                                                             [[maybe_unused]] stream_ref stream) {
#if CUDART_VERSION >= 12080
  int const of_memory = current_device();
  int of_stream = of_memory;
  if (is_default_stream(stream.get()) || may_break_capture(stream.get()) ||
      !succeeded(cudaStreamGetDevice(stream.get(), &of_stream)))
    return;
  if (of_stream == of_memory) return;
  std::string const what = "a container's work on a stream of device " + std::to_string(of_stream) +
                           " for memory of device " + std::to_string(of_memory) +
                           " (its streams have to be of the memory's device)";
  check(code, what.c_str());
#endif
}

/// Work given to `later` from now on starts after what `earlier` was given so far; the host does not wait. The device
/// of `earlier` is current. Throws `cuda_error`.
inline void order_after(stream_ref later, stream_ref earlier) {
  event point;
  try {
    point.record(earlier);
  } catch (cuda_error const& failed) {
    if (failed.code() == cudaErrorInvalidResourceHandle) require_same_device(failed.code(), earlier);
    throw;
  }
  point.hold_back(later);
}

/// Where a container lives. Its device is made current only where that matters: for a default stream, which is the
/// current device's; for memory that does not say which device it is on; and for events.
class stream_work {
 public:
  template <class Memory>
  stream_work(stream_ref stream, Memory const& memory)
      : stream_(stream), device_(weir::device_of(memory)), memory_says_(device_ >= 0) {
    require_stream(stream);
    if (!memory_says_) device_ = device_for(memory);
  }

  stream_ref stream() const noexcept { return stream_; }
  int device() const noexcept { return device_; }
  /// On the same memory as the container that `other` is of.
  void on_device_of(stream_work const& other) noexcept { device_ = other.device_; }

  /// Calls `f()` with the device current where its work on `stream()` needs that.
  template <class F>
  void at_home(F const& f) const {
    std::optional<device_guard> on_device;
    if (needs_device(stream_)) on_device.emplace(device_);
    f();
  }
  /// The same where nothing may be thrown. Where CUDA does not answer, also when it is asked once more, since the error
  /// may be that of earlier work, the current device has to do.
  template <class F>
  void free_at_home(F const& f) const noexcept {
    std::optional<device_switch> on_device;
    if (needs_device(stream_)) on_device.emplace(device_);
    if (on_device && !on_device->is_current()) on_device.emplace(device_);
    f();
  }

  /// Calls `f()`, which queues work on `stream`: after what `stream()` was given so far, and before what it is given
  /// from now on. Where `stream()` is being captured, `stream` joins that, and comes back to it. Throws before `f`
  /// where `stream` is in a capture that `stream()` is no part of, which a wait for what is outside of it would break.
  template <class F>
  void on(stream_ref stream, F const& f) const {
    require_stream(stream);
    if (stream == stream_) return at_home(f);
    device_guard const on_device(device_);
    require_no_other_capture(stream);
    order_after(stream, stream_);
    try {
      f();
    } catch (...) {
      come_back_from(stream);
      throw;
    }
    try {
      order_after(stream_, stream);
    } catch (...) {
      wait_for(stream, device_);  // so that what f queued is done before the memory goes
      throw;
    }
  }

  /// The same, and the host waits for it. Throws before `f` where that would break a stream capture: also where
  /// `stream()` is being captured, since `stream` would join it.
  template <class F>
  void wait_on(stream_ref stream, F const& f) const {
    require_stream(stream);
    device_guard const on_device(device_);
    bool const elsewhere = stream != stream_;
    if (may_break_capture(stream.get()) || (elsewhere && may_break_capture(stream_.get())))
      check(cudaErrorStreamCaptureImplicit, "cudaStreamSynchronize");
    if (elsewhere) order_after(stream, stream_);
    f();
    cudaError_t const code = relaxed([&] { return cudaStreamSynchronize(stream.get()); });
    if (code != cudaSuccess) wait_for(stream, device_);  // so that nothing uses the host's memory later
    check(code, "cudaStreamSynchronize");
  }

  /// `stream` in place of `stream()`: after its work so far, if there is memory that this may use. Throws then where
  /// one of the two is in a capture that the other is no part of: that would break, or `stream` stay in it.
  void move_to(stream_ref stream, bool has_memory) {
    require_stream(stream);
    if (has_memory && stream != stream_) {
      device_guard const on_device(device_);
      require_no_other_capture(stream);
      require_part_of_own_capture(stream);
      order_after(stream, stream_);
    }
    stream_ = stream;
  }

 private:
  void require_no_other_capture(stream_ref stream) const {
    std::uint64_t const capture = capture_in(stream);
    if (capture != 0 && capture != capture_in(stream_))
      check(cudaErrorStreamCaptureIsolation,
            "a container's work on a stream that is being captured (let stream() join that capture, or call set_stream "
            "before it begins)");
  }
  void require_part_of_own_capture(stream_ref stream) const {
    if (capture_in(stream_) != 0 && capture_in(stream) == 0)
      check(cudaErrorStreamCaptureIsolation,
            "set_stream of a container whose stream() is being captured (let the new stream join that capture first, "
            "or call set_stream before it begins or after it ends)");
  }
  /// After `f` threw: a stream that joined a capture has to come back to it.
  void come_back_from(stream_ref stream) const noexcept try {
    if (capture_in(stream) != 0) order_after(stream_, stream);
  } catch (std::exception const&) {
  }
  static void require_stream(stream_ref stream) {
    if (stream.is_host_order())
      throw std::invalid_argument(
          "weir: a container lives on a stream, and the host's order is none; give it the stream that its work is on, "
          "or use a standard container with weir::allocator");
  }
  bool needs_device(stream_ref stream) const noexcept { return !memory_says_ || is_default_stream(stream.get()); }

  stream_ref stream_;
  int device_;
  bool memory_says_;  // which device it is on
};

}  // namespace weir::detail
