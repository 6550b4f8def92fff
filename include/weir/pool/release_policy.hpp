#pragma once
// When a pool gives memory back to its upstream, and how much.

#include <weir/pool/lent_blocks.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>

namespace weir::detail {

/// Gives back idle segments of a pool that holds more than `threshold` bytes, or is told to. Guarded by the pool's
/// lock, which it drops while the upstream is asked. Never waits for CUDA. `Segments`: `upstream_segments`, or what
/// stands for them over a growable upstream.
template <class Segments>
class release_policy {
 public:
  release_policy(biased_lock& lock, stream_ordered_heap& heap, Segments& segments, lent_blocks& lent,
                 std::size_t threshold) noexcept
      : lock_(lock), heap_(heap), segments_(segments), lent_(lent), threshold_(threshold) {}

  /// Above the threshold: `freed` may have been the last live block of its segment. That goes back as soon as it is
  /// idle: if CUDA does not yet say so, the frees to come ask again, and what a search learns serves too.
  [[gnu::noinline]] void keep_threshold_after(block_id freed) noexcept {
    if (segments_.may_be_idle_after(heap_, freed)) poll_and_keep_threshold();
  }
  /// The same after a slot was freed. `was_last`: it was its slab's last live one; then slabs may have become free
  /// blocks in several segments, and all streams that have some are looked at.
  [[gnu::noinline]] void keep_threshold_after_slot(bool was_last) noexcept {
    if (was_last) {
      heap_.gather_slabs();
      if (heap_.some_slab_went()) segments_.look_again();
    }
    if (segments_.may_be_idle()) poll_and_keep_threshold();
  }
  /// By what is known to be idle, without asking CUDA.
  void keep_threshold() noexcept { keep_at_most(threshold_); }

  /// Asks CUDA, without waiting, what is done; then gives back idle segments until at most `keep` bytes are held.
  /// Returns how many bytes that is.
  std::size_t release_idle(std::size_t keep) noexcept {
    lent_.gather_all();
    heap_.adopt();
    heap_.poll(heap_.all_lists());
    heap_.gather_slabs();
    segments_.look_again();
    return keep_at_most(keep);
  }

 private:
  void poll_and_keep_threshold() noexcept {
    heap_.poll(heap_.next_lists());
    keep_threshold();
  }
  std::size_t keep_at_most(std::size_t keep) noexcept { return segments_.give_idle(lock_, heap_, keep); }

  biased_lock& lock_;
  stream_ordered_heap& heap_;
  Segments& segments_;
  lent_blocks& lent_;
  std::size_t threshold_;
};

}  // namespace weir::detail
