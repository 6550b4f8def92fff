#pragma once
// Blocks that a stream freed and will most likely ask for again: kept as they are, by size.

#include <weir/pool/heap/growable_heap.hpp>
#include <weir/pool/heap/slot_class.hpp>
#include <weir/pool/order/stream_tracker.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir::detail {

/// For each stream and size the blocks that it freed last, not merged with their neighbours and not in the heap's free
/// lists, so that the same stream has them again without a search. Others have them after `flush`, which every search
/// begins with: nothing is refused, and nothing grows, for what is kept here. Single blocks they have sooner, where the
/// work before their frees is known to be done (`take_elsewhere`): what was kept at one moment (`mark`) is known by the
/// number of the latest free then. Only for streams that do not end, or whose end is noticed. Guarded by the pool's
/// lock. As the quick lists of Lea's malloc and the caches of jemalloc.
class block_cache {
 public:
  block_cache(growable_heap& heap, stream_tracker& tracker) : heap_(heap), tracker_(tracker), streams_(1) {}
  ~block_cache() {
    for (std::size_t i = 0; i < streams_.size(); ++i) delete streams_[i];
  }
  block_cache(block_cache const&) = delete;
  block_cache& operator=(block_cache const&) = delete;

  /// Room for free lists below `lists`. May throw `std::bad_alloc`.
  void reserve(std::size_t lists) { streams_.grow(lists); }
  /// From now on what is freed in this list is kept. May throw `std::bad_alloc`.
  void open(list_id list) {
    if (streams_[list] == nullptr) [[unlikely]]
      open_new(list);
  }

  /// The list has nothing here, and may come to stand for another stream.
  void close(list_id list) noexcept { delete std::exchange(streams_[list], nullptr); }

  /// Blocks of the class that the list's stream took from the heap and has not given back: it is about to take one
  /// more. What other streams freed counts for those. Needs `open`.
  unsigned count_taken(list_id list, unsigned size_class) noexcept {
    std::uint16_t& taken = streams_[list]->taken[size_class];
    if (taken != most_counted) ++taken;
    return taken;
  }
  /// So many of them went back.
  void count_given(list_id list, unsigned size_class, unsigned given = 1) noexcept {
    if (by_class* const taker = streams_[list]; taker != nullptr) count_off(taker->taken[size_class], given);
  }
  /// A live block goes back that `list` frees.
  [[gnu::always_inline]] void count_free(list_id list, block_id id) noexcept {
    block const& b = heap_.blocks()[id];
    if (b.list != shared) count_free(list, b.list, slot_class::of(b.size));
  }

  /// Something of the class that the list's stream took was freed by another. Needs `open`.
  void count_elsewhere(list_id list, unsigned size_class) noexcept {
    std::uint8_t& elsewhere = streams_[list]->elsewhere[size_class];
    if (elsewhere != most_elsewhere) ++elsewhere;
  }
  /// True if others free what the stream takes of the class, mostly: it does not come back to where it was taken.
  bool goes_elsewhere(list_id list, unsigned size_class) const noexcept {
    return streams_[list]->elsewhere[size_class] >= most_elsewhere / 2;
  }

  /// A block of the class that was freed in the list, now live; null if there is none.
  /// `heap` is the same that this has: where it lies is known when the program is compiled.
  [[gnu::always_inline]] void* take(block_heap& heap, list_id list, unsigned size_class, std::uint64_t requested,
                                    live_mark mark) noexcept {
    by_class* const own = streams_[list];
    block_id const id = own == nullptr ? 0 : own->first[size_class];
    if (id == 0) [[unlikely]]
      return nullptr;
    block_id const next = heap.blocks()[id].list_next;
    own->first[size_class] = next;
    if (own->marked[size_class] == id) [[unlikely]]
      own->marked[size_class] = next;
    ++own->room[size_class];
    return reinterpret_cast<void*>(heap.reuse(id, requested, mark));
  }
  /// Keeps a live block that is freed; false if it is for the heap.
  [[gnu::always_inline]] bool put(list_id list, block_id id) noexcept {
    by_class* const own = streams_[list];
    if (own == nullptr || (heap_.blocks()[id].list != list && !adopt(list, id))) return false;
    if (!own->has_some) note(*own);
    return put_in(heap_, tracker_, *own, list, id) != 0;
  }
  /// Whether anything may be kept for a list.
  bool is_open(list_id list) const noexcept { return streams_[list] != nullptr; }
  /// The same as `put` in a few instructions, for a list that is open, where the block is the list's own already and
  /// not the only one that is kept. Returns the block's bytes; 0 elsewhere, and nothing done.
  [[gnu::always_inline]] std::size_t put_at_once(block_heap& heap, stream_tracker& tracker, list_id list,
                                                 block_id id) noexcept {
    return put_in(heap, tracker, *streams_[list], list, id);
  }

  /// True if something may be kept for another list.
  [[gnu::always_inline]] bool has_elsewhere(list_id list) const noexcept {
    return with_some_ != nullptr && (with_some_->list != list || with_some_->next != nullptr);
  }
  /// A block of the class that is kept for another list, and that `list`'s stream may use by now: it is that one's, but
  /// not live yet (`reuse`). 0 if there is none among those that are looked at. No CUDA call.
  block_id take_elsewhere(list_id list, unsigned size_class) noexcept {
    unsigned looked_at = 0;
    for (by_class* giver = with_some_; giver != nullptr && looked_at != most_looked_at;
         giver = giver->next, ++looked_at)
      if (block_id const id = take_marked(*giver, list, size_class); id != 0) return id;
    return 0;
  }
  /// The same of what is kept for `giver`.
  block_id take_from(list_id giver, list_id list, unsigned size_class) noexcept {
    return has(giver, size_class) ? take_marked(*streams_[giver], list, size_class) : 0;
  }
  /// True if something may be kept for any list.
  bool has_some() const noexcept { return with_some_ != nullptr; }
  /// True if a block of the class is kept for a list.
  bool has(list_id list, unsigned size_class) const noexcept {
    return streams_[list] != nullptr && streams_[list]->first[size_class] != 0;
  }
  /// What is kept for a list now is everyone's as soon as all is done that was freed there; unless what was marked
  /// before is still awaited, which is done first. The list is open.
  void mark(list_id list) noexcept {
    by_class& own = *streams_[list];
    if (!tracker_.is_done(list, own.marked_upto)) return;
    __builtin_memcpy(own.marked, own.first, sizeof own.marked);
    own.marked_upto = tracker_.issued(list);
  }

  /// Gives all that is kept for a list to the heap; true if there was something.
  bool flush(list_id list) noexcept {
    by_class* const own = streams_[list];
    if (own == nullptr || !own->has_some) return false;
    for (unsigned c = 0; c < slot_class::count; ++c) {
      for (block_id id = own->first[c], next = 0; id != 0; id = next) {
        next = heap_.blocks()[id].list_next;
        heap_.give(id, list, tracker_.issued(list));
      }
      unsigned const given = most_of_class(c) - own->room[c];
      count_off(own->taken[c], given);
      count_off(own->elsewhere[c], given);
      own->first[c] = 0;
      own->marked[c] = 0;
      own->room[c] = 0;
    }
    own->marked_upto = {};
    own->has_some = false;
    (own->previous == nullptr ? with_some_ : own->previous->next) = own->next;
    if (own->next != nullptr) own->next->previous = own->previous;
    return true;
  }
  /// The same for all lists.
  bool flush() noexcept {
    bool const any = with_some_ != nullptr;
    while (with_some_ != nullptr) flush(with_some_->list);
    return any;
  }

  /// True if something may be kept for a list, which must not be forgotten then.
  bool needs(list_id list) const noexcept { return streams_[list] != nullptr && streams_[list]->has_some; }

  std::size_t host_bytes() const noexcept {
    std::size_t opened = 0;
    for (std::size_t i = 0; i < streams_.size(); ++i) opened += streams_[i] != nullptr;
    return streams_.bytes() + opened * sizeof(by_class);
  }

 private:
  struct by_class {
    explicit by_class(list_id whose) noexcept : list(whose) {}
    block_id first[slot_class::count] = {};
    block_id marked[slot_class::count] = {};  // it, and all behind it, were freed up to `marked_upto`
    sequence_number marked_upto{};
    std::uint16_t taken[slot_class::count] = {};
    std::uint8_t room[slot_class::count] = {};       // how many more may be kept at once; 0 until some are
    std::uint8_t elsewhere[slot_class::count] = {};  // freed by others, less what it freed itself and did not keep
    list_id list;
    bool has_some = false;         // since the last flush
    by_class* previous = nullptr;  // of those that have
    by_class* next = nullptr;
  };

  static constexpr std::uint16_t most_counted = 0xffff;
  static constexpr std::uint8_t most_elsewhere = 64;
  static constexpr unsigned most_looked_at = 16;  // so that what a call costs does not grow with the streams

  /// Returns the bytes of what is kept now; 0 if there is no room, or it is not the list's.
  [[gnu::always_inline]] static std::size_t put_in(block_heap& heap, stream_tracker& tracker, by_class& own,
                                                   list_id list, block_id id) noexcept {
    units const size = heap.blocks()[id].size;
    if (size == 0) __builtin_unreachable();
    unsigned const size_class = slot_class::of(size);
    if (heap.blocks()[id].list != list || own.room[size_class] == 0) [[unlikely]]
      return 0;
    tracker.number_free(list);
    heap.set_cached(id, own.first[size_class]);
    own.first[size_class] = id;
    --own.room[size_class];
    return std::size_t{size} * unit_bytes;
  }
  block_id take_marked(by_class& giver, list_id list, unsigned size_class) noexcept {
    block_id const id = giver.marked[size_class];
    if (id == 0 || giver.list == list || !tracker_.available(list, giver.list, giver.marked_upto)) return 0;
    block_id const next = heap_.blocks()[id].list_next;
    if (block_id newer = giver.first[size_class]; newer == id) {
      giver.first[size_class] = next;
    } else {
      while (heap_.blocks()[newer].list_next != id) newer = heap_.blocks()[newer].list_next;
      heap_.set_cached(newer, next);
    }
    giver.marked[size_class] = next;
    ++giver.room[size_class];
    count_off(giver.taken[size_class], 1);
    heap_.set_taker(id, list);
    return id;
  }
  template <class Count>
  static void count_off(Count& count, unsigned given) noexcept {
    count = static_cast<Count>(count < given ? 0 : count - given);
  }
  void count_free(list_id list, list_id taker, unsigned size_class) noexcept {
    by_class* const its = streams_[taker];
    if (its == nullptr) return;
    count_off(its->taken[size_class], 1);
    if (taker == list)
      count_off(its->elsewhere[size_class], 1);
    else
      count_elsewhere(taker, size_class);
  }
  /// What another stream took, or is not counted, is one of the small blocks that this one has; false if it is none.
  [[gnu::noinline]] bool adopt(list_id list, block_id id) noexcept {
    block const& b = heap_.blocks()[id];
    if (b.size > slot_class::most_units || slot_class::rounded(b.size) != b.size) return false;
    count_free(list, id);
    count_taken(list, slot_class::of(b.size));
    heap_.set_taker(id, list);
    return true;
  }

  [[gnu::noinline]] void open_new(list_id list) { streams_[list] = new by_class(list); }
  [[gnu::noinline]] void note(by_class& own) noexcept {
    own.has_some = true;
    __builtin_memcpy(own.room, most_rooms.of, sizeof own.room);
    own.previous = nullptr;
    own.next = with_some_;
    if (with_some_ != nullptr) with_some_->previous = &own;
    with_some_ = &own;
  }

  static constexpr std::uint8_t most_of_class(unsigned size_class) noexcept {
    return size_class <= slot_class::of(256) ? 32 : size_class <= slot_class::of(1024) ? 16 : 8;
  }

  struct rooms {
    constexpr rooms() noexcept {
      for (unsigned c = 0; c < slot_class::count; ++c) of[c] = most_of_class(c);
    }
    std::uint8_t of[slot_class::count] = {};
  };
  static rooms const most_rooms;

  growable_heap& heap_;
  stream_tracker& tracker_;
  grown_array<by_class*> streams_;
  by_class* with_some_ = nullptr;
};
inline constexpr block_cache::rooms block_cache::most_rooms;

}  // namespace weir::detail
