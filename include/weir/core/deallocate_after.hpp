#pragma once
// Giving memory back that several streams have used: it is used again after the work of all of them.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_list.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weir {
namespace detail {

/// A memory's streams, brought together: for layers that know one stream a free.
class gathered_streams {
 public:
  /// Lets one of the streams wait for the work queued on the others so far: `stream`, or one that is being captured,
  /// since a graph can have no edge to what is outside of it. The host waits for what no stream can wait for.
  gathered_streams(stream_ref stream, stream_list others, int device) noexcept
      : last_(stream), capture_(capture_in(stream)) {
    for (stream_ref const other : others) choose(other);
    wait_for_work_of(stream, device);
    for (stream_ref const other : others) wait_for_work_of(other, device);
  }

  /// Work on it from now on comes after all; host order where all are that.
  stream_ref last() const noexcept { return last_; }
  /// False if the work of one of them can be waited for by nobody.
  bool complete() const noexcept { return complete_; }
  /// False if that is because two of them are in different captures.
  bool one_capture() const noexcept { return one_capture_; }

 private:
  void choose(stream_ref other) noexcept {
    if (other.is_host_order() || capture_ != 0) return;
    std::uint64_t const capture = capture_in(other);
    if (capture == 0 && !last_.is_host_order()) return;
    last_ = other;
    capture_ = capture;
  }

  void wait_for_work_of(stream_ref other, int device) noexcept {
    if (other.is_host_order() || other == last_) return;
    std::uint64_t const capture = capture_ == 0 ? 0 : capture_in(other);
    if (capture != 0 && capture != capture_)
      complete_ = one_capture_ = false;
    else if (capture == capture_)
      complete_ &= wait_on_device(other, device) || wait_for(other, device);
    else
      complete_ &= wait_for(other, device);
  }

  bool wait_on_device(stream_ref other, int device) const noexcept {
    bool const touches_legacy = other.get() == cudaStreamLegacy || last_.get() == cudaStreamLegacy;
    if (touches_legacy && may_break_capture(cudaStreamLegacy, device)) return false;
    cudaEvent_t const behind =
        capture_ != 0 ? captured_behind(other, device) : recorded_behind(other, device_of_stream(other, device));
    if (behind == nullptr) return false;
    device_switch const on_device(device);  // a default stream is the current one's
    bool const waits = on_device.is_current() && succeeded(cudaStreamWaitEvent(last_.get(), behind, 0));
    succeeded(cudaEventDestroy(behind));
    return waits;
  }

  /// Null if CUDA does not record it.
  static cudaEvent_t recorded_behind(stream_ref stream, int device) noexcept {
    device_switch const on_device(device);
    cudaEvent_t event = nullptr;
    if (!on_device.is_current() || !succeeded(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) return nullptr;
    if (succeeded(cudaEventRecord(event, stream.get()))) return event;
    succeeded(cudaEventDestroy(event));
    return nullptr;
  }
  /// The same for a stream that captures, most likely one of `device`: to ask it which would break the capture.
  static cudaEvent_t captured_behind(stream_ref stream, int device) noexcept {
    cudaEvent_t event = recorded_behind(stream, device);
    int devices = 0;
    if (event != nullptr || !succeeded(cudaGetDeviceCount(&devices))) return event;
    for (int other = 0; other < devices && event == nullptr; ++other)
      if (other != device) event = recorded_behind(stream, other);
    return event;
  }
  /// `otherwise` for default streams, which are the current device's, and where CUDA does not say.
  static int device_of_stream(stream_ref stream, int otherwise) noexcept {
    int device = otherwise;
#if CUDART_VERSION >= 12080
    if (!is_default_stream(stream.get()) && !succeeded(cudaStreamGetDevice(stream.get(), &device))) device = otherwise;
#endif
    return device;
  }

  stream_ref last_;
  std::uint64_t capture_;
  bool complete_ = true;
  bool one_capture_ = true;
};

/// `deallocate_after` for a layer without one.
template <class R>
void deallocate_gathered(R& memory, stream_ref stream, void* p, std::size_t bytes, stream_list others,
                         std::size_t alignment) noexcept {
  int const device = weir::device_of(memory);  // negative: that of the current device's default streams
  gathered_streams const all(stream, others, device);
  if (!all.one_capture())
    return report_misuse("weir: deallocate_after of " + hex(p) + " with " + std::to_string(bytes) +
                         " B: two of its streams are being captured into different graphs; free it after the captures");
  if (!all.complete()) return note_kept();  // it might be in use
  if constexpr (!host_ordered<R>)
    if (all.last().is_host_order()) return weir::deallocate_sync(memory, p, bytes, alignment);
  if (!is_default_stream(all.last().get()) || device < 0) return memory.deallocate(all.last(), p, bytes, alignment);
  // A default stream is the current device's: the memory's, also where a failure above has left another one current.
  device_switch const on_device(device);
  if (on_device.is_current()) return memory.deallocate(all.last(), p, bytes, alignment);
  // Where CUDA does not say which is current, the host waits, and then no stream's order matters.
  if (!wait_for_device(device)) return note_kept();
  weir::deallocate_sync(memory, p, bytes, alignment);
}

}  // namespace detail

/// Takes memory back that `others` have used besides `stream`: it is used again, by whomever, after the work queued so
/// far on all of them, as after `record_stream` in PyTorch. Nobody has to order `others` before `stream` for that.
/// Otherwise as `memory.deallocate(stream, p, bytes, alignment)`; host order among `others` adds nothing.
///
/// `pool`, `arena` and `fixed_size` let neither the host nor a stream wait, also below other layers, handles and erased
/// types: the memory comes back when all of its work is done, or with a wait of the stream that needs it sooner. On
/// other memory, and with `WEIR_NO_CACHING=1`, `stream` waits for the others; the host waits for those that `stream`
/// cannot wait for.
///
/// In a stream capture the pool keeps the memory for the graph, as always, and does not use it again in the capture
/// either. On other memory, streams in different captures are misuse. No other thread may begin to capture one of
/// `others` meanwhile. May take host memory, unlike `deallocate`; does without, but the host then waits. Never throws.
/// When not to use it: where `stream` comes after the others anyway; `deallocate` is cheaper.
template <class R>
requires resource<std::remove_reference_t<R>>
void deallocate_after(R&& memory, stream_ref stream, void* p, std::size_t bytes, stream_list others,
                      std::size_t alignment = default_alignment) noexcept {
  if constexpr (requires { memory.deallocate_after(stream, p, bytes, others, alignment); })
    memory.deallocate_after(stream, p, bytes, others, alignment);
  else if (p != nullptr)
    detail::deallocate_gathered(memory, stream, p, bytes, others, alignment);
}

}  // namespace weir
