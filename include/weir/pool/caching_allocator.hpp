#pragma once
// A pool's policy over an upstream that someone else owns: reuse, wait, grow, give back.
//
//   allocate                    the stream's key: CUDA is asked only where a stream may end or may be captured
//     allocate_at_hand          while threads wait for each other: what the thread's own cache has (`lend_to` fills it)
//     heap: take_small          what the stream has at hand: a slot of its slabs, a block that it freed of late
//     heap: make_small          the same after making a new slab
//     heap: take_ready          the stream's own free blocks, and those whose work is done; no CUDA call
//     search                    nothing is ready
//       gather                  what threads' caches and streams have at hand is everyone's to look at
//       find
//         heap: take_done       asks CUDA what is done by now
//         heap: take_waiting    the stream waits for another one's block; with `when_pending::wait` before growing
//         take_grown            takes a segment from the upstream, without the lock; waits for other threads' growth
//       last_resort             before a refusal: all streams, the host's waiting, other segments for these
//   deallocate                  the stream's key
//     give_by_thread            while threads wait for each other: into the thread's own cache
//     heap: find_slot, give     back into its slab; what is not simple is done by blocks (`make_blocks`)
//     heap: find_live, keep     at hand for the stream, or `give`: into its free list
//     keep_threshold_after      with more held than the threshold: gives idle segments back
//   deallocate_after            the same for what several streams have used
//   allocate_in_capture, deallocate_in_capture
//                               the same for a stream that is being captured
//
// The heap (`stream_ordered_heap`) answers which block a stream may have; nothing that is called here calls back.

#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_memory.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_list.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/lent_blocks.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/pool_refusal.hpp>
#include <weir/pool/pool_tenant.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_segments.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace weir::detail {

/// What a pool holds from its upstream. For growable upstreams it is in growable_range.hpp, which other programs need
/// not compile: a source that is growable includes that.
template <resource Upstream>
struct held_from {
  static_assert(!growable<Upstream>, "weir: a growable resource has to include <weir/pool/growable_range.hpp>");
  using type = upstream_segments<Upstream>;
};

class content_store;  // in parked_memory.hpp
template <handle To>
class content_store_on;

/// Segments, blocks and streams behind one lock, which is never held while CUDA may block. `pool` is one of these,
/// `arena` is many. Returns a null pointer or `false` where it fails; whoever stands above throws.
template <resource Upstream>
class caching_allocator {
 public:
  caching_allocator(Upstream& upstream, pool const& options, int device)
      : options_(with_threshold(options)),
        device_(device),
        max_split_(growable<Upstream> ? ~units{0} : max_split_units(options)),
        has_slots_(keeps_small && max_split_ == ~units{0}),
        heap_(device),
        segments_(upstream, options_),
        tenant_(*this, upstream, options_) {
    if (options_.release_threshold != pool{}.release_threshold) heap_.keep_ages();
    look_what_is_kept();
    if constexpr (growable<Upstream>) segments_.set_tenant(tenant_.get());
    if (options_.thread_caches) mutex_.set_contended();
    tenant_.join();  // last: from now on it is asked
  }

  /// Waits for work on freed blocks, then gives the segments back; what CUDA cannot wait for stays where it is.
  ~caching_allocator() {
    if (heap_.is_exiting()) return;
    tenant_.leave();
    release_captured(0);
    synchronize();
    if (!has_lost_blocks_ && !lent_.has_lost_some()) segments_.give_all(heap_);
  }
  caching_allocator(caching_allocator const&) = delete;
  caching_allocator& operator=(caching_allocator const&) = delete;

  /// Sizes above this are refused: rounding and alignment might wrap.
  static constexpr std::size_t most_bytes = max_block_bytes - max_alignment;

  /// Null if the memory cannot be had; with `refused` that is counted, and told with what the pool had at that instant.
  /// `bytes` from 1 to `most_bytes`, `alignment` a valid one.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment, pool_effort effort,
                                        std::size_t least_block = 0, pool_refusal* refused = nullptr) {
    bool const at_hand = may_be_at_hand(greater(bytes, least_block), alignment);
    void* const p = at_hand ? allocate_at_hand(stream, bytes, alignment, least_block)
                            : allocate_ready(stream, bytes, alignment, least_block);
    if (p != nullptr) [[likely]]
      return p;
    return allocate_more(stream, bytes, alignment, effort, least_block, refused);
  }
  /// False if the stream has nothing at hand for this, which takes no lock to say. The size comes last: where large and
  /// small blocks take turns, and small ones are not kept, the processor need not guess which this is.
  [[gnu::always_inline]] bool may_be_at_hand(std::size_t block_bytes, std::size_t alignment) const noexcept {
    return keeps_small && (keeps_.load() || mutex_.is_contended()) && block_bytes <= slot_class::most_bytes &&
           alignment <= unit_bytes;
  }
  /// What the stream has at hand, or what needs no search. For what `may_be_at_hand`.
  [[gnu::always_inline]] void* allocate_at_hand(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                                std::size_t least_block = 0) {
    if (captures_declared()) [[unlikely]]
      return nullptr;
    std::size_t const block = greater(bytes, least_block);
    stream_key const key = stream_identity::known_key(stream, streams_last());
    auto const size_class = slot_class::for_bytes(block);
    require_life();
    if (mutex_.is_contended() && least_block == 0) [[unlikely]]
      if (thread_cache* const own = cache_of_this_thread(key); own != nullptr)
        return own->take(key, size_class.number, bytes, static_cast<unsigned>(std::countr_zero(alignment)));
    biased_guard const lock(mutex_);
    void* const p = heap_.take_small(key, size_class, bytes, static_cast<unsigned>(std::countr_zero(alignment)));
    if (p == nullptr) [[unlikely]]
      return allocate_not_at_hand(stream, key, bytes, alignment, least_block);
    numbers_.count_allocation(bytes, size_class.bytes());
    return p;
  }
  /// What needs no search, on a stream that CUDA need not be asked about; null if that is nothing.
  [[gnu::always_inline]] void* allocate_ready(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                              std::size_t least_block) {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (stream_identity::must_ask(stream, key)) [[unlikely]]
      return nullptr;
    request const r = request_of(bytes, alignment, least_block);
    auto const lock = enter_to_allocate();
    return allocate_ready(stream, key, r);
  }
  /// Then: all the rest of `allocate`.
  [[gnu::noinline]] void* allocate_more(stream_ref stream, std::size_t bytes, std::size_t alignment, pool_effort effort,
                                        std::size_t least_block, pool_refusal* refused) {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    request const r = request_of(bytes, alignment, least_block);
    if (stream_identity::must_ask(stream, key)) return allocate_after_asking(stream, key, r, effort, refused);
    bool const may_lend = mutex_.is_contended() && least_block == 0 && may_be_small(r);
    thread_cache* const own = may_lend ? cache_of_this_thread(key) : nullptr;
    auto const lock = enter_to_allocate();
    if (own != nullptr) return lend_to(*own, {.stream = stream, .key = key}, r, effort, refused);
    return allocate_by_search({.stream = stream, .key = key}, r, effort, refused);
  }

  /// False, and nothing changed, if no live block of this size and alignment starts at `p`.
  bool deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
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
  /// host memory for streams not seen before; waits for their work where there is none.
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
    bool known = true;
    capture_key capture = capture_key::none;
    auto const add = [&](stream_ref user) {
      if (user.is_host_order()) return;
      stream_identity const who = identify(user);
      if (capture == capture_key::none) capture = who.capture;
      if (known) common = heap_.common_list(common, who);
      known = known && common != shared;
    };
    add(stream);
    for (stream_ref const other : others) add(other);
    if (capture != capture_key::none || (id != 0 && heap_[id].captured != shared))
      return give_captured({.stream = stream, .capture = capture}, p, bytes, alignment);
    if (!known) return deallocate_after_waiting(stream, p, bytes, alignment, others);
    if (found) return give_slot(found, common, p, bytes, alignment);
    return give_block(id, common, bytes);
  }

  /// Takes a segment of `bytes`, rounded up where the pool may hold so much; false if the upstream is out of memory.
  bool grow(std::size_t bytes) {
    auto const lock = enter();
    if (!lock) return false;
    return segments_.reserve(mutex_, heap_, bytes);
  }

  std::size_t trim(std::size_t keep) noexcept {
    auto const lock = enter();
    if (!lock) return 0;
    heap_.try_to_keep_ages();
    return release_idle(lesser(keep, options_.release_threshold));
  }

  /// For others that share the upstream: what this has of it, and what it can do without.
  tenant_usage usage() const noexcept {
    auto const lock = enter();
    if (!lock) return {};
    std::size_t const held = segments_.held() + segments_.calls().bytes();
    return {lesser(numbers_.allocated.current, held), held};
  }
  std::size_t give_idle(std::size_t bytes) noexcept {
    auto const lock = enter();
    if (!lock) return 0;
    std::size_t const held = segments_.held();
    return release_idle(held - lesser(held, bytes));
  }

  /// See `pooled::park`; takes `store` over.
  void park(content_store* store) requires growable<Upstream> {
    auto const lock = enter();
    if (!lock) return segments_.forget(store), require_life();
    wait_for_all();
    segments_.park(mutex_, heap_, store, device_);
  }
  /// False if the upstream has not enough memory.
  bool unpark() requires growable<Upstream> {
    auto const lock = enter_to_allocate();
    return segments_.unpark(mutex_, heap_, device_);
  }
  bool is_parked() const noexcept {
    auto const lock = enter();
    return lock && parked();
  }

  void synchronize() noexcept {
    auto const lock = enter();
    if (!lock) return;
    wait_for_all();
    keep_at_most(options_.release_threshold);
  }

  /// The graph of this capture is gone; 0: of all.
  std::size_t release_captured(std::uint64_t capture) noexcept {
    auto const lock = enter();
    if (!lock) return 0;
    if (parked()) return 0;
    std::size_t const bytes = heap_.release_captured(capture_key{capture});
    segments_.look_again();
    keep_at_most(options_.release_threshold);
    return bytes;
  }

  /// The same where blocks are split.
  static constexpr std::size_t block_bytes(std::size_t bytes, std::size_t alignment) noexcept {
    return keeps_small ? slot_class::block_bytes(bytes, alignment) : round_up_or_zero(bytes, unit_bytes);
  }
  /// The bytes of the block that serves a request: whole units, and a whole segment where blocks are not split.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    std::size_t const whole_units = round_up_or_zero(bytes, unit_bytes);
    if (max_split_ == ~units{0}) [[likely]]
      return block_bytes(bytes, alignment);
    if (bytes > most_bytes || !is_valid_alignment(alignment)) return whole_units;
    request const r = request::of(bytes, bytes, alignment, max_split_);
    return r.size < max_split_ ? whole_units : round_up_or_zero(r.span() * unit_bytes, growth_granularity);
  }
  /// True while memory that was freed for a capture is kept (0: for any).
  bool holds_captured(std::uint64_t capture) const noexcept {
    auto const lock = enter();
    return lock && heap_.captured_bytes(capture_key{capture}) != 0;
  }

  /// Counts a refusal by whoever stands above; returns what the pool has at that instant.
  pool_refused count_refusal() {
    auto const lock = enter_to_allocate();
    return count_refusal_now({});
  }

  pool_numbers numbers() const {
    auto const lock = enter();
    return lock ? numbers_now() : pool_numbers{};
  }
  /// Slow, unlike `numbers`: looks at every stream's largest blocks.
  pool_snapshot snapshot() const {
    auto const lock = enter();
    return lock ? snapshot_now() : pool_snapshot{};
  }

  /// Shows all segments, as they are at one moment. Copies what is known of every block, under the lock.
  void show_memory(memory_visitor& visitor) const {
    grown_array<shown_block> copies;
    std::size_t count = 0;
    for (bool fits = false; !fits; fits = count <= copies.size()) {
      if (count > copies.size()) copies.grow(count + count / 8);  // outside of the lock
      auto const lock = enter();
      if (!lock) return;
      lent_.ask_all_back();
      count = 0;
      segments_.for_each_shown(heap_, [&](shown_block const& piece) {
        if (count < copies.size()) copies[count] = piece;
        ++count;
      });
    }
    for (std::size_t i = 0; i < count; ++i) visitor.see(copies[i]);
  }

  /// Lets the peaks in `numbers` start again from now.
  void reset_peaks() noexcept {
    auto const lock = enter();
    if (!lock) return;
    peak_before_reset_ = greater(peak_before_reset_, lent_.count().allocated.peak);
    lent_.reset_peaks();
    segments_.reset_peaks();
  }

  /// The live block at `p`. At exit one that is none, since no free does anything then.
  live_block find_block(void const* p) noexcept {
    auto const lock = enter();
    if (!lock) return {1, 1, true};
    lent_.ask_back(p);
    if (lent_.has(p)) return {0, 0, true};  // freed, and in a thread's cache
    live_block const found = heap_.find_block(p);
    return found ? found : live_block{0, 0, segments_.contains(p)};
  }

  /// What is wrong with a deallocation that was refused, in words.
  std::string misuse(void* p, std::size_t bytes, std::size_t alignment) {
    auto const lock = enter();
    lent_.ask_all_back();
    return heap_.misuse(p, bytes, alignment, segments_.contains(p));
  }

 private:
  // On growable memory small blocks stay in the heap: it holds what is asked for to a part in fifty, and what streams
  // have at hand is more than that.
  static constexpr bool keeps_small = !growable<Upstream>;

  using request = stream_ordered_heap::request;
  using lists = stream_ordered_heap::lists;
  using slot = stream_ordered_heap::slot;

  /// Every function begins so. Holds nothing once the process exits, and for a parent's pool in a forked child: then
  /// nothing may be touched, and CUDA not called.
  [[gnu::always_inline]] biased_guard enter() const noexcept { return {mutex_, !heap_.is_exiting()}; }
  [[gnu::always_inline]] biased_guard enter_to_allocate() const {
    require_life();
    return biased_guard(mutex_);
  }
  void require_life() const {
    if (heap_.is_exiting()) [[unlikely]]
      check(process_exit::error, "allocate");
  }

  static pool with_threshold(pool options) {
    if (options.high_bytes != 0) options.release_threshold = lesser(options.release_threshold, options.high_bytes);
    return options;
  }

  bool streams_last() const noexcept { return options_.streams == stream_lifetime::outlives_pool; }

  pool_numbers numbers_now() const {
    pool_numbers now = lent_.count();
    segments_.count(now);
    now.free = heap_.free_bytes() + heap_.free_bytes_in_slabs();
    now.captured = heap_.captured_bytes();
    now.pending = now.reserved.current + now.parked - now.allocated.current - now.free - now.captured;
    if (parked()) now.free += std::exchange(now.pending, 0);  // all work was waited for
    return now;
  }
  pool_snapshot snapshot_now() const {
    gather();
    return {.numbers = numbers_now(),
            .segments = segments_.count(),
            .blocks = heap_.block_count(),
            .largest_free = heap_.largest_free(),
            .lanes = heap_.stream_count(),
            .host_bytes = heap_.host_bytes() + lent_.host_bytes(),
            .under_way = segments_.calls().bytes()};
  }
  pool_refused count_refusal_now(pool_attempts const& tried) {
    ++numbers_.out_of_memory;
    pool_refused refused{snapshot_now(), tried, occupancy_bar()};
    if (heap_.block_count() > occupancy_bar::most_pieces) return refused;  // others wait for the lock meanwhile
    refused.bar = occupancy_bar(segments_.held());
    segments_.for_each_shown(heap_, [&](shown_block const& piece) { refused.bar.add(piece.bytes, piece.state); });
    return refused;
  }

  [[gnu::noinline]] void* allocate_not_at_hand(stream_ref stream, stream_key key, std::size_t bytes,
                                               std::size_t alignment, std::size_t least_block) {
    if (stream_identity::must_ask(stream, key)) return nullptr;
    return allocate_ready(stream, key, request_of(bytes, alignment, least_block));
  }
  [[gnu::always_inline]] void* allocate_ready(stream_ref stream, stream_key key, request const& r) {
    if (is_kept_small(r)) {
      if (!keeps_.load())
        if (void* const p = take_small(key, r); p != nullptr) return p;
      if (void* const p = heap_.make_small({.stream = stream, .key = key}, r, segments_.held()); p != nullptr) {
        numbers_.count_allocation(r.requested, r.size * unit_bytes);
        return p;
      }
      return hand_out_small(heap_.take_ready({.stream = stream, .key = key}, r), key, r);
    }
    block_id const id = heap_.take_ready({.stream = stream, .key = key}, r);
    return id == 0 ? nullptr : hand_out(id, r);
  }
  /// Small blocks have the size of a slot, in a slab or not, so that what a request takes is known before.
  request request_of(std::size_t bytes, std::size_t alignment, std::size_t least_block) const noexcept {
    request r = request::of(bytes, greater(bytes, least_block), alignment, max_split_);
    bool const is_small = (least_block == 0) & (r.size <= slot_class::most_units) & (r.alignment == unit_bytes);
    r.size += (slot_class::rounded(r.size) - r.size) * static_cast<units>(is_small & has_slots_);
    return r;
  }
  /// Whether a request is for slots or blocks that a stream keeps: where small ones are not kept at hand, only slots.
  bool is_kept_small(request const& r) const noexcept {
    return r.size <= (keeps_.load() ? slot_class::most_units : slab::most_slot_units) && may_be_small(r);
  }
  bool may_be_small(request const& r) const noexcept {
    return r.size <= slot_class::most_units && r.alignment == unit_bytes && has_slots_ &&
           slot_class::rounded(r.size) == r.size;
  }
  [[gnu::always_inline]] void count_off(std::size_t bytes, std::size_t held) noexcept {
    numbers_.count_deallocation(bytes, held);
    large_bytes_ -= held > slot_class::most_bytes ? held : 0;
    look_what_is_kept();
  }
  /// Small blocks that are kept for their stream stay where they are, which may be where a large one could be. Where
  /// large ones have most of the memory the heap, which merges them, holds less.
  bool keeps_blocks() const noexcept {
    return has_slots_ && large_bytes_ <= (numbers_.allocated.current + lent_.bytes()) / 2;
  }
  void* take_small(stream_key key, request const& r) noexcept {
    void* const p = heap_.take_small(key, {slot_class::of(r.size), r.size}, r.requested, r.alignment_log);
    if (p != nullptr) numbers_.count_allocation(r.requested, r.size * unit_bytes);
    return p;
  }
  void* allocate_by_search(stream_identity const& who, request const& r, pool_effort effort, pool_refusal* refused) {
    block_id const id = search(who, r, effort, refused);
    if (is_kept_small(r)) return hand_out_small(id, who.key, r);
    return id == 0 ? nullptr : hand_out(id, r);
  }
  /// One of those that the stream has of its size; null if `id` is 0.
  void* hand_out_small(block_id id, stream_key key, request const& r) noexcept {
    if (id == 0) return nullptr;
    heap_.count_small(id, key);
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
    stream_identity const who = stream_identity::ask(stream, known);
    check(who.code, "cudaStreamGetId or cudaStreamGetCaptureInfo");
    if (who.capture != capture_key::none) return allocate_in_capture(who, r, effort, refused);
    auto const lock = enter_to_allocate();
    if (may_be_small(r))
      if (void* const p = take_small(who.key, r); p != nullptr) return p;
    if (void* const p = allocate_ready(stream, who.key, r); p != nullptr) return p;
    return allocate_by_search(who, r, effort, refused);
  }

  [[gnu::noinline, gnu::cold]] void* allocate_in_capture(stream_identity const& who, request const& r,
                                                         pool_effort effort, pool_refusal* refused) {
    auto const lock = enter_to_allocate();
    heap_.enter_capture(who);
    block_id id = 0;
    if (captured_memory_only::is_set()) {
      id = noting_reuse(who, [&] { return heap_.take_own(who, r); });
      if (id == 0 && refused != nullptr) refused->set(count_refusal_now({}));
    } else {
      id = noting_reuse(who, [&] { return heap_.take_ready(who, r); });
      if (id == 0) id = search(who, r, effort, refused);
    }
    if (id == 0) return nullptr;
    heap_.keep_for_capture(id, who);
    return hand_out(id, r);
  }
  stream_identity identify(stream_ref stream) const noexcept {
    stream_key const key = stream_identity::known_key(stream, streams_last());
    if (!stream_identity::must_ask(stream, key)) return {.stream = stream, .key = key};
    stream_identity who = stream_identity::ask(stream, key);
    if (!succeeded(who.code)) who.key = stream_key::none;
    return who;
  }
  [[gnu::noinline]] bool deallocate_after_asking(stream_ref stream, stream_key known, void* p, std::size_t bytes,
                                                 std::size_t alignment) noexcept {
    if (heap_.is_exiting()) return true;
    stream_identity const who = stream_identity::ask(stream, known);
    if (who.capture != capture_key::none) return deallocate_in_capture(who, p, bytes, alignment);
    auto const lock = enter();
    return give({.stream = stream, .key = succeeded(who.code) ? who.key : stream_key::none}, p, bytes, alignment);
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
    if (!heap_.give_own(found, who.key)) [[unlikely]]
      return give_slot_elsewhere(found, who.stream, who.key, p, bytes, alignment);
    numbers_.count_deallocation(bytes, held);
    if (is_above_threshold()) [[unlikely]]
      keep_threshold_after_slot();
    return true;
  }
  [[gnu::noinline]] bool give_slot_elsewhere(slot found, stream_ref stream, stream_key key, void* p, std::size_t bytes,
                                             std::size_t alignment) noexcept {
    stream_identity const who{.stream = stream, .key = key};
    std::size_t const held = found.bytes();
    if (!heap_.give(found, who)) return !make_block_of(p, bytes, alignment) || give_block(who, p, bytes, alignment);
    numbers_.count_deallocation(bytes, held);
    if (is_above_threshold()) keep_threshold_after_slot();
    return true;
  }
  bool give_slot(slot const& found, list_id common, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    std::size_t const held = found.bytes();
    if (common == shared) {
      heap_.give_done(found);
    } else if (!heap_.give(found, common)) {
      return !make_block_of(p, bytes, alignment) || give_block(heap_.find_live(p, bytes, alignment), common, bytes);
    }
    count_off(bytes, held);
    if (is_above_threshold()) keep_threshold_after_slot();
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
      keep_threshold_after(free);
    return true;
  }
  bool give_block(block_id id, list_id common, std::size_t bytes) noexcept {
    std::size_t const held = heap_[id].bytes();
    block_id const free = common == shared ? heap_.give_done(id) : heap_.give(id, common);
    count_off(bytes, held);
    if (is_above_threshold()) keep_threshold_after(free);
    return true;
  }
  /// If this live memory is a slot, it is a block from now on. False if there is no host memory for that: then it is
  /// never handed out again.
  [[gnu::noinline]] bool make_block_of(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    slot const found = heap_.find_slot(p, bytes, alignment);
    if (!found || heap_.make_blocks(found)) return true;
    has_lost_blocks_ = true;
    return false;
  }
  [[gnu::noinline, gnu::cold]] bool deallocate_in_capture(stream_identity const& who, void* p, std::size_t bytes,
                                                          std::size_t alignment) noexcept {
    auto const lock = enter();
    lent_.ask_back(p);
    return give_captured(who, p, bytes, alignment);
  }
  /// Takes back what was allocated in a capture, or is freed in one. False if there is no such block.
  [[gnu::noinline, gnu::cold]] bool give_captured(stream_identity const& who, void* p, std::size_t bytes,
                                                  std::size_t alignment) noexcept {
    if (!make_block_of(p, bytes, alignment)) return true;
    block_id const id = heap_.find_any_live(p, bytes, alignment);
    if (id == 0) return false;
    if (parked()) return give_parked(id, bytes);
    std::size_t const held = heap_[id].bytes();
    capture_key const owner = heap_.owner(id, who);
    if (heap_.give_captured(id, who)) count_off(bytes, held);
    last_call = {call_note::captured, static_cast<std::uint64_t>(owner), 0};
    return true;
  }
  bool parked() const noexcept {
    if constexpr (growable<Upstream>)
      return segments_.is_parked();
    else
      return false;
  }
  bool give_parked(block_id id, std::size_t bytes) noexcept {
    count_off(bytes, heap_[id].bytes());
    heap_.give_parked(id);
    return true;
  }
  /// There is no room to remember the streams: sees their work done, or never hands the block out again.
  [[gnu::noinline, gnu::cold]] bool deallocate_after_waiting(stream_ref stream, void* p, std::size_t bytes,
                                                             std::size_t alignment, stream_list others = {}) noexcept {
    auto const wait = [&](stream_ref user) { return user.is_host_order() || wait_for(user, device_); };
    bool const done = mutex_.unlocked([&] {
      bool all = wait(stream);
      for (stream_ref const other : others) all = wait(other) && all;
      return all;
    });
    if (!make_block_of(p, bytes, alignment)) return true;
    block_id const id = heap_.find_live(p, bytes, alignment);
    has_lost_blocks_ |= id != 0 && !done;
    if (id == 0 || !done) return id != 0;
    count_off(bytes, heap_[id].bytes());
    block_id const free = heap_.give_done(id);
    if (is_above_threshold()) keep_threshold_after(free);
    return true;
  }

  /// For a stream in a capture: takes a block by `take`, and tells the layers above how much of it was the capture's.
  template <class Take>
  block_id noting_reuse(stream_identity const& who, Take take) {
    std::size_t const before = heap_.free_bytes(who);
    block_id const id = take();
    if (id != 0)
      last_call = {call_note::captured, static_cast<std::uint64_t>(who.capture), before - heap_.free_bytes(who)};
    return id;
  }
  block_id take_done(stream_identity const& who, request const& r, lists const& looked_at) {
    auto const take = [&] { return heap_.take_done(who, r, looked_at); };
    return who.capture == capture_key::none ? take() : noting_reuse(who, take);
  }

  // ---- Threads' caches: see `lent_blocks`.

  /// Null where there is none: for a stream that may end, without host memory, and where all has to go back at once.
  /// Without the lock.
  [[gnu::noinline]] thread_cache* cache_of_this_thread(stream_key key) noexcept {
    if (key == stream_key::none || !has_slots_ || options_.release_threshold != pool{}.release_threshold)
      return nullptr;
    if (!lent_.has_begun()) [[unlikely]] {
      biased_guard const lock(mutex_);
      lent_.begin();
    }
    return lent_.cache_of_this_thread();
  }
  /// As any request is served, but with what the heap is to note as requested.
  void* lend_to(thread_cache& own, stream_identity const& who, request const& r, pool_effort effort,
                pool_refusal* refused) {
    request lent = r;
    lent.alignment_log = thread_cache::record_alignment_log;
    auto const find = [&](std::size_t record) -> void* {
      lent.requested = record;
      slot_class::sized const size_class{slot_class::of(r.size), r.size};
      if (void* const p = heap_.take_small(who.key, size_class, record, lent.alignment_log); p != nullptr) return p;
      if (void* const p = heap_.make_small(who, lent, segments_.held()); p != nullptr) return p;
      block_id id = heap_.take_ready(who, lent);
      if (id == 0 && effort != pool_effort::reuse) id = grow_first(who, lent);
      if (id == 0) id = search(who, lent, effort, refused);
      if (id == 0) return nullptr;
      heap_.count_small(id, who.key);
      return reinterpret_cast<void*>(heap_[id].address());
    };
    return lent_.lend(own, who, slot_class::of(r.size), r.requested, r.alignment_log, find);
  }
  /// What is done by now, or new memory, while little lies free in threads' caches: so these keep what they have.
  block_id grow_first(stream_identity const& who, request const& r) {
    if (!lent_.may_grow_first(segments_.held())) return 0;
    heap_.gather();
    lists const looked_at = heap_.next_lists();
    if (block_id const id = take_done(who, r, looked_at); id != 0) return id;
    std::size_t const before = segments_.held();
    block_id const id = take_grown(who, r, looked_at);
    if (id == 0)
      lent_.cannot_grow();
    else
      lent_.count_growth(segments_.held() - lesser(segments_.held(), before));
    return id;
  }
  /// True if the calling thread's cache took it.
  [[gnu::noinline]] bool give_by_thread(stream_identity const& who, void* p, std::size_t bytes,
                                        std::size_t alignment) noexcept {
    bool const may_be_there = alignment - 1 < unit_bytes && (alignment & (alignment - 1)) == 0;
    thread_cache* const own = may_be_there && who.key != stream_key::none ? lent_.held_by_this_thread() : nullptr;
    if (own == nullptr) return false;
    auto const give = [&] { return own->give(who.key, p, bytes, static_cast<unsigned>(std::countr_zero(alignment))); };
    thread_cache::answer const answer = give();
    if (answer != thread_cache::answer::no_room) return answer == thread_cache::answer::kept;
    biased_guard const lock(mutex_);
    lent_.make_room(*own, who, slot_class::for_bytes(bytes).number);
    return give() == thread_cache::answer::kept;
  }
  /// Has all that threads and streams have at hand back in the heap.
  void gather() const noexcept {
    lent_.gather();
    heap_.gather();
  }

  /// The ladder of docs/architecture.md, when nothing is ready; 0 at its end. Drops the lock while CUDA may block.
  [[gnu::noinline]] block_id search(stream_identity who, request const& r, pool_effort effort, pool_refusal* refused) {
    if (parked()) {
      if (refused != nullptr) refused->set(count_refusal_now({}));
      return 0;
    }
    if (heap_.gather(who))
      if (block_id const id = heap_.take_ready(who, r); id != 0) return id;
    gather();
    lists const looked_at = effort == pool_effort::reuse ? heap_.all_lists() : heap_.next_lists();
    pool_attempts tried{.searched = true};
    block_id id = find(who, r, effort, looked_at);
    if (id == 0 && heap_.make_blocks()) id = take_freed(who, r, heap_.all_lists());
    if (id == 0 && effort == pool_effort::all) id = last_resort(who, r, looked_at, tried);
    if (id == 0 && refused != nullptr) refused->set(count_refusal_now(tried));
    if (is_above_threshold()) {
      gather();
      keep_at_most(options_.release_threshold);
    }
    return id;
  }

  block_id find(stream_identity const& who, request const& r, pool_effort effort, lists const& looked_at) {
    if (block_id const id = take_done(who, r, looked_at); id != 0) return id;
    if (options_.pending == when_pending::wait)
      if (block_id const id = take_waiting(who, r, looked_at); id != 0) return id;
    if (heap_.adopt())
      if (block_id const id = take_done(who, r, looked_at); id != 0) return id;
    bool const may_grow = effort != pool_effort::reuse;
    block_id const grown = may_grow ? take_grown(who, r, looked_at) : take_when_grown(who, r, looked_at);
    return grown != 0 ? grown : take_waiting(who, r, looked_at);
  }

  /// Before a request is refused.
  block_id last_resort(stream_identity const& who, request const& r, lists const& looked_at, pool_attempts& tried) {
    if (!looked_at.are_all())
      if (block_id const id = take_freed(who, r, heap_.all_lists()); id != 0) return id;
    if (options_.synchronize) {
      std::size_t const free_before = heap_.free_bytes();
      wait_for_all();
      tried.waited = true;
      tried.done = heap_.free_bytes() - lesser(heap_.free_bytes(), free_before);
      if (block_id const id = take_done(who, r, heap_.all_lists()); id != 0) return id;
    }
    tried.given_back = release_idle(0);
    return tried.given_back != 0 ? take_grown(who, r, heap_.all_lists()) : 0;
  }

  /// What was freed, done or not.
  block_id take_freed(stream_identity const& who, request const& r, lists const& looked_at) {
    block_id const id = take_done(who, r, looked_at);
    return id != 0 ? id : take_waiting(who, r, looked_at);
  }
  block_id take_waiting(stream_identity const& who, request const& r, lists const& looked_at) {
    block_id const id = heap_.take_waiting(who, r, looked_at);
    if (id != 0) ++numbers_.waits;
    return id;
  }

  /// What another thread's growth that is under way leaves, without growing.
  block_id take_when_grown(stream_identity const& who, request const& r, lists const& looked_at) {
    return segments_.calls().wait(mutex_) ? take_done(who, r, looked_at) : 0;
  }

  /// Grows, then takes; waits for other threads' growth where that is in the way. 0 if all of it fails.
  block_id take_grown(stream_identity const& who, request const& r, lists const& looked_at) {
    block_id id = 0;
    auto const grow_and_take = [&] {
      growth const outcome = grow(who, r, id);
      if (id == 0 && outcome == growth::done) id = take_done(who, r, looked_at);
      return outcome;
    };
    auto const look_again = [&] {
      id = take_done(who, r, looked_at);
      return id != 0 ? growth::done : grow_and_take();
    };
    if (grow_and_take() == growth::contended) segments_.calls().repeat(mutex_, look_again);
    return id;
  }
  /// `taken`: the block that serves the request, where growth decides that.
  growth grow(stream_identity const& who, request const& r, block_id& taken) {
    std::size_t const now = numbers_.allocated.current + lent_.bytes() + std::size_t{r.size} * unit_bytes;
    std::size_t const live = greater(now, greater(peak_before_reset_, lent_.count().allocated.peak));
    if constexpr (growable<Upstream>) {
      growth const outcome = segments_.grow(mutex_, heap_, who, r, live, taken);
      if (taken != 0 && who.capture != capture_key::none)
        last_call = {call_note::captured, static_cast<std::uint64_t>(who.capture), 0};
      return outcome;
    } else {
      return segments_.grow(mutex_, heap_, r, live);
    }
  }

  void wait_for_all() noexcept {
    ++numbers_.synchronizations;
    gather();
    heap_.synchronize(mutex_);
    gather();
  }

  bool is_above_threshold() const noexcept { return segments_.held() > options_.release_threshold; }

  /// `freed` may have been the last live block of its segment. That goes back as soon as it is idle: if CUDA does not
  /// yet say so, the frees to come ask again, and what a search learns serves too.
  [[gnu::noinline]] void keep_threshold_after(block_id freed) noexcept {
    if (segments_.may_be_idle_after(heap_, freed)) keep_threshold();
  }
  /// The same after a slot was freed, with which slabs may have become free blocks in several segments.
  [[gnu::noinline]] void keep_threshold_after_slot() noexcept {
    heap_.gather_slabs();
    if (heap_.some_slab_went()) segments_.look_again();
    if (segments_.may_be_idle()) keep_threshold();
  }
  void keep_threshold() noexcept {
    heap_.poll(heap_.next_lists());
    keep_at_most(options_.release_threshold);
  }

  /// Asks CUDA, without waiting, what is done; then gives back idle segments until at most `keep` bytes are held.
  std::size_t release_idle(std::size_t keep) noexcept {
    gather();
    heap_.adopt();
    heap_.poll(heap_.all_lists());
    heap_.gather_slabs();
    segments_.look_again();
    return keep_at_most(keep);
  }
  /// The same without asking.
  std::size_t keep_at_most(std::size_t keep) noexcept { return segments_.give_idle(mutex_, heap_, keep); }

  pool options_;
  int device_;
  units max_split_;  // what `options_` say, in units
  bool has_slots_;   // small requests are served by what their stream has at hand
  atomic<bool> keeps_;
  biased_lock mutable mutex_;
  // To look at all that is held, what is at hand is put back, which changes nothing of what is live: hence `mutable`.
  stream_ordered_heap mutable heap_;
  typename held_from<Upstream>::type segments_;
  pool_tenant<caching_allocator, Upstream> tenant_;
  bool has_lost_blocks_ = false;  // that may be in use for ever: which are theirs, their records do not say
  pool_numbers mutable numbers_;  // without what caches count
  lent_blocks mutable lent_{heap_, numbers_};
  std::size_t large_bytes_ = 0;        // of what is allocated, in blocks above 1 MiB
  std::size_t peak_before_reset_ = 0;  // the most that was ever allocated, up to the last `reset_peaks`
};

}  // namespace weir::detail
