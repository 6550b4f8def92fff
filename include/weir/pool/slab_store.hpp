#pragma once
// Slabs of a pool's streams: small blocks that are taken and given without a search and without merging.

#include <weir/pool/heap/growable_heap.hpp>
#include <weir/pool/heap/slab.hpp>
#include <weir/pool/heap/slab_lists.hpp>
#include <weir/pool/heap/slab_map.hpp>
#include <weir/pool/order/stream_tracker.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace weir::detail {

/// Blocks of the heap, live there, that it hands out slot by slot. A slab belongs to one stream, which may have each of
/// its free slots at once: what the stream freed itself, and what others freed when that is done. A slab can go back at
/// any time: as one block when no slot is live (`give_whole`), or taken apart into blocks of the heap, live ones too
/// (`take_apart`), so that whatever is rare needs to know nothing of slabs. Only for streams that do not end, or whose
/// end is noticed. Guarded by the pool's lock.
class slab_store {
 public:
  static constexpr unsigned classes = slab::classes;

  slab_store(growable_heap& heap, stream_tracker& tracker) : heap_(heap), tracker_(tracker) {}
  ~slab_store() {
    for (std::size_t i = 0; i < count_; ++i) slab::drop(all_[i]);
  }
  slab_store(slab_store const&) = delete;
  slab_store& operator=(slab_store const&) = delete;

  /// Room for free lists below `lists`. May throw `std::bad_alloc`.
  void reserve(std::size_t lists) { lists_.reserve(lists); }
  /// The list has no slab, and may come to stand for another stream.
  void close(list_id list) noexcept { lists_.close(list); }

  /// A slot that is live.
  struct place {
    slab* in = nullptr;
    slab::slot slot = slab::none;

    explicit operator bool() const noexcept { return slot != slab::none; }
    std::size_t bytes() const noexcept { return in->slot_bytes(); }
    std::size_t requested() const noexcept { return in->requested(slot); }
    unsigned alignment_log() const noexcept { return in->alignment_log(slot); }
    /// True if no other slot of its slab is live.
    bool is_last() const noexcept { return in->live() == 1; }
  };

  /// A slab with a free slot of the list's own; null if there is none. Null for any list without slabs.
  [[gnu::always_inline]] slab* with_free(list_id list, unsigned size_class) noexcept {
    return lists_.with_free(list, size_class);
  }
  /// A slot of such a slab, now live.
  [[gnu::always_inline]] void* take(slab& s, std::size_t slot_bytes, std::size_t bytes,
                                    unsigned alignment_log) noexcept {
    free_bytes_ -= slot_bytes;
    std::uintptr_t const address = s.take(slab::record_in(slot_bytes, bytes, alignment_log));
    if (!s.has_free()) [[unlikely]]
      lists_.unlink(s);
    return reinterpret_cast<void*>(address);
  }

  /// False if there is no slab there or beyond.
  [[gnu::always_inline]] bool may_have(void const* p) const noexcept {
    return map_.may_have(reinterpret_cast<std::uintptr_t>(p));
  }
  /// The live slot at `p`, whatever it was asked for as.
  place find(void const* p) const noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    slab_map::word const found = map_.find(address);
    if (!found) return {};
    slab* const s = found.in();
    slab::slot const slot = s->at(address);
    return slot != slab::none && s->is_live(slot) ? place{s, slot} : place{};
  }
  /// The same, if it was asked for so.
  [[gnu::always_inline]] place find(void const* p, std::size_t bytes, unsigned alignment_log) const noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    slab_map::word const found = map_.find(address);
    if (!found) return {};
    slab* const s = found.in();
    slab::slot const slot = found.slot_at(address);
    if (!s->was_used(slot) || s->record(slot) != slab::record_of(s->slot_units(), bytes, alignment_log)) return {};
    return {s, slot};
  }

  /// From now on a live slot was asked for so.
  static void set_asked(place const& p, std::size_t bytes, unsigned alignment_log) noexcept {
    p.in->set_record(p.slot, slab::record_of(p.in->slot_units(), bytes, alignment_log));
  }
  /// True if the owner of a slot's slab is this list.
  static bool is_own(place const& p, list_id list) noexcept { return p.in->owner == list; }
  /// Takes back what the owner freed.
  void give(place const& p) noexcept {
    p.in->freed = tracker_.number_free(p.in->owner);
    give_done(p);
  }
  /// The same where the slab stays; false, and nothing done, where it is emptied and goes. `tracker` is the same that
  /// this has: where it lies is known when the program is compiled.
  [[gnu::always_inline]] bool give_at_once(stream_tracker& tracker, place const& p) noexcept {
    if (p.in->live() == 1 && !may_stay_whole(*p.in)) [[unlikely]]
      return false;
    p.in->freed = tracker.number_free(p.in->owner);
    take_in(p);
    if (p.in->live() == 0) [[unlikely]]
      lists_.keep_whole(*p.in);
    return true;
  }
  /// Takes back what nobody uses any more.
  void give_done(place const& p) noexcept {
    take_in(p);
    if (p.in->live() != 0) return;
    if (may_stay_whole(*p.in))
      lists_.keep_whole(*p.in);
    else
      emptied(*p.in);
  }
  /// Takes back what was freed in another list, with a sequence number of that. False if something else is away from
  /// the slab already: then take it apart.
  bool give_away(place const& p, list_id where, sequence_number sequence) noexcept {
    slab& s = *p.in;
    if (s.away() != 0 && s.away_list != where) return false;
    if (s.away() == 0) await(s, where);
    s.away_until = sequence;
    s.give_away(p.slot);
    if (s.live() == 0) take_apart(s);
    return true;
  }

  /// True if slabs are for this class of a list: its stream has `blocks` of it, or slabs already.
  bool may_serve(list_id list, unsigned size_class, unsigned blocks) const noexcept {
    return blocks >= blocks_before_slabs || lists_.slot_count(list, size_class) != 0;
  }
  /// Slots of this class that the list's next slab is to have; 0 for none. `held`: bytes that the pool holds. May throw
  /// `std::bad_alloc`.
  std::uint32_t slots_wanted(list_id list, unsigned size_class, std::size_t held) {
    lists_.open(list);
    if (all_.size() == count_) all_.grow(count_ + count_ / 8 + 8);
    std::size_t const size = slot_class::size(size_class) * unit_bytes;
    std::size_t const share = lists_.slot_count(list, size_class) / share_of_class;
    std::size_t const slot_count = lesser(greater(share, least_slots(size_class)), slab::most_bytes / size);
    bool const may_lie_free = free_bytes_ + slot_count * size <= greater(free_bytes_at_least, held / share_of_held);
    return may_lie_free ? static_cast<std::uint32_t>(slot_count) : 0;
  }
  static std::uint32_t least_slots(unsigned size_class) noexcept {
    std::size_t const size = slot_class::size(size_class) * unit_bytes;
    return static_cast<std::uint32_t>(greater(least_slots_a_slab, least_slab_bytes / size));
  }
  /// Makes a slab of a live block of the heap; all its work is done, or was freed on `list` up to `freed`. Needs
  /// `slots_wanted` before it. False if there is no host memory.
  bool add(block_id id, list_id list, unsigned size_class, std::uint32_t slot_count, sequence_number freed) noexcept {
    slab* const s = slab::make(heap_.blocks()[id].address(), size_class, slot_count);
    if (s == nullptr) return false;
    if (!map_.add(s)) {
      slab::drop(s);
      return false;
    }
    s->owner = list;
    s->freed = freed;
    s->index = static_cast<std::uint32_t>(count_);
    all_[count_++] = s;
    lists_.add(*s);
    host_bytes_ += s->host_bytes();
    free_bytes_ += s->bytes();
    return true;
  }

  /// What is away and the owner may have by now is its own again. No CUDA call. True if there was any.
  bool take_back() noexcept {
    bool any = false;
    for (std::size_t i = awaiting_count_; i-- > 0;) {
      slab& s = *all_[i];
      if (!tracker_.available(s.owner, s.away_list, s.away_until)) continue;
      any = true;
      bool const had_free = s.has_free();
      // The owner may only have waited for it: for others it is done when what the owner does from now on is.
      if (!tracker_.is_done(s.away_list, s.away_until)) s.freed = tracker_.number_free(s.owner);
      free_bytes_ += s.away() * s.slot_bytes();
      forget_away(s);
      s.take_back();
      if (!had_free) lists_.link(s);
      if (s.live() == 0) give_whole(s);
    }
    return any;
  }

  /// Gives every slab without a live slot back to the heap.
  void give_whole() noexcept {
    lists_.for_each_whole([this](slab& s) {
      if (s.live() == 0 && s.away() == 0) give_whole(s);
    });
  }
  /// True if a slab went back, or was taken apart, since the last call.
  bool some_went() noexcept { return std::exchange(some_went_, false); }
  /// Makes blocks of the heap of a slab's slots, live ones as they are, and forgets the slab. False, and nothing
  /// changed, if there is no host memory.
  bool take_apart(slab& s) noexcept try {
    heap_.reserve_pieces(count_runs(s));
    drop_from_lists(s);
    bool const is_done = tracker_.is_done(s.owner, s.freed);
    block_id const id = heap_.find_live(s.begin());
    heap_.take_apart(id);
    for (slab::slot end = s.slot_count(); end != 0;) {
      slab::run const run = s.run_before(end);
      block_id const piece = run.first == 0 ? id : heap_.cut_end(id, run.count * s.slot_units());
      if (run.state == slab::state::live)
        heap_.enlist_piece(piece, s.requested(run.first), s.alignment_log(run.first));
      else if (run.state == slab::state::away)
        heap_.free_piece(piece, s.away_list, tracker_.issued(s.away_list));
      else
        heap_.free_piece(piece, is_done ? shared : s.owner, is_done ? sequence_number::none : tracker_.issued(s.owner));
      end = run.first;
    }
    slab::drop(&s);
    return true;
  } catch (std::bad_alloc const&) {
    return false;
  }
  /// The same for every slab that `which(slab)` accepts; true if there was any.
  template <class Which>
  bool take_apart_if(Which which) noexcept {
    bool any = false;
    for (std::size_t i = count_; i-- > 0;)
      if (i < count_ && which(*all_[i])) any = take_apart(*all_[i]) || any;
    return any;
  }

  /// True if `which(list)` accepts a list that has slabs.
  template <class Which>
  bool any_owner(Which which) const noexcept {
    return lists_.any_owner(which);
  }

  /// Slabs of a list, and those that wait for what was freed in it: it must not be forgotten.
  bool needs(list_id list) const noexcept { return lists_.is_owner(list) || lists_.is_awaited(list); }
  bool awaits(list_id list) const noexcept { return lists_.is_awaited(list); }

  std::size_t count() const noexcept { return count_; }
  /// Bytes that are free for everyone once a slab goes back.
  std::size_t free_bytes() const noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count_; ++i)
      if (tracker_.is_done(all_[i]->owner, all_[i]->freed)) bytes += all_[i]->free() * all_[i]->slot_bytes();
    return bytes;
  }
  std::size_t host_bytes() const noexcept {
    return host_bytes_ + map_.host_bytes() + all_.bytes() + lists_.host_bytes();
  }
  /// The slab that a live block of the heap is, or null.
  slab const* of_block(block_id id) const noexcept {
    std::uintptr_t const begin = heap_.blocks()[id].address();
    slab const* const s = map_.find(begin).in();
    return s != nullptr && s->begin() == begin ? s : nullptr;
  }

 private:
  // A slab that serves few costs more than it gives.
  static constexpr unsigned blocks_before_slabs = 16;
  static constexpr std::size_t least_slots_a_slab = 15, least_slab_bytes = std::size_t{16} << 10;
  static constexpr std::size_t share_of_class = 4;
  // What may lie free in slabs before there are more of them.
  static constexpr std::size_t share_of_held = 32, free_bytes_at_least = std::size_t{16} << 20;

  [[gnu::always_inline]] void take_in(place const& p) noexcept {
    bool const had_free = p.in->has_free();
    free_bytes_ += p.in->slot_bytes();
    p.in->give(p.slot);
    if (!had_free) [[unlikely]]
      lists_.link(*p.in);
  }
  /// One slab without a live slot is kept for each class of a stream: one that is the only one with free ones.
  [[gnu::always_inline]] static bool may_stay_whole(slab const& s) noexcept {
    return slab_lists::is_only_one(s) && s.away() == 0;
  }
  /// No slot is live any more, and it is not the only slab with free ones, or some are away.
  [[gnu::noinline]] void emptied(slab& s) noexcept {
    if (s.away() != 0)
      take_apart(s);
    else
      give_whole(s);
  }
  static std::size_t count_runs(slab const& s) noexcept {
    std::size_t runs = 0;
    for (slab::slot end = s.slot_count(); end != 0; end = s.run_before(end).first) ++runs;
    return runs;
  }
  void give_whole(slab& s) noexcept {
    drop_from_lists(s);
    bool const is_done = tracker_.is_done(s.owner, s.freed);
    list_id const where = is_done ? shared : s.owner;
    heap_.give(heap_.find_live(s.begin()), where, is_done ? sequence_number::none : tracker_.issued(s.owner));
    slab::drop(&s);
  }
  void await(slab& s, list_id where) noexcept {
    s.away_list = where;
    change_places(s, awaiting_count_++);
    lists_.await(where);
  }
  void forget_away(slab& s) noexcept {
    if (s.away() == 0) return;
    lists_.end_await(s.away_list);
    change_places(s, --awaiting_count_);
  }
  /// Among all slabs.
  void change_places(slab& s, std::size_t with) noexcept {
    slab& other = *all_[with];
    all_[other.index = s.index] = &other;
    all_[s.index = static_cast<std::uint32_t>(with)] = &s;
  }
  void drop_from_lists(slab& s) noexcept {
    some_went_ = true;
    lists_.remove(s);
    forget_away(s);
    host_bytes_ -= s.host_bytes();
    free_bytes_ -= s.free() * s.slot_bytes();
    map_.remove(s);
    change_places(s, --count_);
  }

  growable_heap& heap_;
  stream_tracker& tracker_;
  slab_map map_;
  slab_lists lists_;
  grown_array<slab*> all_;  // those with slots that are away first
  std::size_t count_ = 0, awaiting_count_ = 0;
  std::size_t host_bytes_ = 0;  // of slabs
  std::size_t free_bytes_ = 0;  // in slabs
  bool some_went_ = false;
};

}  // namespace weir::detail
