#pragma once
// How a pool serves requests: whose they are, what is at hand for them, and what they count as.
//
//   allocate                    first `hot_path`: the lock's owner, and what its stream has at hand; else the stream's
//                               key: CUDA is asked only where a stream may end or may be captured
//     take_by_thread            while threads wait for each other: what the thread's own cache has (`lend_to` fills it)
//     heap: take_small          what the stream has at hand: a slot of its slabs, a block that it freed of late
//     heap: make_small          the same after making a new slab
//     heap: take_elsewhere      what another stream has at hand, if its work is done; asks CUDA now and then
//     heap: take_ready          the stream's own free blocks, and those whose work is done; now and then events
//     block_search: find        nothing is ready
//   allocate_unasked            the same for a stream that may end, where it does not matter who it is
//   allocate_in_capture         the same for a stream that is being captured
//   reuse                       the same for a thread whose own pool lacks it: nothing new, and no cache
//
// Frees are in free_path.hpp. Nothing that is called here calls back.

#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/block_sizes.hpp>
#include <weir/pool/free_path.hpp>
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

/// Requests, and with `free_path` frees, from any thread. `pool` is one of these, `arena` is many. Returns a null
/// pointer where it fails; whoever stands above throws.
template <resource Upstream>
class caching_allocator : public free_path<Upstream> {
  using base = free_path<Upstream>;

 public:
  caching_allocator(Upstream& upstream, pool const& options, int device) : base(upstream, options, device) {}

  static constexpr std::size_t most_bytes = block_sizes::most_bytes;
  using base::may_be_at_hand, base::is_memory;

  /// Null if the memory cannot be had; with `refused` that is counted, and told with what the pool had at that instant.
  /// `bytes` from 1 to `most_bytes`, `alignment` a valid one.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment, pool_effort effort,
                                        std::size_t least_block = 0, pool_refusal* refused = nullptr) {
    if (effort == pool_effort::reuse) return reuse(stream, sizes_.of(bytes, alignment, least_block), refused);
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

  /// The bytes of the block that serves a request.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return sizes_.taken(bytes, alignment); }
  /// The same where blocks are split.
  static constexpr std::size_t block_bytes(std::size_t bytes, std::size_t alignment) noexcept {
    return block_sizes::block_bytes(keeps_small, bytes, alignment);
  }

 private:
  using typename base::request;

  using base::count_refusal_now, base::enter_to_allocate, base::parked, base::require_life, base::may_be_captured;
  using base::heap_, base::idle_, base::keeps_, base::large_bytes_, base::lent_, base::mutex_, base::numbers_,
      base::search_, base::segments_, base::sizes_;
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
  /// For a thread that has a pool of its own and looks here for what that lacks. It gets no cache: each search enters
  /// all that there are.
  [[gnu::noinline]] void* reuse(stream_ref stream, request const& r, pool_refusal* refused) {
    stream_identity const who{.stream = stream, .key = stream_identity::known_key(stream, streams_last())};
    if (stream_identity::must_ask(stream, who.key))
      return allocate_after_asking(stream, who.key, r, pool_effort::reuse, refused);
    auto const lock = enter_to_allocate();
    void* const p = allocate_known(who, r);
    return p != nullptr ? p : allocate_by_search(who, r, pool_effort::reuse, refused);
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
      if (id == 0) id = search_.grow_first(who, lent);
      if (id == 0) id = search(who, lent, effort, refused);
      if (id == 0) return nullptr;
      heap_.count_small(id, who.key);
      return reinterpret_cast<void*>(heap_[id].address());
    };
    return lent_.lend(own, who, slot_class::of(r.size), r.requested, r.alignment_log, find);
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
};

}  // namespace weir::detail
