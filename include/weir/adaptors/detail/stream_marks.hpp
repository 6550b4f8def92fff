#pragma once
// Events behind the uses of one piece of memory: whoever moves or frees it waits for all of them.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/event.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstdint>
#include <list>

namespace weir::detail {

/// The end of some work on a stream.
struct stream_mark {
  weir::event event;
  stream_ref stream;         ///< where it was recorded last
  std::uint64_t number = 0;  ///< rises with time, for whoever numbers them
};
/// A list, so that marks change hands without host memory.
using stream_marks = std::list<stream_mark>;

/// True if a call that names `stream` could break a stream capture. No CUDA call for a known stream while no capture is
/// declared.
inline bool may_be_captured(stream_ref stream) noexcept {
  return (captures_declared() || stream.lasting_id() == 0) && may_break_capture(stream.get());
}

/// Puts `mark` behind the work queued on `stream` so far. Where CUDA does not record it, the host waits for that work.
/// False if it cannot wait either: then nobody knows when that work is done.
inline bool set_mark(stream_mark& mark, stream_ref stream, int device) noexcept {
  mark.stream = stream;
  return succeeded(cudaEventRecord(mark.event.get(), stream.get())) || wait_for(stream, device);
}

/// Work given to `stream` from now on comes after all marks; the host does not wait. Throws `cuda_error`: then it comes
/// after some of them.
inline void hold_back(stream_ref stream, stream_marks const& marks) {
  for (stream_mark const& mark : marks)
    if (mark.stream.lasting_id() == 0 || mark.stream.lasting_id() != stream.lasting_id()) mark.event.hold_back(stream);
}

/// Blocks the host until the work before all marks is done, and says whether it is known to be.
inline bool wait_for(stream_marks const& marks) noexcept {
  bool done = true;
  for (stream_mark const& mark : marks)
    done = done && relaxed([&] { return succeeded(cudaEventSynchronize(mark.event.get())); });
  return done;
}

/// Marks that nobody needs just now, so that a use seldom costs the creation of an event. Thread-safe.
class mark_cache {
 public:
  explicit mark_cache(int device) noexcept : device_(device) {}

  /// One mark, of the device that the cache is for. Throws `cuda_error` and `std::bad_alloc`.
  stream_marks take() {
    stream_marks taken;
    {
      spin_guard const lock(lock_);
      if (!idle_.empty()) taken.splice(taken.end(), idle_, idle_.begin());
    }
    if (taken.empty()) {
      device_guard const on_device(device_);
      taken.emplace_back();
    }
    return taken;
  }
  void give_back(stream_marks& marks) noexcept {
    spin_guard const lock(lock_);
    idle_.splice(idle_.end(), marks);
  }

 private:
  int device_;
  spin_lock lock_;
  stream_marks idle_;
};

}  // namespace weir::detail
