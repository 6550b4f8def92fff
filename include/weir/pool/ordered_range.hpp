#pragma once
// The blocks of a pool in one range of addresses, some without memory.

#include <weir/pool/ordered_blocks.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// What `growable_range` asks of a pool's blocks: where a stream can have a request served with the least memory that
/// is missing, and which memory lies idle. Addresses without memory are free blocks of a list that nobody takes from,
/// as in `growable_heap`. Guarded by the pool's lock.
class ordered_range : public ordered_blocks {
 public:
  using window = growable_heap::window;
  using idle_chunks = growable_heap::idle_chunks;
  /// A window that is held: nobody else changes anything in it.
  struct held_window : window {
    block_id held = 0;
    list_id own = shared;
    bool is_in_order = false;  // only the stream itself may have what is missing and is filled then
    list_id filled() const noexcept { return is_in_order ? own : shared; }
  };

  /// Adds a range without memory; returns its first block, which names it. May throw `std::bad_alloc`.
  block_id add_range(std::uintptr_t address, units size) {
    reserve();
    if (holes_ == shared) holes_ = tracker_.open_captured();  // a list that nobody takes from, and that is never done
    if (holes_ == shared) throw std::bad_alloc();
    return heap_.add_range(address, size, holes_, tracker_.on_free(holes_));
  }
  /// Where `who` can have a request served with the least memory that is missing. In a capture nothing is used that was
  /// freed in it.
  window find_window(stream_identity const& who, request const& r, std::size_t chunk) noexcept {
    list_id const own = own_list(who);
    return heap_.best_window(r, chunk, [&](block_id id) {
      list_id const owner = heap_.blocks()[id].list;
      return owner == shared || (own != shared && tracker_.available(own, owner, heap_.sequence(id)));
    });
  }
  /// Holds it; calls `on_hole(address, bytes)` for all that is missing, piece by piece.
  template <class F>
  held_window hold(window const& w, stream_identity const& who, F on_hole) noexcept {
    held_window held{w};
    held.own = own_list(who);
    tracker_.keep_open(held.own);
    held.held = heap_.hold(w, on_hole);
    return held;
  }
  /// Nothing is missing any more: hands out the request's part; others may have the rest.
  block_id take(held_window const& w, request const& r) noexcept {
    tracker_.end_wait(w.own);
    return heap_.take_held(w.held, w, r, w.filled(), [&](list_id list) { return tracker_.on_free(list); });
  }
  /// All is as it was, but for what was missing and is `filled` now: others may have that.
  void put_back(held_window const& w, bool filled) noexcept {
    tracker_.end_wait(w.own);
    heap_.put_back(w.held, w, filled ? w.filled() : holes_, w.own,
                   [&](list_id list) { return tracker_.on_free(list); });
  }
  template <class F>
  void for_each_idle(list_id list, std::size_t chunk, F f) const {
    heap_.for_each_idle(list, chunk, f);
  }
  /// The device of the stream whose list it is.
  int device_of(list_id list) const noexcept { return tracker_.device_of(list); }
  /// Room to hold so many of these. May throw `std::bad_alloc`.
  void reserve_holds(std::size_t count) {
    reserve();
    heap_.reserve_pieces(2 * count);
  }
  block_id hold(idle_chunks const& idle) noexcept { return heap_.hold(idle); }
  /// Into the list that it was in, which is open.
  void put_back(block_id held, list_id list) noexcept {
    heap_.put_back_held(held, list, [&](list_id l) { return tracker_.on_free(l); });
  }
  void empty(block_id held) noexcept { heap_.empty_held(held, tracker_.on_free(holes_)); }
  /// See `growable_heap::park`. All work on free blocks has to be done.
  void park(block_id first) noexcept { heap_.park(first); }
  void unpark(block_id first) noexcept {
    heap_.unpark(
        first, [&](list_id list) { return tracker_.is_captured(list); },
        [&](list_id list) { return tracker_.on_free(list); });
  }
  /// As `owner`, of a live block of a range that is parked.
  capture_key owner_parked(block_id id, stream_identity const& who) const noexcept {
    list_id const from = heap_.blocks()[id].captured;
    return from == holes_ ? who.capture : private_.capture_of(from);
  }
  /// Takes it back: for everyone after `unpark`, but for its capture's if it has one. False if there is no room to
  /// remember that: it stays live for good.
  bool give_parked(block_id id, capture_key owner) noexcept {
    list_id const list = owner == capture_key::none ? shared : private_.list_for_nobody(owner);
    if (owner != capture_key::none && list == shared) return false;
    heap_.give_parked(id, list);
    return true;
  }
  /// As `captured_bytes`, of a range that is parked, where it is in no list. Looks at every block.
  std::size_t captured_bytes_parked(block_id first, capture_key capture) const noexcept {
    std::size_t bytes = 0;
    heap_.for_each_held(first, [&](block const& b) { bytes += private_.is_of(capture, b.list) ? b.bytes() : 0; });
    return bytes;
  }
  template <class F>
  void for_each_with_memory(block_id first, F f) const {
    heap_.for_each_with_memory(first, f);
  }
  template <class F>
  void for_each_live(block_id first, F f) const {
    heap_.for_each_live(first, f);
  }

 protected:
  using ordered_blocks::ordered_blocks;
  ~ordered_range() = default;
};

}  // namespace weir::detail
