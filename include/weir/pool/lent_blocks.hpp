#pragma once
// What a pool lent to the caches of its threads, and how it has that back.

#include <weir/pool/pool_options.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/thread_caches.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/thread_lease.hpp>

#include <cstddef>
#include <new>

namespace weir::detail {

/// Blocks of a heap that are live there and belong to the caches of threads, live or free: see `thread_cache`. Whoever
/// looks for memory or at all of it has the free ones back first (`gather`), and whoever names a block that one
/// (`ask_back`), so that nothing else knows of caches. Nothing is lent until `begin`. Guarded by the pool's lock, but
/// for the first four functions.
class lent_blocks {
 public:
  /// `numbers`: those of the pool, which count what is not lent.
  lent_blocks(stream_ordered_heap& heap, pool_numbers& numbers) noexcept : heap_(heap), numbers_(numbers) {}
  ~lent_blocks() { delete caches_.load(); }
  lent_blocks(lent_blocks const&) = delete;
  lent_blocks& operator=(lent_blocks const&) = delete;

  /// The calling thread's cache, made if it has none; null before `begin`, and without host memory.
  thread_cache* cache_of_this_thread() const noexcept {
    thread_caches* const all = caches_.load_acquire();
    return all == nullptr ? nullptr : all->of_this_thread();
  }
  /// The same, but null for a thread that never asked for it.
  thread_cache* held_by_this_thread() const noexcept {
    thread_caches const* const all = caches_.load_acquire();
    return all == nullptr ? nullptr : all->held_by_this_thread();
  }

  /// In a few instructions: mostly the calling thread's cache, but at times null or another thread's. For what only the
  /// owner of a cache's lock does.
  [[gnu::always_inline]] thread_cache* cache_hint() const noexcept {
    thread_lease const* const threads = threads_.load_acquire();
    return threads == nullptr ? nullptr : static_cast<thread_cache*>(threads->hint());
  }

  bool has_begun() const noexcept { return caches_.load() != nullptr; }

  /// From now on threads have caches, if there is host memory.
  void begin() noexcept try {
    if (has_begun()) return;
    auto* const made = new thread_caches;
    caches_.store_release(made);
    threads_.store_release(&made->lease());
  } catch (std::bad_alloc const&) {  // then they go on without
  }

  /// A block of the class for a request of a cache's thread, which `find(record)` takes from the heap, live there with
  /// that as requested; null if it finds none. Some that the stream has at hand go along, free. May throw
  /// `std::bad_alloc`.
  template <class Find>
  void* lend(thread_cache& to, stream_identity const& who, unsigned size_class, std::size_t bytes,
             unsigned alignment_log, Find find) {
    std::size_t const block = slot_class::size(size_class) * unit_bytes;
    std::size_t promised = most_at_once;
    to.promise(promised);
    try {
      void* const p = find(to.record(block));
      if (p != nullptr) {
        to.add_live(p, size_class, bytes, alignment_log);
        --promised;
        bytes_ += block;
        if (to.is_open(who.key) || open(to, who)) promised -= lend_at_hand(to, who.key, size_class, promised);
      }
      to.forget_promise(promised);
      return p;
    } catch (...) {
      to.forget_promise(promised);
      throw;
    }
  }

  /// For one more block of the class that is freed on the stream: half of those that are free go back, or the cache
  /// opens for the stream, if there is room to remember that.
  void make_room(thread_cache& in, stream_identity const& who, unsigned size_class) noexcept {
    if (in.is_open(who.key))
      in.drain(who.key, size_class, [this](void* p, list_id list, std::size_t bytes) { give(p, list, bytes); });
    else
      open(in, who);
  }

  /// Has all that is free in caches back in the heap.
  void gather() noexcept {
    std::size_t const before = bytes_;
    for_each_cache([&](thread_cache& each) {
      each.drain([this](void* p, list_id list, std::size_t bytes) { give(p, list, bytes); },
                 [this](list_id list) { heap_.release_list(list); });
    });
    free_or_grown_ = before - bytes_;
  }

  /// The same, and all that streams have at hand.
  void gather_all() noexcept {
    gather();
    heap_.gather();
  }

  /// True if a pool that holds so much should rather grow than `gather`, after which each thread has to ask for its
  /// blocks anew: little lay free in caches the last time, and it has not grown by much for that reason since.
  bool may_grow_first(std::size_t held) const noexcept {
    return !cannot_grow_ && free_or_grown_ <= greater(free_bytes_at_least, held / share_of_held);
  }
  void count_growth(std::size_t bytes) noexcept { free_or_grown_ += bytes; }
  /// It could not, and will not try again.
  void cannot_grow() noexcept { cannot_grow_ = true; }

  /// If the live block at `p` is in a cache, it is the pool's from now on, as it was asked for; true if so.
  [[gnu::noinline]] bool ask_back(void const* p) noexcept {
    if (bytes_ == 0) return false;
    stream_ordered_heap::asked const as = heap_.find_asked(p);
    if (!is_lent(as)) return false;
    thread_cache::live const was = (*caches_.load())[as.block_bytes - as.bytes].take_back(p);
    if (was.requested == 0) return false;
    have_back(p, was, as.block_bytes);
    return true;
  }
  /// All that is lent, live or free.
  void ask_all_back() noexcept {
    gather();
    for_each_cache([&](thread_cache& each) {
      each.take_all_back([&](void const* p, thread_cache::live const& was, std::size_t block_bytes) {
        have_back(p, was, block_bytes);
      });
    });
  }
  /// True if the block at `p` is lent, live or free.
  bool has(void const* p) const noexcept { return bytes_ != 0 && is_lent(heap_.find_asked(p)); }

  /// What the pool and the caches count. Peaks are sums of peaks, each since this was called last: exact where threads
  /// work one after the other.
  pool_numbers count() noexcept {
    pool_numbers sum = numbers_;
    if (caches_.load() == nullptr) return sum;
    for_each_cache([&](thread_cache& each) { sum += each.take_numbers(); });
    most_requested_ = sum.requested.peak = greater(most_requested_, sum.requested.peak);
    most_allocated_ = sum.allocated.peak = greater(most_allocated_, sum.allocated.peak);
    numbers_.requested.reset_peak();
    numbers_.allocated.reset_peak();
    return sum;
  }
  void reset_peaks() noexcept {
    count();
    most_requested_ = most_allocated_ = 0;
    numbers_.requested.reset_peak();
    numbers_.allocated.reset_peak();
  }
  /// Of the blocks that are lent.
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t host_bytes() const noexcept {
    std::size_t sum = 0;
    for_each_cache([&](thread_cache const& each) { sum += each.host_bytes(); });
    return sum;
  }
  /// Blocks that a cache gave back could not go to the heap: they stay live there for good.
  bool has_lost_some() const noexcept { return has_lost_some_; }

 private:
  static constexpr std::size_t free_bytes_at_least = std::size_t{16} << 20, share_of_held = 32;
  static constexpr std::size_t most_at_once = 8, most_bytes_at_once = std::size_t{256} << 10;

  static bool is_lent(stream_ordered_heap::asked const& as) noexcept {
    return as.bytes != 0 && as.alignment_log == thread_cache::record_alignment_log;
  }
  template <class F>
  void for_each_cache(F f) const {
    if (thread_caches const* const all = caches_.load(); all != nullptr) all->for_each(f);
  }

  /// Of what the stream has at hand, at most `most` blocks: how many those were.
  std::size_t lend_at_hand(thread_cache& to, stream_key key, unsigned size_class, std::size_t most) noexcept {
    std::size_t const block = slot_class::size(size_class) * unit_bytes;
    std::size_t lent = 0;
    for (most = lesser(most, most_bytes_at_once / block); lent < most; ++lent) {
      void* const p = heap_.take_small(key, {size_class, block}, to.record(block), thread_cache::record_alignment_log);
      if (p == nullptr) break;
      to.add_free(key, p, size_class);
      bytes_ += block;
    }
    return lent;
  }
  /// What is freed on the stream is kept in the cache from now on; false if there is no room to remember the stream.
  bool open(thread_cache& cache, stream_identity const& who) noexcept {
    list_id const list = heap_.keep_list(who);
    if (list == shared) return false;
    cache.open(
        who.key, list, [this](void* p, list_id from, std::size_t bytes) { give(p, from, bytes); },
        [this](list_id closed) { heap_.release_list(closed); });
    return true;
  }
  /// What leaves a cache free, and was freed on the list.
  void give(void* p, list_id list, std::size_t block_bytes) noexcept {
    if (heap_.give_small(p, list))
      bytes_ -= block_bytes;
    else
      has_lost_some_ = true;
  }
  void have_back(void const* p, thread_cache::live const& was, std::size_t block_bytes) noexcept {
    heap_.set_asked(p, was.requested, was.alignment_log);
    numbers_.requested.move_to(was.requested);
    numbers_.allocated.move_to(block_bytes);
    bytes_ -= block_bytes;
  }

  stream_ordered_heap& heap_;
  pool_numbers& numbers_;
  atomic<thread_caches*> caches_;        // none until `begin`
  atomic<thread_lease const*> threads_;  // the caches', so that a hint is one step less away
  std::size_t bytes_ = 0;
  std::size_t free_or_grown_ = 0;  // bytes: free in caches at the last `gather`, and grown by since instead of one
  bool cannot_grow_ = false;
  std::size_t most_requested_ = 0, most_allocated_ = 0;  // that `count` ever said
  bool has_lost_some_ = false;
};

}  // namespace weir::detail
