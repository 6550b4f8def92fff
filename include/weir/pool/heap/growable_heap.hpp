#pragma once
// A heap that also has addresses without memory behind them: where memory should come to, and where it can go from.

#include <weir/pool/heap/block_heap.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Addresses without memory, *holes*, are free blocks in a list of their own that nobody takes from. They are whole
/// chunks, as all memory that comes and goes is; `chunk` is their size in bytes. Blocks whose memory is being changed
/// are *held*: neither live nor free, in no list, merged with nothing. Not thread-safe.
class growable_heap : public block_heap {
 public:
  /// Adds a range of addresses without memory; `holes` is the list for such from now on. Returns its first block.
  /// May throw `std::bad_alloc`, and then nothing has changed.
  block_id add_range(std::uintptr_t address, units size, list_id holes, sequence_number sequence) {
    free_.reserve_size(size);
    holes_ = holes;
    block_id const id = table_.add(address, size);
    free_.put(id, holes_, sequence);
    return id;
  }

  /// A place for a request: [begin, end), inside of [from, to), which is larger only where a hole is cut at its chunks.
  struct window {
    std::uintptr_t from = 0, begin = 0, end = 0, to = 0;
    block_id first = 0;                     ///< begins in this block; 0: there is no place
    std::size_t holes = 0;                  ///< blocks without memory in it
    std::size_t missing = ~std::size_t{0};  ///< their bytes in it
  };

  /// The place, among holes and free blocks that `may_use(id)` accepts, that takes the fewest chunks; of those the one
  /// with the lowest address. Looks at every hole and the free blocks around it.
  template <class MayUse>
  window best_window(request const& r, std::size_t chunk, MayUse may_use) const {
    auto const usable = [&](block_id id) {
      return id != 0 && table_[id].is_free() && (table_[id].list == holes_ || may_use(id));
    };
    place best;
    free_.by_size(holes_).any_of(table_, [&](block_id hole) {
      block_id first = hole;
      while (usable(table_[first].left)) {
        first = table_[first].left;
        if (table_[first].list == holes_) return false;  // seen when that one is looked at
      }
      std::uintptr_t end = end_of(first);
      for (block_id id = table_[first].right; usable(id); id = table_[id].right) end = end_of(id);
      look_at_run(best, first, end, r, chunk);
      return false;
    });
    return window_at(best, std::size_t{r.size} * unit_bytes, chunk);
  }

  /// Takes all of a window out of its lists and holds it, cut at its four ends; calls `on_hole(address, bytes)` for
  /// each piece without memory, in rising order. Needs room reserved. Returns the first piece.
  template <class F>
  block_id hold(window const& w, F on_hole) noexcept {
    block_id first = 0, id = w.first;
    for (std::uintptr_t at = w.from; at < w.to; id = table_[id].right) {
      std::uintptr_t const border = at < w.begin ? w.begin : at < w.end ? w.end : w.to;
      std::uintptr_t const next = end_of(id) < border ? end_of(id) : border;
      id = hold_part(id, at, next);
      if (first == 0) first = id;
      if (table_[id].list == holes_) on_hole(at, std::size_t{next - at});
      at = next;
    }
    return first;
  }
  /// A held window that has memory everywhere now: hands out what the request needs, and puts what is left over into
  /// `rest`. Needs room reserved. `first` as `hold` returned it. `number(list)` gives sequence numbers.
  template <class Number>
  block_id take_held(block_id first, window const& w, request const& r, list_id rest, Number number) noexcept {
    block_id const taken = w.from < w.begin ? table_[first].right : first;
    while (end_of(taken) < w.end) table_.merge_right(taken);
    block_id const behind = w.end < w.to ? table_[taken].right : 0;
    table_.enlist(taken, r.requested, r.alignment_log);
    if (taken != first) put_back_held(first, rest, number);
    if (behind != 0) put_back_held(behind, rest, number);
    return taken;
  }
  /// Puts a held window back: what was shared to where it was, holes into `holes`, which is their list unless they were
  /// filled, the rest into `own`.
  template <class Number>
  void put_back(block_id first, window const& w, list_id holes, list_id own, Number number) noexcept {
    for (block_id id = first, next = 0; id != 0; id = next) {
      next = end_of(id) < w.to ? table_[id].right : 0;  // held too: it merges with nothing yet
      list_id const was = table_[id].list;
      put_back_held(id, was == holes_ ? holes : was == shared ? shared : own, number);
    }
  }

  /// Whole chunks in one free block, [begin, end).
  struct idle_chunks {
    block_id block = 0;
    std::uintptr_t begin = 0, end = 0;
  };
  /// Calls `f(idle_chunks)` for each block in `list` that has some, larger ones first, until that says `true`.
  template <class F>
  void for_each_idle(list_id list, std::size_t chunk, F f) const {
    free_.by_size(list).any_from_largest(table_, static_cast<units>(chunk / unit_bytes), ~units{0}, [&](block_id id) {
      std::uintptr_t const begin = up(table_[id].address(), chunk), end = down(end_of(id), chunk);
      return begin < end && f(idle_chunks{id, begin, end});
    });
  }
  /// Holds what was found so, or its end. Needs room reserved. Returns the piece.
  block_id hold(idle_chunks const& idle) noexcept { return hold_part(idle.block, idle.begin, idle.end); }
  /// A held piece has memory, which everyone may have.
  void share_held(block_id id) noexcept { put_merged(id, shared, sequence_number::none); }
  /// The same for the list that may have it.
  template <class Number>
  void put_back_held(block_id id, list_id list, Number number) noexcept {
    put_merged(id, list, list == shared ? sequence_number::none : number(list));
  }
  /// A held piece is a hole.
  void empty_held(block_id id, sequence_number sequence) noexcept { put_merged(id, holes_, sequence); }

  /// While a range is parked nothing in it is free: free blocks are held, and live ones count as captured by the list
  /// of holes, so that none is found but by who looks for that.
  void park(block_id first) noexcept {
    for (block_id id = first; id != 0; id = table_[id].right) {
      block& b = table_[id];
      if (b.state() == block_state::live && b.captured == shared) b.captured = holes_;
      if (!b.is_free() || b.list == holes_) continue;
      free_.pull(id);
      b.set_held(b.list);
    }
  }
  /// Takes back a live block of a range that is parked, to be free in the list after `unpark`.
  void give_parked(block_id id, list_id list) noexcept {
    table_.delist(id);
    table_[id].captured = shared;
    table_[id].set_held(list);
  }
  /// Free blocks are free again: those in lists that `is_captured(list)` where they were, all others for everyone,
  /// since their work is done. `number(list)` gives sequence numbers.
  template <class IsCaptured, class Number>
  void unpark(block_id first, IsCaptured is_captured, Number number) noexcept {
    for (block_id id = first, next = 0; id != 0; id = next) {
      next = table_[id].right;
      block& b = table_[id];
      if (b.state() == block_state::live && b.captured == holes_) b.captured = shared;
      if (b.state() != block_state::held) continue;
      if (is_captured(b.list))
        put_merged(id, b.list, number(b.list));
      else
        share_held(id);
    }
  }

  /// Calls `f(block)` for all that is held.
  template <class F>
  void for_each_held(block_id first, F f) const {
    for (block_id id = first; id != 0; id = table_[id].right)
      if (table_[id].state() == block_state::held) f(table_[id]);
  }
  /// Calls `f(address, bytes)` for all that has memory, in pieces as large as can be; `first`: the range's first block.
  template <class F>
  void for_each_with_memory(block_id first, F f) const {
    std::uintptr_t begin = table_[first].address();
    for (block_id id = first; id != 0; id = table_[id].right) {
      bool const is_hole = table_[id].is_free() && table_[id].list == holes_;
      std::uintptr_t const end = is_hole ? table_[id].address() : end_of(id);
      if ((is_hole || table_[id].right == 0) && begin < end) f(begin, std::size_t{end - begin});
      if (is_hole) begin = end_of(id);
    }
  }
  /// Calls `f(address, bytes)` for all that is live, as it was asked for, in rising order.
  template <class F>
  void for_each_live(block_id first, F f) const {
    for (block_id id = first; id != 0; id = table_[id].right)
      if (table_[id].state() == block_state::live) f(table_[id].address(), std::size_t{table_[id].requested()});
  }
  /// True if some of a range or a segment is free, but not known to be done, in a list that `counts(list)`.
  template <class Counts>
  bool is_pending(block_id first, Counts counts) const noexcept {
    for (block_id id = first; id != 0; id = table_[id].right)
      if (block const& b = table_[id]; b.is_free() && b.list != shared && b.list != holes_ && counts(b.list))
        return true;
    return false;
  }
  bool is_pending(block_id first) const noexcept {
    return is_pending(first, [](list_id) { return true; });
  }
  using block_heap::largest_free;
  /// Bytes of the largest free block. Looks at every list.
  std::size_t largest_free() const noexcept {
    std::size_t most = 0;
    for (std::size_t i = 0; i < free_.count(); ++i) {
      list_id const list = static_cast<list_id>(i);
      std::size_t const here = list == holes_ ? 0 : block_heap::largest_free(list);
      if (here > most) most = here;
    }
    return most;
  }

 private:
  static constexpr std::uintptr_t down(std::uintptr_t p, std::size_t to) noexcept { return p & ~(to - 1); }
  static constexpr std::uintptr_t up(std::uintptr_t p, std::size_t to) noexcept { return down(p + to - 1, to); }
  static constexpr units units_of(std::size_t bytes) noexcept { return static_cast<units>(bytes / unit_bytes); }
  std::uintptr_t end_of(block_id id) const noexcept { return table_[id].address() + table_[id].bytes(); }

  /// Where a request could begin, and the bytes without memory that it would take there.
  struct place {
    std::uintptr_t begin = 0;
    std::size_t missing = ~std::size_t{0};
    block_id first = 0;  // before it, or the one that it is in; 0: there is none
  };
  /// Counts bytes without memory, among free blocks that follow each other, below addresses that only rise.
  struct holes_below {
    block_id at = 0;
    std::size_t before = 0;  // in the blocks in front of that

    std::size_t count(growable_heap const& heap, std::uintptr_t address) noexcept {
      for (; at != 0 && heap.end_of(at) <= address; at = heap.table_[at].right) before += heap.hole_bytes(at);
      bool const is_inside = at != 0 && heap.table_[at].address() < address && heap.hole_bytes(at) != 0;
      return before + (is_inside ? address - heap.table_[at].address() : 0);
    }
  };
  std::size_t hole_bytes(block_id id) const noexcept { return table_[id].list == holes_ ? table_[id].bytes() : 0; }

  /// Looks at places of one size in one run of free blocks, from its first block to its end, as they rise.
  struct rising_places {
    growable_heap const& heap;
    block_id first;
    std::uintptr_t end;
    std::size_t size, chunk;
    holes_below in_front{first}, up_to_end{first};

    /// `id`: in front of the place, or the block that it begins in.
    void look_at(place& best, block_id id, std::uintptr_t begin) noexcept {
      if (begin > end || end - begin < size) return;
      std::uintptr_t const to = up(begin + size, chunk);
      std::size_t const missing = up_to_end.count(heap, to < end ? to : end) - in_front.count(heap, down(begin, chunk));
      if (missing < best.missing || (missing == best.missing && begin < best.begin)) best = {begin, missing, id};
    }
  };
  /// The free blocks from `first` up to `end` follow each other. A place that begins where a block begins, or ends
  /// where one with memory ends, leaves the least over.
  void look_at_run(place& best, block_id first, std::uintptr_t end, request const& r, std::size_t chunk) const {
    std::uintptr_t const begin = table_[first].address(), size = std::size_t{r.size} * unit_bytes;
    if (end - begin < size) return;
    rising_places beginning{*this, first, end, size, chunk}, ending = beginning;
    block_id at = first;  // where the place that ends with `id` begins
    for (block_id id = first; id != 0 && table_[id].address() < end; id = table_[id].right) {
      beginning.look_at(best, id, up(table_[id].address(), r.alignment));
      if (table_[id].list == holes_ || end_of(id) - begin < size) continue;
      std::uintptr_t const last = down(end_of(id) - size, r.alignment);
      if (last < begin) continue;
      while (end_of(at) <= last) at = table_[at].right;
      ending.look_at(best, at, last);
    }
  }
  /// All of the place that was found.
  window window_at(place const& found, std::size_t size, std::size_t chunk) const noexcept {
    if (found.first == 0) return {};
    std::uintptr_t const begin = found.begin, end = begin + size;
    block_id id = found.first;
    while (end_of(id) <= begin) id = table_[id].right;
    window w{.from = begin, .begin = begin, .end = end, .to = end, .first = id, .missing = found.missing};
    for (; id != 0 && table_[id].address() < end; id = table_[id].right) {
      if (table_[id].list != holes_) continue;
      std::uintptr_t const from = down(begin, chunk), to = up(end, chunk);
      w.from = lesser(w.from, table_[id].address() < from ? from : table_[id].address());
      w.to = greater(w.to, end_of(id) < to ? end_of(id) : to);
      ++w.holes;
    }
    return w;
  }

  /// Cuts [begin, end) out of a free block and holds it; what is left stays free where it is.
  block_id hold_part(block_id id, std::uintptr_t begin, std::uintptr_t end) noexcept {
    list_id const list = table_[id].list;
    if (std::uintptr_t const last = end_of(id); end < last) {
      units const before = table_[id].size;
      free_.cut(id, before, table_.split(id, units_of(last - end)));
    }
    block_id part = id;
    if (units const before = table_[id].size; table_[id].address() < begin) {
      part = table_.split(id, units_of(end - begin));
      free_.shrunk(id, before);
    } else {
      free_.pull(id);
    }
    table_[part].set_held(list);
    return part;
  }

  list_id holes_{0xffff};  // none yet: lists end before
};

}  // namespace weir::detail
