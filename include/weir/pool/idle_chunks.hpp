#pragma once
// Memory on its way in a pool that grows in place: where some is missing, and idle chunks that it can come from.

#include <weir/core/bytes.hpp>
#include <weir/core/growable.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace weir::detail {

/// Addresses in whole chunks, as pieces: as many as there was room for.
class piece_list {
 public:
  struct piece {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    block_id block = 0;
    bool is_empty = false;    ///< its memory was taken away
    std::uintptr_t from = 0;  ///< it is to show what is there; 0: it is to have memory of its own
    void* begin() const noexcept { return reinterpret_cast<void*>(address); }
  };

  /// May throw `std::bad_alloc`.
  explicit piece_list(std::size_t most) : pieces_(most) {}
  /// Needs room.
  void add(piece const& p) noexcept { pieces_[count_++] = p; }
  /// The same, but what begins where the last piece ends is one with it.
  void append(std::uintptr_t address, std::size_t bytes) noexcept {
    piece* const last = count_ == 0 ? nullptr : end() - 1;
    if (last != nullptr && last->address + last->bytes == address)
      last->bytes += bytes;
    else
      add({address, bytes});
  }
  /// All of `holes`, the first of which are to show what `chunks` have, chunk by chunk. May throw `std::bad_alloc`.
  void show(piece_list& holes, piece_list& chunks) {
    pieces_.grow(holes.count_ + chunks.count_);
    piece const* from = chunks.begin();
    std::size_t used = 0;  // of that
    for (piece const& hole : holes)
      for (std::size_t at = 0, bytes = 0; at < hole.bytes; at += bytes) {
        bool const is_shown = from != chunks.end();
        bytes = is_shown ? lesser(hole.bytes - at, from->bytes - used) : hole.bytes - at;
        add({.address = hole.address + at, .bytes = bytes, .from = is_shown ? from->address + used : 0});
        used += bytes;
        if (is_shown && used == from->bytes) ++from, used = 0;
      }
  }
  piece* begin() noexcept { return pieces_.data(); }
  piece* end() noexcept { return begin() + count_; }

  /// Puts memory behind all of them, or shows there what others have; all or nothing. Throws what the upstream throws.
  /// An undo that is refused is tried again: the driver may have reported an error of earlier work.
  template <growable Upstream>
  bool map(Upstream& upstream) {
    piece* done = begin();
    auto const undo = [&] {
      while (done-- != begin())
        if (!upstream.unmap(done->begin(), done->bytes)) upstream.unmap(done->begin(), done->bytes);
    };
    try {
      for (; done != end(); ++done)
        if (!fill(*done, upstream)) return undo(), false;
    } catch (...) {
      undo();
      throw;
    }
    return true;
  }

 private:
  template <growable Upstream>
  static bool fill(piece const& hole, Upstream& upstream) {
    return hole.from == 0 ? upstream.map(hole.begin(), hole.bytes)
                          : upstream.alias(hole.begin(), reinterpret_cast<void*>(hole.from), hole.bytes);
  }

  grown_array<piece> pieces_;
  std::size_t count_ = 0;
};

/// Idle chunks of a heap, held while their memory is taken away, and not counted as reserved. When this ends, what was
/// taken away is a hole, and the rest is in its list again and counted. Guarded by the pool's lock, but for `unmap`.
class idle_chunks {
 public:
  /// Finds at most `bytes`, rounded up to chunks, that are free in `list`: the largest pieces first, of which the ends.
  /// May throw `std::bad_alloc`.
  idle_chunks(stream_ordered_heap& heap, pool_level& reserved, std::size_t chunk, std::size_t bytes,
              list_id list = shared)
      : heap_(heap), reserved_(reserved), list_(list), held_(round_up_or_zero(bytes, chunk) / chunk) {
    std::size_t missing = round_up_or_zero(bytes, chunk);
    for (std::size_t pieces = 4, held = 1; missing != 0 && held != 0; missing -= held, pieces *= 2)
      held = hold_largest(chunk, missing, pieces);
  }
  ~idle_chunks() {
    settle();
    for (piece_list::piece const& p : held_)
      if (!p.is_empty && !is_shown_) heap_.put_back(p.block, list_);
    if (!is_shown_) reserved_.current += bytes_ - emptied_;
  }
  idle_chunks(idle_chunks const&) = delete;
  idle_chunks& operator=(idle_chunks const&) = delete;

  std::size_t bytes() const noexcept { return bytes_; }
  piece_list& pieces() noexcept { return held_; }
  list_id list() const noexcept { return list_; }
  /// They are to be used at other addresses from now on: never again where they are, nor counted there.
  void set_shown() noexcept { is_shown_ = true; }
  /// What was taken away so far is a hole from now on, though the rest is still held: whoever ends the heap, or parks
  /// it, takes what is held for memory.
  void settle() noexcept {
    for (piece_list::piece& p : held_)
      if (p.is_empty && p.block != 0) heap_.empty(std::exchange(p.block, 0));
  }
  /// What `unmap` took away.
  std::size_t emptied() const noexcept { return emptied_; }
  /// Without the lock. False if the driver refuses some of it; may be repeated.
  template <growable Upstream>
  bool unmap(Upstream& upstream) noexcept {
    for (piece_list::piece& p : held_) {
      if (p.is_empty) continue;
      p.is_empty = upstream.unmap(p.begin(), p.bytes);
      if (p.is_empty) emptied_ += p.bytes;
    }
    return emptied_ == bytes_;
  }

 private:
  /// The largest pieces, as many at most, and `most` bytes of them: of the last one its end. Returns how many bytes: 0
  /// if there are none, or no host memory, and then less is moved.
  std::size_t hold_largest(std::size_t chunk, std::size_t most, std::size_t pieces) noexcept try {
    heap_.reserve_holds(pieces);  // before it looks: that may find work done, and merge what is free
    piece_list::piece* const first = held_.end();
    std::size_t bytes = 0;
    heap_.for_each_idle(list_, chunk, [&](stream_ordered_heap::idle_chunks const& idle) {
      std::size_t const part = lesser(most - bytes, idle.end - idle.begin);
      held_.add({idle.end - part, part, idle.block});
      bytes += part;
      return bytes == most || --pieces == 0;
    });
    // Only now, since that changes the list.
    for (piece_list::piece* p = first; p != held_.end(); ++p)
      p->block = heap_.hold(stream_ordered_heap::idle_chunks{p->block, p->address, p->address + p->bytes});
    bytes_ += bytes;
    reserved_.current -= bytes;
    return bytes;
  } catch (std::bad_alloc const&) {
    return 0;
  }

  stream_ordered_heap& heap_;
  pool_level& reserved_;
  list_id list_;
  piece_list held_;
  std::size_t bytes_ = 0, emptied_ = 0;
  bool is_shown_ = false;
};

}  // namespace weir::detail
