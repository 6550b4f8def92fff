#pragma once
// How a pool serves requests and takes memory back: whose it is, what is at hand, what it counts as.
//
//   allocate, deallocate        first `hot_path`: the lock's owner, and what its stream has at hand; else as follows
//   allocate                    the stream's key: CUDA is asked only where a stream may end or may be captured
//     take_by_thread            while threads wait for each other: what the thread's own cache has (`lend_to` fills it)
//     heap: take_small          what the stream has at hand: a slot of its slabs, a block that it freed of late
//     heap: make_small          the same after making a new slab
//     heap: take_elsewhere      what another stream has at hand, if its work is done; asks CUDA now and then
//     heap: take_ready          the stream's own free blocks, and those whose work is done; now and then events
//     block_search: find        nothing is ready
//   deallocate                  the stream's key
//     give_by_thread            while threads wait for each other: into the thread's own cache
//     heap: find_slot, give     back into its slab; what is not simple is done by blocks (`make_blocks`)
//     heap: find_live, keep     at hand for the stream, or `give`: into its free list
//     release_policy            with more held than the threshold: gives idle segments back
//   deallocate_after            the same for what several streams have used
//   allocate_unasked, deallocate_unasked
//                               the same for a stream that may end, where it does not matter who it is
//   allocate_in_capture, deallocate_in_capture
//                               the same for a stream that is being captured
//
// Nothing that is called here calls back.

#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_list.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/block_sizes.hpp>
#include <weir/pool/hot_path.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/pool_refusal.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/thread_cache.hpp>
#include <weir/support/biased_lock.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Serves requests from a pool's memory: whose they are, what is at hand for them, and what they count as. `pool` is
/// one of these, `arena` is many. Returns a null pointer or `false` where it fails; whoever stands above throws.
template <resource Upstream>
class caching_allocator : public hot_path<Upstream> {
  using base = hot_path<Upstream>;

 public:
  caching_allocator(Upstream& upstream, pool const& options, int device)
      : base(upstream, options, device),
        sizes_(keeps_small, growable<Upstream> ? ~units{0} : max_split_units(options)) {
    look_what_is_kept();
  }

  static constexpr std::size_t most_bytes = block_sizes::most_bytes;
  using base::may_be_at_hand, base::is_memory;

  /// Null if the memory cannot be had; with `refused` that is counted, and told with what the pool had at that instant.
  /// `bytes` from 1 to `most_bytes`, `alignment` a valid one.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment, pool_effort effort,
                                        std::size_t least_block = 0, pool_refusal* refused = nullptr) {
    bool at_hand = may_be_at_hand(greater(bytes, least_block), alignment);
    if (at_hand && least_block == 0) {
      void* const taken = this->take_as_owner(stream, bytes, alignment);
      if (is_memory(taken)) [[likely]]
        return taken;
      at_hand = taken == nullptr;
    }
    void* const p = at_hand ? allocate_at_hand(stream, bytes, alignment, least_block)
                            : allocate_ready(stream, bytes, alignment, least_block);
    if (p != nullptr) [[likely]]
      return p;
    return allocate_more(stream, bytes, alignment, effort, least_block, refused);
  }
  /// What the stream has at hand, or what needs no search, for any thread. For what `may_be_at_hand`.
  [[gnu::always_inline]] void* allocate_at_hand(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                                std::size_t least_block = 0) {
    if (captures_declared()) [[unlikely]]
      return nullptr;
    std::size_t const block = greater(bytes, least_block);
    stream_key const key = stream_identity::known_key(stream, streams_last());
    auto const size_class = slot_class::for_bytes(block);
    require_life();
    if (mutex_.is_contended() && least_block == 0) [[unlikely]]
      if (by_thread const own = take_by_thread(key, size_class, bytes, alignment); own.is_served) return own.taken;
    biased_guard const lock(mutex_);
    void* const p = heap_.take_small(key, size_class, bytes, static_cast<unsigned>(std::countr_zero(alignment)));
    if (p == nullptr) [[unlikely]]
      return allocate_not_at_hand(stream, key, bytes, alignment, least_block);
    numbers_.count_allocation(bytes, size_class.bytes);
    return p;
  }
  /// What needs no search, on a stream that CUDA need not be asked about; null if that is nothing.
  [[gnu::always_inline]] void* allocate_ready(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                              std::size_t least_block) {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (stream_identity::must_ask(stream, key)) [[unlikely]]
      return nullptr;
    request const r = sizes_.of(bytes, alignment, least_block);
    auto const lock = enter_to_allocate();
    return allocate_ready(stream, key, r);
  }
  /// Then: all the rest of `allocate`.
  [[gnu::noinline]] void* allocate_more(stream_ref stream, std::size_t bytes, std::size_t alignment, pool_effort effort,
                                        std::size_t least_block, pool_refusal* refused) {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    request const r = sizes_.of(bytes, alignment, least_block);
    if (stream_identity::must_ask(stream, key)) return allocate_after_asking(stream, key, r, effort, refused);
    bool const may_lend = mutex_.is_contended() && least_block == 0 && sizes_.may_be_small(r);
    thread_cache* const own = may_lend ? cache_of_this_thread(key) : nullptr;
    bool const lend = own != nullptr && own->wanted_more();
    auto const lock = enter_to_allocate();
    if (lend) return lend_to(*own, {.stream = stream, .key = key}, r, effort, refused);
    return allocate_by_search({.stream = stream, .key = key}, r, effort, refused);
  }

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

  /// The bytes of the block that serves a request.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return sizes_.taken(bytes, alignment); }
  /// The same where blocks are split.
  static constexpr std::size_t block_bytes(std::size_t bytes, std::size_t alignment) noexcept {
    return block_sizes::block_bytes(keeps_small, bytes, alignment);
  }

 private:
  using request = stream_ordered_heap::request;
  using slot = stream_ordered_heap::slot;

  using base::count_refusal_now, base::enter, base::enter_to_allocate, base::parked, base::require_life;
  using base::device_, base::has_lost_blocks_, base::heap_, base::idle_, base::keeps_, base::lent_, base::mutex_,
      base::numbers_, base::options_, base::search_, base::segments_;
  using base::keeps_small, base::streams_last, base::is_above_threshold;

  [[gnu::noinline]] void* allocate_not_at_hand(stream_ref stream, stream_key key, std::size_t bytes,
                                               std::size_t alignment, std::size_t least_block) {
    if (stream_identity::must_ask(stream, key)) return nullptr;
    return allocate_ready(stream, key, sizes_.of(bytes, alignment, least_block));
  }
  [[gnu::always_inline]] void* allocate_ready(stream_ref stream, stream_key key, request const& r) {
    if (is_kept_small(r)) {
      if (!keeps_.load())
        if (void* const p = take_small(key, r); p != nullptr) return p;
      if (void* const p = heap_.make_small({.stream = stream, .key = key}, r, segments_.held()); p != nullptr) {
        numbers_.count_allocation(r.requested, r.size * unit_bytes);
        return p;
      }
      block_id id = heap_.take_elsewhere(key, r);
      if (id == 0) id = heap_.take_ready_small({.stream = stream, .key = key}, r);
      return id == 0 ? nullptr : hand_out(id, r);
    }
    block_id const id = heap_.take_ready({.stream = stream, .key = key}, r);
    return id == 0 ? nullptr : hand_out(id, r);
  }
  /// Whether a request is for slots or blocks that a stream keeps: where small ones are not kept at hand, only slots.
  bool is_kept_small(request const& r) const noexcept {
    return r.size <= (keeps_.load() ? slot_class::most_units : slab::most_slot_units) && sizes_.may_be_small(r);
  }
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
  void* take_small(stream_key key, request const& r) noexcept {
    void* const p = heap_.take_small(key, {slot_class::of(r.size), r.size * unit_bytes}, r.requested, r.alignment_log);
    if (p != nullptr) numbers_.count_allocation(r.requested, r.size * unit_bytes);
    return p;
  }
  void* allocate_by_search(stream_identity const& who, request const& r, pool_effort effort, pool_refusal* refused) {
    block_id const id = search(who, r, effort, refused);
    if (id == 0) return nullptr;
    if (is_kept_small(r)) heap_.count_small(id, who.key);
    return hand_out(id, r);
  }
  /// After what the heap gave or took; what is at hand changes little of it.
  [[gnu::always_inline]] void look_what_is_kept() noexcept {
    if (bool const keeps = keeps_blocks(); keeps != keeps_.load()) keeps_.store_release(keeps);
  }
  [[gnu::always_inline]] void* hand_out(block_id id, request const& r) noexcept {
    block const& b = heap_[id];
    numbers_.count_allocation(r.requested, b.bytes());
    large_bytes_ += b.bytes() > slot_class::most_bytes ? b.bytes() : 0;
    return reinterpret_cast<void*>(b.address());
  }

  [[gnu::noinline]] void* allocate_after_asking(stream_ref stream, stream_key known, request const& r,
                                                pool_effort effort, pool_refusal* refused) {
    require_life();
    stream_identity who = stream_identity::ask_capture(stream, known, may_be_captured());
    if (who.may_ask_id()) {
      if (void* const p = allocate_unasked(stream, r); p != nullptr) return p;
      who.ask_id();
    }
    check(who.code, "cudaStreamGetId or cudaStreamGetCaptureInfo");
    if (who.capture != capture_key::none) return allocate_in_capture(who, r, effort, refused);
    auto const lock = enter_to_allocate();
    void* const p = who.may_end() ? allocate_confirmed(who, r) : allocate_known(who, r);
    return p != nullptr ? p : allocate_by_search(who, r, effort, refused);
  }
  /// For a stream that has nothing at hand, since it may be destroyed.
  void* allocate_confirmed(stream_identity const& who, request const& r) {
    heap_.confirm(who);
    block_id id = is_kept_small(r) ? heap_.take_elsewhere(who.key, r) : 0;
    if (id == 0) id = heap_.take_ready(who, r);
    return id == 0 ? nullptr : hand_out(id, r);
  }
  /// For one that may be captured, and is not.
  void* allocate_known(stream_identity const& who, request const& r) {
    if (sizes_.may_be_small(r))
      if (void* const p = take_small(who.key, r); p != nullptr) return p;
    return allocate_ready(who.stream, who.key, r);
  }

  /// For a stream that may be destroyed and is in no capture; null if CUDA has to be asked who it is.
  void* allocate_unasked(stream_ref stream, request const& r) {
    auto const lock = enter_to_allocate();
    block_id const id = heap_.take_ready_unasked(stream, r);
    return id == 0 ? nullptr : hand_out(id, r);
  }

  [[gnu::noinline, gnu::cold]] void* allocate_in_capture(stream_identity const& who, request const& r,
                                                         pool_effort effort, pool_refusal* refused) {
    auto const lock = enter_to_allocate();
    heap_.enter_capture(who);
    block_id id = 0;
    if (captured_memory_only::is_set()) {
      id = search_.take_for_capture(who, r, true);
      if (id == 0 && refused != nullptr) refused->set(count_refusal_now({}));
    } else {
      asking_for_capture const told;
      id = search_.take_for_capture(who, r, false);
      if (id == 0) id = search(who, r, effort, refused);
    }
    if (id == 0) return nullptr;
    heap_.keep_for_capture(id, who);
    return hand_out(id, r);
  }
  /// A stream that only CUDA knows.
  bool may_be_captured() const noexcept { return !options_.declared_captures || captures_declared(); }
  stream_identity identify(stream_ref stream) const noexcept {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (!stream_identity::must_ask(stream, key)) return {.stream = stream, .key = key};
    stream_identity who = stream_identity::ask(stream, key, may_be_captured());
    if (!succeeded(who.code)) who.key = stream_key::none;
    return who;
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
    if (heap_.give_captured(id, who)) count_off(bytes, held);
    last_call = {call_note::captured, static_cast<std::uint64_t>(owner), 0};
    return true;
  }
  bool give_parked(block_id id, stream_identity const& who, std::size_t bytes) noexcept {
    std::size_t const held = heap_[id].bytes();
    capture_key const owner = heap_.owner_parked(id, who);
    if (heap_.give_parked(id, owner)) count_off(bytes, held);
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

  // ---- Threads' caches: see `lent_blocks`.

  /// Null where there is none: for a stream that may end, and without host memory. Without the lock.
  [[gnu::always_inline]] thread_cache* cache_of_this_thread(stream_key key) noexcept {
    if (key == stream_key::none || !sizes_.has_slots()) return nullptr;
    if (!lent_.has_begun()) [[unlikely]]
      begin_to_lend();
    return lent_.cache_of_this_thread();
  }
  /// From now on nobody owns the lock, so that the hot path leaves everything to the caches.
  [[gnu::noinline, gnu::cold]] void begin_to_lend() noexcept {
    mutex_.end_ownership();
    biased_guard const lock(mutex_);
    lent_.begin();
  }
  struct by_thread {
    bool is_served = false;  // by the cache: what it has, or is to be lent
    void* taken = nullptr;   // null: the cache has nothing for this
  };
  [[gnu::noinline]] by_thread take_by_thread(stream_key key, slot_class::sized size_class, std::size_t bytes,
                                             std::size_t alignment) noexcept {
    thread_cache* const own = cache_of_this_thread(key);
    if (own == nullptr) return {};
    void* const p = own->take(key, size_class, bytes, static_cast<unsigned>(std::countr_zero(alignment)));
    return {p != nullptr || own->wants_more(), p};
  }
  /// As any request is served, but with what the heap is to note as requested.
  void* lend_to(thread_cache& own, stream_identity const& who, request const& r, pool_effort effort,
                pool_refusal* refused) {
    request lent = r;
    lent.alignment_log = thread_cache::record_alignment_log;
    auto const find = [&](std::size_t record) -> void* {
      lent.requested = record;
      slot_class::sized const size_class{slot_class::of(r.size), r.size * unit_bytes};
      if (void* const p = heap_.take_small(who.key, size_class, record, lent.alignment_log); p != nullptr) return p;
      if (void* const p = heap_.make_small(who, lent, segments_.held()); p != nullptr) return p;
      block_id id = heap_.take_ready(who, lent);
      if (id == 0 && effort != pool_effort::reuse) id = search_.grow_first(who, lent);
      if (id == 0) id = search(who, lent, effort, refused);
      if (id == 0) return nullptr;
      heap_.count_small(id, who.key);
      return reinterpret_cast<void*>(heap_[id].address());
    };
    return lent_.lend(own, who, slot_class::of(r.size), r.requested, r.alignment_log, find);
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
  /// When nothing is ready. 0 if the memory cannot be had; counts that, with `refused`.
  [[gnu::noinline]] block_id search(stream_identity const& who, request const& r, pool_effort effort,
                                    pool_refusal* refused) {
    pool_attempts tried;
    block_id const id = parked() ? 0 : search_.find(who, r, effort, tried);
    heap_.plan_events(segments_.held() - lesser(segments_.held(), numbers_.allocated.current));
    if (id == 0 && refused != nullptr) refused->set(count_refusal_now(tried));
    if (is_above_threshold()) {
      lent_.gather_all();
      idle_.keep_threshold();
    }
    return id;
  }

  block_sizes sizes_;
  std::size_t large_bytes_ = 0;  // of what is allocated, in blocks above 1 MiB
};

}  // namespace weir::detail
