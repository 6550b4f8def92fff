#pragma once
// The live blocks of a pool, and how they come back: which is meant by a free, and whose it is from then on.

#include <weir/core/error.hpp>
#include <weir/core/live_block.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/pool/order/early_events.hpp>
#include <weir/pool/ordered_range.hpp>
#include <weir/pool/small_blocks.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::detail {

/// Finds what was handed out by its address, and takes it back behind the work that is on its streams now: to where a
/// stream has it at hand, or into that stream's free list. What anyone is given next is for `stream_ordered_heap`, of
/// which this is the part that only takes back. Guarded by the pool's lock.
class ordered_frees : public ordered_range {
 public:
  using slot = small_blocks::slot;

  // ---- Which live block or slot it is.

  /// The live block that was allocated so and belongs to no capture, or 0.
  [[gnu::always_inline]] block_id find_live(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    block_id const id = find_any_live(p, bytes, alignment);
    return id != 0 && heap_.blocks()[id].captured == shared ? id : 0;
  }
  /// The same, but it may.
  [[gnu::always_inline]] block_id find_any_live(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes > max_block_bytes || !is_valid_alignment(alignment)) [[unlikely]]
      return 0;  // as which a block may be marked that is at hand, or lent
    auto const alignment_log = static_cast<unsigned>(std::countr_zero(alignment));
    block_id const id = heap_.find_live(reinterpret_cast<std::uintptr_t>(p), alignment_log);
    return id != 0 && heap_.blocks()[id].requested() == bytes ? id : 0;
  }
  /// What is live at an address, block or slot, whatever it was asked for as.
  live_block find_block(void const* p) noexcept {
    asked const was = find_asked(p);
    return was.bytes == 0 ? live_block{} : live_block{was.bytes, std::size_t{1} << was.alignment_log, true};
  }
  /// The live slot that was allocated so, if it is one.
  [[gnu::always_inline]] slot find_slot(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
    return small_.find(p, bytes, alignment);
  }

  /// What is wrong with a deallocation, in words; `inside`: the pointer lies in a segment.
  std::string misuse(void* p, std::size_t bytes, std::size_t alignment, bool inside) {
    std::string const text = "deallocate of " + hex(p) + " with " + std::to_string(bytes) + " B aligned to " +
                             std::to_string(alignment) + ": ";
    if (live_block const found = find_block(p))
      return text + "it was allocated with " + std::to_string(found.bytes) + " B aligned to " +
             std::to_string(found.alignment) + "; give back the same";
    if (inside)
      return text +
             "it lies in this pool's memory but no live block starts there (freed twice, or not the pointer that "
             "allocate returned)";
    return text + "it is not this pool's memory (allocated by another resource, or by CUDA directly)";
  }

  // ---- Slots, and what stays at hand: see `small_blocks`.

  /// Keeps a live block that `who` freed for its stream; false if it is for the heap.
  [[gnu::always_inline]] bool keep(block_id id, stream_identity const& who) noexcept {
    return small_.keep(tracker_.list_seen(who.key), id);
  }
  /// What `give_at_once` says of a block in the list of a stream that keeps none.
  static constexpr std::size_t for_the_heap = 1;
  /// The stream has at hand from now on what it frees: a slot of its own slabs, or a block. Returns how large that is;
  /// 0, and nothing changed, where it is neither, or that takes more than a few instructions.
  [[gnu::always_inline]] std::size_t give_at_once(stream_key key, void* p, std::size_t bytes, live_mark mark) noexcept {
    list_id const list = tracker_.list_seen(key);
    if (slot const found = small_.find_slot(p, bytes, mark))
      return small_.give_own_at_once(tracker_, found, list) ? found.bytes() : 0;
    if (!small_.is_open(list)) [[unlikely]]
      return for_the_heap;  // before looking which block it is: so end frees on a stream that only frees
    block_id const id = heap_.find_live_at_once(reinterpret_cast<std::uintptr_t>(p), mark);
    if (id == 0 || heap_.blocks()[id].requested() != bytes || heap_.blocks()[id].captured != shared) [[unlikely]]
      return 0;
    return small_.keep_at_once(heap_, tracker_, list, id);
  }
  /// Takes back a slot that `who` freed. False, and nothing changed, where that is not simple: then make it a block.
  bool give(slot const& freed, stream_identity const& who) noexcept {
    if (give_own(freed, who.key)) return true;
    list_id const list = list_to_give(who);
    if (list != shared) return small_.give(freed, list);
    if (!who.stream.is_host_order()) return false;
    small_.give_done(freed);
    return true;
  }
  /// The same, and false, if the slot is not one of the stream's own.
  [[gnu::always_inline]] bool give_own(slot const& freed, stream_key key) noexcept {
    return small_.give_own(freed, tracker_.list_seen(key));
  }
  /// The same for one that was used on several streams, in their `common_list`.
  bool give(slot const& freed, list_id common) noexcept { return small_.give(freed, common); }
  void give_done(slot const& freed) noexcept { small_.give_done(freed); }
  /// Makes blocks of all of its slab's slots; false if there is no host memory.
  bool make_blocks(slot const& of) noexcept { return small_.make_blocks(of); }

  // ---- Blocks.

  /// Takes back a block freed by `who` and returns the free block it is part of now. 0, and nothing changed, if there
  /// is no room to remember the stream, even without those that ended.
  [[gnu::always_inline]] block_id give(block_id id, stream_identity const& who) noexcept {
    list_id const list = list_to_give(who);
    if (list != shared) [[likely]] {
      small_.count_free(list, id);
      early_.freed(place_of(id));
      return heap_.give(id, list, tracker_.on_free(list));
    }
    return who.stream.is_host_order() ? give_done(id) : 0;
  }
  /// The same for a stream that may be destroyed, by its handle alone: CUDA need not be asked who it is. 0, and nothing
  /// changed, where it must.
  block_id give_unasked(block_id id, stream_ref stream) noexcept {
    list_id const list = tracker_.list_unasked(stream);
    if (list == shared) return 0;
    sequence_number const sequence = tracker_.on_free_unasked(list);
    if (sequence == sequence_number::none) return 0;
    small_.count_free(list, id);
    return heap_.give(id, list, sequence);
  }
  /// CUDA was asked just now who this is.
  void confirm(stream_identity const& who) noexcept { tracker_.confirm(tracker_.find(who.key)); }
  /// The same for a block that was used on several streams, in their `common_list`.
  block_id give(block_id id, list_id common) noexcept {
    early_.freed(place_of(id));
    return heap_.give(id, common, tracker_.on_free(common));
  }
  /// The free list of what is freed after the work of `so_far` (`shared`: of nobody) and of `who`; `shared` if there is
  /// no room.
  list_id common_list(list_id so_far, stream_identity const& who) noexcept {
    list_id const list = tracker_.list_of(who.key, who.stream);
    tracker_.confirm(list);
    return so_far == shared || list == shared ? list : tracker_.both(so_far, list);
  }
  /// The same for a block whose work is done.
  block_id give_done(block_id id) noexcept { return heap_.give(id, shared, sequence_number::none); }

  // ---- Live blocks whose record is somebody else's: see `thread_cache`.

  /// How the live memory at an address was asked for; 0 bytes: none starts there.
  struct asked {
    std::size_t bytes = 0;
    unsigned alignment_log = 0;
    std::size_t block_bytes = 0;
  };
  asked find_asked(void const* p) noexcept {
    if (slot const found = small_.find(p)) return {found.requested(), found.alignment_log(), found.bytes()};
    block_id const id = heap_.find_live(reinterpret_cast<std::uintptr_t>(p));
    if (id == 0 || heap_.blocks()[id].is_cached()) return {};
    block const& b = heap_.blocks()[id];
    return {b.requested(), b.alignment_log(), b.bytes()};
  }
  /// From now on it was asked for so.
  void set_asked(void const* p, std::size_t bytes, unsigned alignment_log) noexcept {
    if (slot const found = small_.find(p)) return slab_store::set_asked(found, bytes, alignment_log);
    heap_.reuse(heap_.find_live(reinterpret_cast<std::uintptr_t>(p)), bytes, alignment_log);
  }
  /// The list of a stream that does not end, or whose end is noticed, kept for it until `release_list`; else `shared`.
  list_id keep_list(stream_identity const& who) noexcept {
    list_id const list = list_of_free(who);
    if (list == shared || !tracker_.is_lasting(list)) return shared;
    tracker_.keep_open(list);
    return list;
  }
  void release_list(list_id list) noexcept { tracker_.end_wait(list); }
  /// Takes back a live small block that was freed on a kept list. False, and it stays live, if there is no host memory.
  bool give_small(void* p, list_id list) noexcept {
    if (slot const found = small_.find(p)) {
      if (give(found, list)) return true;
      if (!make_blocks(found)) return false;
    }
    block_id const id = heap_.find_live(reinterpret_cast<std::uintptr_t>(p));
    small_.count_free(list, id);
    give(id, list);
    return true;
  }

 protected:
  explicit ordered_frees(int device) : ordered_range(device) {}
  ~ordered_frees() = default;

  early_events early_;  // planned by what is freed

 private:
  /// Bytes that a live block stands in the way of: another one as aligned is as far away at least.
  std::size_t place_of(block_id id) const noexcept {
    block const& b = heap_.blocks()[id];
    return greater(b.bytes(), std::size_t{1} << b.alignment_log());
  }
};

}  // namespace weir::detail
