#pragma once
// Idle chunks that are moved before the work on them is done.

#include <weir/cuda/event.hpp>
#include <weir/pool/idle_chunks.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>
#include <utility>

namespace weir::detail {

/// Chunks that a stream freed, shown to it elsewhere while its work may still use them where they were. That work comes
/// first in the stream's order, at whichever address. When it is `done`, they are taken away where they were.
struct pending_move {
  /// Finds at most `bytes` in `list`, the stream's. May throw `std::bad_alloc` and `cuda_error`.
  pending_move(stream_ordered_heap& heap, pool_level& reserved, std::size_t chunk, std::size_t bytes, list_id list)
      : chunks(heap, reserved, chunk, bytes, list) {}

  idle_chunks chunks;
  event done;
  shared_owner<pending_move> next;
};

/// Those of one pool that were not seen done, the oldest first. Guarded by the pool's lock.
class pending_moves {
 public:
  pending_moves() = default;
  /// One after the other, however many there are.
  ~pending_moves() {
    while (first_.get() != nullptr) first_ = std::move(first_->next);
  }
  pending_moves(pending_moves const&) = delete;
  pending_moves& operator=(pending_moves const&) = delete;

  /// Empty if there is none.
  shared_owner<pending_move> first() const noexcept { return first_; }
  void add(shared_owner<pending_move> move) noexcept {
    auto* end = &first_;
    while (end->get() != nullptr) end = &(*end)->next;
    *end = std::move(move);
  }
  /// Calls `drop(move)`, which takes the chunks away where they were if their work is done, and returns whether they
  /// are gone; it may drop the lock. Of a stream's the oldest is asked for, and the next once that is gone.
  template <class Drop>
  void drop_done(Drop drop) noexcept {
    shared_owner<pending_move> kept;
    auto* end = &kept;
    list_id not_done = shared;
    for (auto all = std::move(first_); all.get() != nullptr;) {
      auto move = std::move(all);
      all = std::move(move->next);
      if (move->chunks.list() == not_done || !drop(*move)) {
        move->chunks.settle();  // some of it may have gone
        not_done = move->chunks.list();
        *end = std::move(move);
        end = &(*end)->next;
      }
    }
    *end = std::move(first_);  // by other threads, meanwhile
    first_ = std::move(kept);
  }

 private:
  shared_owner<pending_move> first_;
};

}  // namespace weir::detail
