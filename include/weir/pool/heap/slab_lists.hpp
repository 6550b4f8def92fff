#pragma once
// Which slabs each free list's stream has: those with free slots, by class, one that is all free, and how many.

#include <weir/pool/heap/sequence.hpp>
#include <weir/pool/heap/slab.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir::detail {

/// Links the slabs of each owner and class that have a free slot, so that one is at hand, and counts those of each
/// owner, and those that wait for each list. Makes and drops none, and knows nothing of what is done. Not thread-safe.
class slab_lists {
 public:
  static constexpr unsigned classes = slab::classes;

  slab_lists() : lists_(1), owners_(1) {}
  ~slab_lists() {
    for (std::size_t i = 0; i < lists_.size(); ++i) delete lists_[i].classes;
  }
  slab_lists(slab_lists const&) = delete;
  slab_lists& operator=(slab_lists const&) = delete;

  /// Room for free lists below `lists`. May throw `std::bad_alloc`.
  void reserve(std::size_t lists) {
    owners_.grow(lists);
    lists_.grow(lists);
  }
  /// Room for slabs of this list. May throw `std::bad_alloc`.
  void open(list_id list) {
    if (lists_[list].classes != nullptr) return;
    lists_[list].classes = new by_class;
    ++open_count_;
  }
  /// The list has no slab, and may come to stand for another stream.
  void close(list_id list) noexcept {
    if (lists_[list].classes != nullptr) --open_count_;
    delete std::exchange(lists_[list].classes, nullptr);
  }

  /// A slab with a free slot of the list's own; null if there is none. Null for any list without slabs.
  [[gnu::always_inline]] slab* with_free(list_id list, unsigned size_class) noexcept {
    by_class* const own = lists_[list].classes;
    return own == nullptr ? nullptr : own->with_free[size_class];
  }
  /// Slots in all the slabs of this class that the list has.
  std::size_t slot_count(list_id list, unsigned size_class) const noexcept {
    by_class const* const own = lists_[list].classes;
    return own == nullptr ? 0 : own->slot_counts[size_class];
  }

  /// A new slab, of an open list.
  void add(slab& s) noexcept {
    stream_slabs& of = lists_[s.owner];
    if (of.owned++ == 0) {
      of.place = owner_count_;
      owners_[owner_count_++] = s.owner;
    }
    of.classes->slot_counts[s.size_class()] += s.slot_count();
    keep_whole(s);
    link(s);
  }
  void remove(slab& s) noexcept {
    if (s.has_free()) unlink(s);
    stream_slabs& of = lists_[s.owner];
    if (--of.owned == 0) {
      owners_[of.place] = owners_[--owner_count_];
      lists_[owners_[of.place]].place = of.place;
    }
    by_class& own = *of.classes;
    if (own.whole[s.size_class()] == &s) own.whole[s.size_class()] = nullptr;
    own.slot_counts[s.size_class()] -= s.slot_count();
  }
  /// A slab has a free slot from now on, or none any more.
  [[gnu::always_inline]] void link(slab& s) noexcept {
    slab*& head = first(s);
    s.previous = nullptr;
    s.next = head;
    if (head != nullptr) head->previous = &s;
    head = &s;
  }
  [[gnu::always_inline]] void unlink(slab& s) noexcept {
    (s.previous == nullptr ? first(s) : s.previous->next) = s.next;
    if (s.next != nullptr) s.next->previous = s.previous;
  }
  /// True if it is the only one of its owner and class with a free slot.
  [[gnu::always_inline]] static bool is_only_one(slab const& s) noexcept {
    return s.next == nullptr && s.previous == nullptr;
  }
  /// It has no live slot now, and `for_each_whole` is to find it.
  [[gnu::always_inline]] void keep_whole(slab& s) noexcept { lists_[s.owner].classes->whole[s.size_class()] = &s; }
  /// Calls `f(slab)`, which may remove that, for each that was kept so: it may have live slots again.
  template <class F>
  void for_each_whole(F f) noexcept {
    for (std::size_t i = owner_count_; i-- > 0;)
      for (slab* const s : lists_[owners_[i]].classes->whole) {
        if (s != nullptr) f(*s);
        if (i >= owner_count_) break;  // that was the list's last
      }
  }
  /// True if `which(list)` accepts a list that has slabs.
  template <class Which>
  bool any_owner(Which which) const noexcept {
    bool any = false;
    for (std::size_t i = 0; i < owner_count_ && !any; ++i) any = which(owners_[i]);
    return any;
  }

  /// One more slab, or one less, waits for what was freed in a list.
  void await(list_id list) noexcept { ++lists_[list].awaited; }
  void end_await(list_id list) noexcept { --lists_[list].awaited; }
  bool is_awaited(list_id list) const noexcept { return lists_[list].awaited != 0; }
  /// True if it has slabs.
  bool is_owner(list_id list) const noexcept { return lists_[list].owned != 0; }

  std::size_t host_bytes() const noexcept { return open_count_ * sizeof(by_class) + lists_.bytes() + owners_.bytes(); }

 private:
  struct by_class {
    slab* with_free[classes] = {};
    slab* whole[classes] = {};  // without a live slot when it was put here; null if it went
    std::uint32_t slot_counts[classes] = {};
  };
  struct stream_slabs {
    by_class* classes = nullptr;  // none until the stream asks for small blocks
    std::uint32_t owned = 0;      // slabs
    std::uint32_t awaited = 0;    // slabs with slots that were freed in this list
    std::size_t place = 0;        // among the owners of slabs
  };

  slab*& first(slab const& s) noexcept { return lists_[s.owner].classes->with_free[s.size_class()]; }

  grown_array<stream_slabs> lists_;
  grown_array<list_id> owners_;  // of slabs
  std::size_t owner_count_ = 0;
  std::size_t open_count_ = 0;
};

}  // namespace weir::detail
