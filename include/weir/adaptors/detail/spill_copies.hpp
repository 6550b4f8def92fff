#pragma once
// One block that can be spilled, and its way to the host and back, in stream order.

#include <weir/adaptors/detail/stream_marks.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/note_event.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace weir::detail {

/// The memory of one `spillable`, on the device or on the host.
struct spill_block {
  enum class place { device, host, moving };

  spill_block(std::size_t b, std::size_t a) noexcept : bytes(b), alignment(a) {}

  std::size_t bytes, alignment;
  place at = place::device;
  void* on_device = nullptr;
  void* on_host = nullptr;
  std::size_t pins = 0;
  bool is_idle = false;     ///< on the device and not pinned: it can be spilled
  bool kept = false;        ///< nobody knows when its work is done: it stays where it is for good
  bool dropped = false;     ///< its handle ended while it moved to the host: who moves it frees it
  std::uint64_t mover = 0;  ///< the thread that moves it to the host, or did last
  stream_marks uses = {};   ///< what comes before it is moved, freed or used elsewhere; by rising number
};

/// Moves and frees blocks behind their uses. The host waits for no work, unless CUDA does not make a stream wait for
/// it, or the host's memory is not page-locked. Thread-safe for different blocks; the caller sees to it that nobody
/// else has the block meanwhile.
class spill_copies {
 public:
  /// `memory` gives and takes the blocks' memory on the device, `host` that for their contents.
  spill_copies(basic_any_ref<false, false> memory, any_host_ref host, int device) noexcept
      : memory_(memory), host_(host), device_(device), marks_(device) {}

  /// Takes memory for a new block, whose only use is the allocation. Throws what the memory throws, and `cuda_error`.
  void allocate(spill_block& b, stream_ref stream) {
    stream_marks made = marks_.take();
    b.on_device = memory_.allocate(stream, b.bytes, b.alignment);
    b.kept = !set_mark(made.front(), stream, device_);
    b.uses.splice(b.uses.end(), made);
  }

  /// Copies a block to the host behind its uses, and gives its memory back behind the copy. False, and nothing has
  /// happened, if the host has no room or CUDA fails.
  bool copy_out(spill_block& b) noexcept try {
    stream_marks copied = marks_.take();
    stream_ref const stream = side();
    void* const to = host_.allocate(stream, b.bytes);
    if (to == nullptr) return false;
    try {
      hold_back(stream, b.uses);
      check(cudaMemcpyAsync(to, b.on_device, b.bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
    } catch (...) {
      host_.deallocate(stream, to, b.bytes);
      throw;
    }
    b.kept = !set_mark(copied.front(), stream, device_);
    if (b.kept) return false;
    note_event(memory_, trace_action::spill, b.on_device, b.bytes, stream);
    memory_.deallocate(stream, std::exchange(b.on_device, nullptr), b.bytes, b.alignment);
    b.on_host = to;
    replace_uses(b, copied);
    return true;
  } catch (...) {
    return false;
  }

  /// Takes memory in the order of `stream` and copies the contents there; their place on the host is free behind the
  /// copy. Throws what the memory throws, and `cuda_error`: then nothing has happened.
  void copy_in(spill_block& b, stream_ref stream) {
    stream_marks arrived = marks_.take();
    require_there(b);
    void* const to = memory_.allocate(stream, b.bytes, b.alignment);
    try {
      hold_back(stream, b.uses);
      check(cudaMemcpyAsync(to, b.on_host, b.bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
    } catch (...) {
      memory_.deallocate(stream, to, b.bytes, b.alignment);
      throw;
    }
    b.kept = !set_mark(arrived.front(), stream, device_);
    host_.deallocate(stream, std::exchange(b.on_host, nullptr), b.bytes);
    note_event(memory_, trace_action::unspill, to, b.bytes, stream);
    b.on_device = to;
    replace_uses(b, arrived);
  }

  /// Frees a block behind its uses: on the stream of the last one if that is a known stream, else on this one's own.
  /// One that is `kept` is not freed.
  void free(spill_block& b) noexcept {
    if (b.kept) return;
    if (b.on_host != nullptr)
      host_.deallocate(*side_, b.on_host, b.bytes);  // the stream that copied it there
    else
      free_on_device(b);
    marks_.give_back(b.uses);
  }

  mark_cache& marks() noexcept { return marks_; }
  int device() const noexcept { return device_; }

 private:
  /// Memory that is not page-locked CUDA may read when a copy from it is queued, whatever the stream waits for: so the
  /// host waits until the contents are there.
  static void require_there(spill_block const& b) {
    cudaPointerAttributes kind{};
    check(cudaPointerGetAttributes(&kind, b.on_host), "cudaPointerGetAttributes");
    if (kind.type == cudaMemoryTypeUnregistered && !wait_for(b.uses))
      check(cudaErrorNotReady, "waiting for contents on their way to the host");
  }

  void replace_uses(spill_block& b, stream_marks& last) noexcept {
    marks_.give_back(b.uses);
    b.uses.splice(b.uses.end(), last);
  }

  /// Where CUDA does not put a stream behind the uses, the host waits; where it cannot either, the memory is kept.
  void free_on_device(spill_block const& b) noexcept {
    try {
      stream_ref const last = b.uses.back().stream;
      stream_ref const stream = last.lasting_id() != 0 && !may_be_captured(last) ? last : side();
      hold_back(stream, b.uses);
      return memory_.deallocate(stream, b.on_device, b.bytes, b.alignment);
    } catch (...) {
    }
    if (wait_for(b.uses)) memory_.deallocate(host_order, b.on_device, b.bytes, b.alignment);
  }

  /// The stream that copies to the host: none of the program's, which may have work that takes long. To pools it is one
  /// that may end, so that they leave an event behind each free: the one who gets the memory waits for that copy alone,
  /// and needs nothing recorded here, which is not allowed while a capture is declared.
  stream_ref side() {
    std::lock_guard const lock(making_side_);
    if (!side_) side_.emplace(device_);
    return *side_;
  }

  basic_any_ref<false, false> memory_;
  any_host_ref host_;
  int device_;
  mark_cache marks_;
  std::mutex making_side_;
  std::optional<internal_stream> side_;
};

}  // namespace weir::detail
