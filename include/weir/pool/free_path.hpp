#pragma once
// How a pool takes memory back: whose it is then, whether it stays at hand, and what goes back to the upstream with it.
//
//   deallocate                  first `hot_path`: the lock's owner; else the stream's key, as of a request
//     give_by_thread            while threads wait for each other: into the thread's own cache
//     heap: find_slot, give     back into its slab; what is not simple is done by blocks (`make_blocks`)
//     heap: find_live, keep     at hand for the stream, or `give`: into its free list
//     release_policy            with more held than the threshold: gives idle segments back
//   deallocate_after            the same for what several streams have used
//   deallocate_unasked          the same for a stream that may end, where it does not matter who it is
//   deallocate_in_capture       the same for a stream that is being captured
//
// Nothing that is called here calls back.

#include <weir/core/call_note.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_list.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/block_sizes.hpp>
#include <weir/pool/hot_path.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/thread_cache.hpp>
#include <weir/support/biased_lock.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Frees, from any thread. Returns `false` where one is wrong; whoever stands above says so.
template <resource Upstream>
class free_path : public hot_path<Upstream> {
  using base = hot_path<Upstream>;

 public:
  using base::may_be_at_hand, base::is_memory;

  /// False, and nothing changed, if no live block of this size and alignment starts at `p`.
  [[gnu::always_inline]] bool deallocate(stream_ref stream, void* p, std::size_t bytes,
                                         std::size_t alignment) noexcept {
    if (may_be_at_hand(bytes, alignment)) [[likely]]
      if (this->give_as_owner(stream, p, bytes, alignment) == given::yes) [[likely]]
        return true;
    return deallocate_otherwise(stream, p, bytes, alignment);
  }
  /// The same for any thread.
  bool deallocate_otherwise(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (stream_identity::must_ask(stream, key)) [[unlikely]]
      return deallocate_after_asking(stream, key, p, bytes, alignment);
    if (heap_.is_exiting()) [[unlikely]]
      return true;
    if (mutex_.is_contended() && give_by_thread({.stream = stream, .key = key}, p, bytes, alignment)) [[unlikely]]
      return true;
    biased_guard const lock(mutex_);
    return give({.stream = stream, .key = key}, p, bytes, alignment);
  }
  /// The same for what is not kept at hand.
  [[gnu::always_inline]] bool deallocate_unkept(stream_ref stream, void* p, std::size_t bytes,
                                                std::size_t alignment) noexcept {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (stream_identity::must_ask(stream, key)) [[unlikely]]
      return deallocate_after_asking(stream, key, p, bytes, alignment);
    auto const lock = enter();
    if (!lock) [[unlikely]]
      return true;
    if (heap_.has_slabs())
      if (slot const found = heap_.find_slot(p, bytes, alignment))
        return give_slot(found, {.stream = stream, .key = key}, p, bytes, alignment);
    block_id const id = heap_.find_live(p, bytes, alignment);
    if (id == 0) [[unlikely]]
      return give_unkept(0, stream, key, p, bytes, alignment);
    return give_to_heap(id, {.stream = stream, .key = key}, p, bytes, alignment);
  }

  /// The same for a block that `others` have used too: it is free for whoever comes after the work of all. May take
  /// host memory for streams not seen before.
  [[gnu::noinline]] bool deallocate_after(stream_ref stream, stream_list others, void* p, std::size_t bytes,
                                          std::size_t alignment) noexcept {
    auto const lock = enter();
    if (!lock) return true;
    lent_.ask_back(p);
    slot const found = heap_.find_slot(p, bytes, alignment);
    block_id const id = found ? 0 : heap_.find_any_live(p, bytes, alignment);
    if (id == 0 && !found) return false;
    heap_.try_to_reserve_lists(1 + others.size());
    list_id common = shared;
    bool known = true, named = true;
    capture_key capture = capture_key::none;
    auto const add = [&](stream_ref user) {
      if (user.is_host_order()) return;
      stream_identity const who = identify(user);
      if (capture == capture_key::none) capture = who.capture;
      named = named && who.key != stream_key::none;
      if (capture != capture_key::none || !known) return;  // a graph's memory is in no list of a stream
      common = heap_.common_list(common, who);
      known = common != shared;
    };
    add(stream);
    for (stream_ref const other : others) add(other);
    if (capture != capture_key::none || (id != 0 && heap_[id].captured != shared))
      return give_captured({.stream = stream, .capture = capture}, p, bytes, alignment);
    if (!known && named) {
      common = heap_.list_behind(stream, others);
      known = common != shared;
    }
    bool const given = known && (found ? give_slot(found, common, p, bytes, alignment) : give_block(id, common, bytes));
    return given || deallocate_after_waiting(stream, p, bytes, alignment, others);
  }

 protected:
  using request = stream_ordered_heap::request;
  using slot = stream_ordered_heap::slot;

  free_path(Upstream& upstream, pool const& options, int device)
      : base(upstream, options, device),
        sizes_(keeps_small, growable<Upstream> ? ~units{0} : max_split_units(options)) {
    look_what_is_kept();
  }
  ~free_path() = default;

  using base::device_, base::has_lost_blocks_, base::heap_, base::idle_, base::keeps_, base::lent_, base::mutex_,
      base::numbers_, base::options_;
  using base::enter, base::parked;
  using base::keeps_small, base::streams_last, base::is_above_threshold;

  /// A stream that only CUDA knows.
  bool may_be_captured() const noexcept { return !options_.declared_captures || captures_declared(); }
  stream_identity identify(stream_ref stream) const noexcept {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (!stream_identity::must_ask(stream, key)) return {.stream = stream, .key = key};
    stream_identity who = stream_identity::ask(stream, key, may_be_captured());
    if (!succeeded(who.code)) who.key = stream_key::none;
    return who;
  }
  /// After what the heap gave or took; what is at hand changes little of it.
  [[gnu::always_inline]] void look_what_is_kept() noexcept {
    if (bool const keeps = keeps_blocks(); keeps != keeps_.load()) keeps_.store_release(keeps);
  }

  block_sizes sizes_;
  std::size_t large_bytes_ = 0;  // of what is allocated, in blocks above 1 MiB

 private:
  [[gnu::always_inline]] void count_off(std::size_t bytes, std::size_t held) noexcept {
    numbers_.count_deallocation(bytes, held);
    large_bytes_ -= held > slot_class::most_bytes ? held : 0;
    look_what_is_kept();
  }
  /// Small blocks that are kept for their stream stay where they are, which may be where a large one could be. Where
  /// large ones have most of the memory the heap, which merges them, holds less.
  bool keeps_blocks() const noexcept {
    return sizes_.has_slots() && large_bytes_ <= (numbers_.allocated.current + lent_.bytes()) / 2;
  }
  [[gnu::noinline]] bool deallocate_after_asking(stream_ref stream, stream_key known, void* p, std::size_t bytes,
                                                 std::size_t alignment) noexcept {
    if (heap_.is_exiting()) return true;
    stream_identity who = stream_identity::ask_capture(stream, known, may_be_captured());
    if (who.capture != capture_key::none) return deallocate_in_capture(who, p, bytes, alignment);
    if (who.may_ask_id()) {
      if (deallocate_unasked(stream, p, bytes, alignment)) return true;
      who.ask_id();
    }
    auto const lock = enter();
    if (!lock) return true;  // CUDA was asked meanwhile
    return give({.stream = stream, .key = succeeded(who.code) ? who.key : stream_key::none}, p, bytes, alignment);
  }
  /// For a stream that may be destroyed and is in no capture: true if CUDA need not be asked who it is.
  bool deallocate_unasked(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    auto const lock = enter();
    if (!lock) return true;
    block_id const id = heap_.find_slot(p, bytes, alignment) ? 0 : heap_.find_live(p, bytes, alignment);
    if (id == 0) return false;
    std::size_t const held = heap_[id].bytes();
    block_id const free = heap_.give_unasked(id, stream);
    if (free == 0) return false;
    count_off(bytes, held);
    if (is_above_threshold()) idle_.keep_threshold_after(free);
    return true;
  }
  [[gnu::always_inline]] bool give(stream_identity const& who, void* p, std::size_t bytes,
                                   std::size_t alignment) noexcept {
    if (slot const found = heap_.find_slot(p, bytes, alignment)) [[likely]]
      return give_slot(found, who, p, bytes, alignment);
    return give_block(who, p, bytes, alignment);
  }
  [[gnu::always_inline]] bool give_slot(slot const& found, stream_identity const& who, void* p, std::size_t bytes,
                                        std::size_t alignment) noexcept {
    std::size_t const held = found.bytes();
    bool const was_last = found.is_last();
    if (!heap_.give_own(found, who.key)) [[unlikely]]
      return give_slot_elsewhere(found, who.stream, who.key, p, bytes, alignment);
    numbers_.count_deallocation(bytes, held);
    if (is_above_threshold()) [[unlikely]]
      idle_.keep_threshold_after_slot(was_last);
    return true;
  }
  [[gnu::noinline]] bool give_slot_elsewhere(slot found, stream_ref stream, stream_key key, void* p, std::size_t bytes,
                                             std::size_t alignment) noexcept {
    stream_identity const who{.stream = stream, .key = key};
    std::size_t const held = found.bytes();
    bool const was_last = found.is_last();
    if (!heap_.give(found, who))
      return heap_.make_blocks(found) ? give_block(who, p, bytes, alignment)
                                      : deallocate_after_waiting(stream, p, bytes, alignment);
    numbers_.count_deallocation(bytes, held);
    if (is_above_threshold()) idle_.keep_threshold_after_slot(was_last);
    return true;
  }
  /// False, and nothing changed, if that needs host memory which there is none of.
  bool give_slot(slot const& found, list_id common, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    std::size_t const held = found.bytes();
    bool const was_last = found.is_last();
    if (common == shared) {
      heap_.give_done(found);
    } else if (!heap_.give(found, common)) {
      return heap_.make_blocks(found) && give_block(heap_.find_live(p, bytes, alignment), common, bytes);
    }
    count_off(bytes, held);
    if (is_above_threshold()) idle_.keep_threshold_after_slot(was_last);
    return true;
  }
  [[gnu::always_inline]] bool give_block(stream_identity const& who, void* p, std::size_t bytes,
                                         std::size_t alignment) noexcept {
    block_id const id = heap_.find_live(p, bytes, alignment);
    if (id != 0 && keeps_.load() && !is_above_threshold() && heap_.keep(id, who)) [[likely]] {
      numbers_.count_deallocation(bytes, heap_[id].bytes());
      return true;
    }
    return give_unkept(id, who.stream, who.key, p, bytes, alignment);
  }
  [[gnu::noinline]] bool give_unkept(block_id id, stream_ref stream, stream_key key, void* p, std::size_t bytes,
                                     std::size_t alignment) noexcept {
    if (id == 0 && lent_.ask_back(p)) return give({.stream = stream, .key = key}, p, bytes, alignment);
    if (id == 0) return give_captured({.stream = stream, .key = key}, p, bytes, alignment);
    return give_to_heap(id, {.stream = stream, .key = key}, p, bytes, alignment);
  }
  [[gnu::always_inline]] bool give_to_heap(block_id id, stream_identity const& who, void* p, std::size_t bytes,
                                           std::size_t alignment) noexcept {
    std::size_t const held = heap_[id].bytes();
    block_id const free = heap_.give(id, who);
    if (free == 0) [[unlikely]]
      return deallocate_after_waiting(who.stream, p, bytes, alignment);
    count_off(bytes, held);
    if (is_above_threshold()) [[unlikely]]
      idle_.keep_threshold_after(free);
    return true;
  }
  bool give_block(block_id id, list_id common, std::size_t bytes) noexcept {
    std::size_t const held = heap_[id].bytes();
    block_id const free = common == shared ? heap_.give_done(id) : heap_.give(id, common);
    count_off(bytes, held);
    if (is_above_threshold()) idle_.keep_threshold_after(free);
    return true;
  }
  /// If this live memory is a slot, it is a block from now on. False if there is no host memory for that: then it is
  /// never handed out again.
  [[gnu::noinline]] bool make_block_of(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    slot const found = heap_.find_slot(p, bytes, alignment);
    if (!found || heap_.make_blocks(found)) return true;
    has_lost_blocks_ = true;
    note_kept();
    return false;
  }
  [[gnu::noinline, gnu::cold]] bool deallocate_in_capture(stream_identity const& who, void* p, std::size_t bytes,
                                                          std::size_t alignment) noexcept {
    auto const lock = enter();
    if (!lock) return true;
    lent_.ask_back(p);
    return give_captured(who, p, bytes, alignment);
  }
  /// Takes back what was allocated in a capture, or is freed in one. False if there is no such block.
  [[gnu::noinline, gnu::cold]] bool give_captured(stream_identity const& who, void* p, std::size_t bytes,
                                                  std::size_t alignment) noexcept {
    if (!make_block_of(p, bytes, alignment)) return true;
    block_id const id = heap_.find_any_live(p, bytes, alignment);
    if (id == 0) return false;
    if (parked()) return give_parked(id, who, bytes);
    std::size_t const held = heap_[id].bytes();
    capture_key const owner = heap_.owner(id, who);
    if (!heap_.give_captured(id, who)) return note_kept(), true;
    count_off(bytes, held);
    last_call = {call_note::captured, static_cast<std::uint64_t>(owner), 0};
    return true;
  }
  bool give_parked(block_id id, stream_identity const& who, std::size_t bytes) noexcept {
    std::size_t const held = heap_[id].bytes();
    capture_key const owner = heap_.owner_parked(id, who);
    if (!heap_.give_parked(id, owner)) return note_kept(), true;
    count_off(bytes, held);
    if (owner != capture_key::none) last_call = {call_note::captured, static_cast<std::uint64_t>(owner), 0};
    return true;
  }
  /// CUDA did not say who the stream is, or there is no host memory for a slot's block: sees the work done, or never
  /// hands it out again.
  [[gnu::noinline, gnu::cold]] bool deallocate_after_waiting(stream_ref stream, void* p, std::size_t bytes,
                                                             std::size_t alignment, stream_list others = {}) noexcept {
    auto const wait = [&](stream_ref user) { return user.is_host_order() || wait_for(user, device_); };
    bool const done = mutex_.unlocked([&] {
      bool all = wait(stream);
      for (stream_ref const other : others) all = wait(other) && all;
      return all;
    });
    slot const found = heap_.find_slot(p, bytes, alignment);
    block_id const id = found ? 0 : heap_.find_any_live(p, bytes, alignment);
    if (id == 0 && !found) return false;
    if (!done) {
      has_lost_blocks_ = true;
      note_kept();
      return true;
    }
    if (found) return give_slot(found, shared, p, bytes, alignment);
    if (parked()) return give_parked(id, {}, bytes);  // somebody did that meanwhile
    return give_block(id, shared, bytes);
  }
  /// True if the calling thread's cache took it.
  [[gnu::noinline]] bool give_by_thread(stream_identity const& who, void* p, std::size_t bytes,
                                        std::size_t alignment) noexcept {
    bool const may_be_there = may_be_at_hand(bytes, alignment);
    thread_cache* const own = may_be_there && who.key != stream_key::none ? lent_.held_by_this_thread() : nullptr;
    if (own == nullptr) return false;
    auto const alignment_log = static_cast<unsigned>(std::countr_zero(alignment));
    thread_cache::answer const answer = own->give(who.key, p, slot_class::for_bytes(bytes), bytes, alignment_log);
    if (answer == thread_cache::answer::kept) [[likely]]
      return true;
    return answer == thread_cache::answer::no_room && give_with_room(*own, who, p, bytes, alignment_log);
  }
  [[gnu::noinline]] bool give_with_room(thread_cache& own, stream_identity const& who, void* p, std::size_t bytes,
                                        unsigned alignment_log) noexcept {
    biased_guard const lock(mutex_);
    auto const size_class = slot_class::for_bytes(bytes);
    lent_.make_room(own, who, size_class.number);
    return own.give(who.key, p, size_class, bytes, alignment_log) == thread_cache::answer::kept;
  }
};

}  // namespace weir::detail
