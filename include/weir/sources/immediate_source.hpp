#pragma once
// What the sources are whose memory comes and goes at once: those whose CUDA calls know no streams.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sources/rejected_free.hpp>
#include <weir/sources/shifted_blocks.hpp>
#include <weir/sources/source_device.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <string>

namespace weir::detail {

/// A source whose CUDA calls know no streams. `Kind` names it, states the facts, takes and gives back.
/// Its memory is ready for everyone at once; to free it in stream order, the host waits for the stream first.
template <class Kind>
class immediate_source {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = Kind::host_accessible;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = Kind::name;

  /// `device` negative: the current one. Throws `std::invalid_argument` if the device cannot do it.
  explicit immediate_source(int device) : device_(chosen_device(Kind::name, device)) { Kind::require(device_); }
  immediate_source(immediate_source const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  immediate_source& operator=(immediate_source const&) = delete;

  /// Throws `out_of_memory`, `cuda_error`, or `std::invalid_argument` for an alignment beyond 2 MiB. Thread-safe.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    require_alignment(alignment);
    if (wants_captured_memory(stream)) refuse(stream, bytes);
    if (life_.is_exiting()) check(process_exit::error, Kind::name);
    life_.settle();
    void* const p = shifted_.allocate(
        bytes, alignment,
        [this](std::size_t n) {
          device_guard const on_device(device_);
          return Kind::take(n);
        },
        [](void* base) { succeeded(Kind::give(base)); });
    if (p == nullptr) refuse(stream, bytes, alignment);
    held_.add(bytes);
    return p;
  }

  /// Blocks until the work queued on `stream` so far is done; not in `host_order`, where there is none. Thread-safe.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr || life_.is_exiting()) return;
    // Where not even the device can be waited for, the memory is kept: work that was not seen to end may still write
    // it.
    if (!stream.is_host_order() && !wait_for(stream, device_)) return note_kept();
    if (freed(Kind::give(shifted_.base_of(p, alignment)), Kind::name, Kind::give_call, p, bytes)) held_.subtract(bytes);
  }

  /// The device that was current when this was made, or that the options named.
  int device() const noexcept { return device_; }

  /// What CUDA is asked for: an alignment above 256 B takes room to move in.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }

  void describe(report& out) const {
    out.below(std::string(Kind::name) + "(" + std::to_string(device_) + ")",
              life_.is_exiting() ? process_exit::words : Kind::state(device_, held_.load()));
    if (Kind::is_of_device_alone && !life_.is_exiting()) note_device_memory(out, device_);
  }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes,
                                                     std::size_t alignment = default_alignment) const {
    report own = report_of(*this);
    own.hint(hint_for(counted_room(bytes, alignment), own, Kind::hint));
    throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream, device_}, Kind::name, own);
  }

  process_exit life_;
  int device_;
  shifted_blocks shifted_;
  atomic<std::size_t> held_;  // bytes, as they were asked for
};

}  // namespace weir::detail
