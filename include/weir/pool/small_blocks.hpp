#pragma once
// What streams have at hand for small requests: blocks that they freed of late, and slots in slabs of their own.

#include <weir/core/shown_memory.hpp>
#include <weir/pool/block_cache.hpp>
#include <weir/pool/heap/growable_heap.hpp>
#include <weir/pool/order/stream_tracker.hpp>
#include <weir/pool/slab_store.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// `block_cache` and `slab_store` together: which of them serves a request, and where a free goes. All of it is of
/// blocks of one heap, and goes back there before anyone looks for memory (`gather`) or is refused (`make_blocks`).
/// Guarded by the pool's lock.
class small_blocks {
 public:
  using request = block_heap::request;
  using slot = slab_store::place;

  small_blocks(growable_heap& heap, stream_tracker& tracker)
      : heap_(heap), tracker_(tracker), cache_(heap, tracker), slabs_(heap, tracker) {}

  /// Room for free lists below `lists`. May throw `std::bad_alloc`.
  void reserve(std::size_t lists) {
    cache_.reserve(lists);
    slabs_.reserve(lists);
  }
  /// As the heap's `reserve`, but before its tables grow, what streams have at hand makes room in them: how many blocks
  /// of each size they once needed at a time is more than they need together. May throw `std::bad_alloc`.
  [[gnu::always_inline]] void reserve_blocks() {
    if (heap_.is_short_of_room()) [[unlikely]]
      add_room();
  }
  /// The list has nothing here, and may come to stand for another stream.
  void close(list_id list) noexcept {
    cache_.close(list);
    slabs_.close(list);
  }
  /// True if a list must not be forgotten for what is here.
  bool needs(list_id list) const noexcept { return slabs_.needs(list) || cache_.needs(list); }
  /// True if slots wait for what was freed in the list.
  bool awaits(list_id list) const noexcept { return slabs_.awaits(list); }

  /// A slot or block of a small request's class that the list's stream has at hand, now live; null if there is none.
  /// No CUDA call.
  [[gnu::always_inline]] void* take(block_heap& heap, list_id list, slot_class::sized size_class, std::size_t bytes,
                                    live_mark mark) noexcept {
    if (size_class.number < slab_store::classes)
      if (slab* const s = slabs_.with_free(list, size_class.number); s != nullptr)
        return slabs_.take(*s, size_class.bytes, bytes, mark.alignment_log());
    return cache_.take(heap, list, size_class.number, bytes, mark);
  }
  /// A slot after making room: what other streams gave back is the stream's again, or there is a new slab. Null if the
  /// request is for a block, which is counted. `held`: bytes that the pool holds. Only for a list whose stream does not
  /// end, or whose end is noticed. May throw `std::bad_alloc`.
  [[gnu::always_inline]] void* make(list_id list, request const& r, std::size_t held) {
    unsigned const size_class = slot_class::of(r.size);
    cache_.open(list);
    unsigned const blocks = cache_.count_taken(list, size_class);
    if (r.size > slab::most_slot_units || !slabs_.may_serve(list, size_class, blocks)) return nullptr;
    return cache_.goes_elsewhere(list, size_class) ? nullptr : make_slot(list, r, size_class, held);
  }

  /// True if another stream may have something at hand.
  [[gnu::always_inline]] bool has_elsewhere(list_id list) const noexcept { return cache_.has_elsewhere(list); }
  /// A block that another stream has at hand and the list's may use by now, live; 0 if none is found. No CUDA call.
  /// `make` counted it.
  block_id take_elsewhere(list_id list, request const& r) noexcept {
    return reuse(cache_.take_elsewhere(list, slot_class::of(r.size)), r);
  }
  /// The same of one list's.
  block_id take_from(list_id giver, list_id list, request const& r) noexcept {
    return reuse(cache_.take_from(giver, list, slot_class::of(r.size)), r);
  }
  /// True if a list may have something at hand that would serve such a request.
  static bool may_have(request const& r) noexcept {
    return r.size <= slot_class::most_units && r.alignment == unit_bytes && slot_class::rounded(r.size) == r.size;
  }
  /// True if a list has, for a request that may be served so.
  bool has(list_id list, request const& r) const noexcept { return cache_.has(list, slot_class::of(r.size)); }
  /// True if any list may have a block at hand, for whatever request.
  bool has_some() const noexcept { return cache_.has_some(); }
  /// What such a list has at hand is others' too once all is done that was freed there by now.
  void mark(list_id list) noexcept { cache_.mark(list); }

  /// Keeps a live block that is freed in the list; false if it is for the heap.
  [[gnu::always_inline]] bool keep(list_id list, block_id id) noexcept { return cache_.put(list, id); }
  /// Whether the list's stream may have anything at hand.
  bool is_open(list_id list) const noexcept { return cache_.is_open(list); }
  /// The same as `keep` for such a list. Returns the block's bytes; 0 too where that takes more than a few
  /// instructions.
  [[gnu::always_inline]] std::size_t keep_at_once(block_heap& heap, stream_tracker& tracker, list_id list,
                                                  block_id id) noexcept {
    return cache_.put_at_once(heap, tracker, list, id);
  }
  /// A live block goes back to the heap that is freed in the list.
  [[gnu::always_inline]] void count_free(list_id list, block_id id) noexcept { cache_.count_free(list, id); }

  /// The live slot that was allocated so, if it is one.
  [[gnu::always_inline]] slot find(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
    if (bytes > slab::most_slot_units * unit_bytes || alignment - 1 >= unit_bytes || (alignment & (alignment - 1)) != 0)
      return {};  // nobody was given a slot for that
    return slabs_.find(p, bytes, static_cast<unsigned>(std::countr_zero(alignment)));
  }
  /// The same of what may be one by its alignment.
  [[gnu::always_inline]] slot find_slot(void* p, std::size_t bytes, live_mark mark) const noexcept {
    if (!slabs_.may_have(p) || bytes > slab::most_slot_units * unit_bytes) return {};
    return slabs_.find(p, bytes, mark.alignment_log());
  }
  /// The live slot at `p`, whatever it was asked for as.
  slot find(void const* p) const noexcept { return slabs_.find(p); }

  /// Takes back a slot that is freed in the list. False, and nothing changed, if that is not its owner's.
  bool give_own(slot const& freed, list_id list) noexcept {
    if (!slab_store::is_own(freed, list)) return false;
    slabs_.give(freed);
    return true;
  }
  /// The same, and false too where that takes more than a few instructions.
  [[gnu::always_inline]] bool give_own_at_once(stream_tracker& tracker, slot const& freed, list_id list) noexcept {
    return slab_store::is_own(freed, list) && slabs_.give_at_once(tracker, freed);
  }
  /// The same as `give_own`, and false only where that is not simple: then `make_blocks` of it.
  bool give(slot const& freed, list_id list) noexcept {
    if (give_own(freed, list)) return true;
    list_id const owner = freed.in->owner;
    cache_.count_elsewhere(owner, freed.in->size_class());
    // Where slots do not come back to their owner, what is left of the slab is more use as blocks.
    if (cache_.goes_elsewhere(owner, freed.in->size_class())) return false;
    return slabs_.give_away(freed, list, tracker_.on_free(list));
  }
  /// The same for one that nobody uses any more.
  void give_done(slot const& freed) noexcept { slabs_.give_done(freed); }

  /// Makes blocks of all of its slab's slots; false if there is no host memory.
  bool make_blocks(slot const& of) noexcept { return slabs_.take_apart(*of.in); }
  /// The same for all slabs, and gives blocks that streams have at hand back; true if there was one.
  bool make_blocks() noexcept {
    bool const flushed = cache_.flush();
    return slabs_.take_apart_if([](slab const&) { return true; }) || flushed;
  }
  /// Makes blocks of the slabs of threads that ended; true if there was one. Looks at every stream that has some.
  bool adopt() noexcept {
    auto const has_ended = [&](list_id owner) { return tracker_.has_ended(owner); };
    return slabs_.any_owner(has_ended) && slabs_.take_apart_if([&](slab const& s) { return has_ended(s.owner); });
  }

  /// Gives what streams have at hand back to the heap: blocks, and slabs without a live slot.
  void gather() noexcept {
    cache_.flush();
    gather_slabs();
  }
  /// The same for the blocks of one stream; true if there was one.
  bool gather(list_id list) noexcept { return cache_.flush(list); }
  /// The same for slabs.
  void gather_slabs() noexcept {
    if (slabs_.count() == 0) return;
    slabs_.take_back();
    slabs_.give_whole();
  }
  bool has_slabs() const noexcept { return slabs_.count() != 0; }
  /// True if a slab became free blocks since the last call.
  bool some_slab_went() noexcept { return slabs_.some_went(); }

  /// Free bytes in slabs that everyone may have when these go back to the heap. Looks at every slab.
  std::size_t free_bytes_in_slabs() const noexcept { return slabs_.free_bytes(); }
  std::size_t host_bytes() const noexcept { return cache_.host_bytes() + slabs_.host_bytes(); }

  /// If a live block of the heap is a slab, calls `f(shown_block)` for each piece of that, and returns true.
  template <class F>
  bool for_each_shown(block_id id, F f) const {
    slab const* const s = slabs_.of_block(id);
    if (s == nullptr) return false;
    for (slab::slot at = 0; at < s->slot_count();) {
      slab::run const run = s->run_from(at);
      shown_block piece{.address = s->begin() + at * s->slot_bytes(), .bytes = run.count * s->slot_bytes()};
      if (run.state == slab::state::live) {
        piece.state = memory_state::live;
        piece.requested = s->requested(at);
      } else if (run.state == slab::state::away || !tracker_.is_done(s->owner, s->freed)) {
        piece.state = memory_state::pending;
        piece.stream = tracker_.stream_number(run.state == slab::state::away ? s->away_list : s->owner);
      }
      f(piece);
      at += run.count;
    }
    return true;
  }

 private:
  block_id reuse(block_id id, request const& r) noexcept {
    if (id != 0) heap_.reuse(id, r.requested, r.alignment_log);
    return id;
  }
  [[gnu::noinline]] void add_room() {
    cache_.flush();
    heap_.reserve_share();  // so that what was at hand is not given back soon again
  }
  /// In place of a block that was counted.
  [[gnu::noinline]] void* make_slot(list_id list, request const& r, unsigned size_class, std::size_t held) {
    auto const take = [&]() -> void* {
      slab* const s = slabs_.with_free(list, size_class);
      if (s == nullptr) return nullptr;
      cache_.count_given(list, size_class);
      return slabs_.take(*s, r.size * unit_bytes, r.requested, r.alignment_log);
    };
    if (slabs_.take_back())
      if (void* const p = take(); p != nullptr) return p;
    std::uint32_t const wanted = slabs_.slots_wanted(list, size_class, held);
    if (wanted == 0) return nullptr;
    if (add_slab(list, r, size_class, wanted)) return take();
    // Blocks that came and went may have left no room for as many.
    std::uint32_t const least = slab_store::least_slots(size_class);
    return least < wanted && add_slab(list, r, size_class, least) ? take() : nullptr;
  }
  /// A slab of so many slots for requests as `r`, of memory that the stream may have without asking.
  bool add_slab(list_id list, request const& r, unsigned size_class, std::uint32_t slot_count) {
    reserve_blocks();
    std::size_t const own = heap_.free_bytes(list);
    block_id const id = heap_.take_tightest(list, {.size = r.size * slot_count,
                                                   .alignment = slab::page_bytes,
                                                   .max_split = r.max_split,
                                                   .requested = ~std::uint64_t{0},  // no free of a live block names it
                                                   .alignment_log = 0});
    if (id == 0) return false;
    bool const all_done = heap_.free_bytes(list) == own;
    sequence_number const freed = all_done ? sequence_number::none : tracker_.issued(list);
    if (slabs_.add(id, list, size_class, slot_count, freed)) return true;
    heap_.give(id, all_done ? shared : list, freed);
    return false;
  }

  growable_heap& heap_;
  stream_tracker& tracker_;
  block_cache cache_;
  slab_store slabs_;
};

}  // namespace weir::detail
