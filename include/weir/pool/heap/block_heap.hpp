#pragma once
// All segments of a pool, cut into blocks: which block serves a request, and where a freed one goes.

#include <weir/pool/heap/block_request.hpp>
#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/free_lists.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Free blocks stand in free lists. Free list 0, `shared`, has those whose work is known to be done: everybody may take
/// them. Every other free list belongs to a stream and has what was freed on it, each block with the sequence number of
/// its latest free (see `free_lists`). Free neighbours of one free list are always merged. Knows nothing of streams or
/// CUDA; not thread-safe.
class block_heap {
 public:
  using request = block_request;

  block_heap() : free_(table_) {}
  block_heap(block_heap const&) = delete;
  block_heap& operator=(block_heap const&) = delete;

  /// Has free lists below `count`. May throw `std::bad_alloc`.
  void reserve_lists(std::size_t count) { free_.reserve_lists(count); }
  /// Makes room so that one take, one add and any number of gives need no host memory. May throw `std::bad_alloc`.
  void reserve() {
    if (is_short_of_room()) [[unlikely]]
      add_room();
  }
  /// True if `reserve` has something to do.
  bool is_short_of_room() const noexcept { return table_.is_short_of(records_a_call); }
  /// The same, so that room lasts: grows by a step where less than an eighth of all blocks, or 128, have room. May
  /// throw `std::bad_alloc`.
  void reserve_share() {
    add_room_for(greater(least_share, table_.end() / 8));
    table_.reserve(0, greater(least_share, table_.live() / 8));
  }
  /// See `free_lists`. May throw `std::bad_alloc`.
  void keep_ages() { free_.keep_ages(); }

  /// Adds a segment as one shared block; returns its first block, which names the segment from now on. May throw
  /// `std::bad_alloc`, and then nothing has changed.
  block_id add_segment(std::uintptr_t address, units size) {
    free_.reserve_size(size);
    block_id const id = table_.add(address, size);
    free_.put(id, shared, sequence_number::none);
    return id;
  }
  /// True if all of the segment is free and its work done.
  bool is_idle(block_id segment) const noexcept {
    block const& b = table_[segment];
    return b.is_free() && b.list == shared && is_whole(segment);
  }
  /// True if every block of the segment that `id` is part of is free, in a free list that `may_end(list)` accepts.
  template <class MayEnd>
  bool is_all_free(block_id id, MayEnd may_end) const noexcept {
    auto const ends = [&](block_id b) { return table_[b].is_free() && may_end(table_[b].list); };
    block_id left = id, right = id;
    bool all = ends(id);
    while (all && (left != 0 || right != 0)) {  // by turns, so that the nearer of two that are not is found
      if (left != 0) left = table_[left].left, all = left == 0 || ends(left);
      if (all && right != 0) right = table_[right].right, all = right == 0 || ends(right);
    }
    return all;
  }
  /// Forgets an idle segment.
  void remove_segment(block_id segment) noexcept {
    free_.pull(segment);
    table_.drop(segment);
  }

  /// A free block of `list` that fits, or 0.
  [[gnu::always_inline]] block_id find(list_id list, request const& r) const noexcept {
    return find(list, r, size_class::of(r.span()));
  }
  /// The same, however many blocks of nearly the size do not fit: looks at all of the request's own size class.
  block_id find_hidden(list_id list, request const& r) const noexcept {
    return free_.by_size(list).find_in_class(table_, r.span(), [&](block const& b) { return r.may_have(b.size); });
  }

  /// Hands out the end of the free block `id`, cut to size; what is left stays where it was, under its number.
  [[gnu::noinline]] block_id take(block_id id, request const& r) noexcept {
    if (r.alignment != unit_bytes) [[unlikely]]
      cut_for_alignment(id, r);
    units const has = table_[id].size;
    units const wanted = has < r.max_split ? r.size : has - r.front_of(table_[id].address());
    if (wanted == has) {
      free_.pull(id);
      return hand_out(id, r);
    }
    block_id const taken = table_.split(id, wanted);
    free_.shrunk(id, has);
    return hand_out(taken, r);
  }

  /// As `take` of a shared block, but ends it in a free block of `list` that begins where `id` ends: a stream that
  /// outgrows its own latest block extends it instead of leaving it as a hole.
  block_id take_extending(list_id list, block_id id, request const& r) noexcept {
    block_id const own = table_[id].right;
    bool const extends = own != 0 && list != shared && r.alignment == unit_bytes && r.size < r.max_split &&
                         table_[own].is_free() && table_[own].list == list && table_[own].size < r.size;
    if (!extends) return take(id, r);
    units const has = table_[id].size;  // more than is missing, since it would serve the request alone
    free_.pull(own);
    table_.move_border(id, r.size - table_[own].size);
    free_.shrunk(id, has);
    return hand_out(own, r);
  }

  /// Hands out of a block of `list` and one that is everyone's whichever fits more tightly; 0 if neither does.
  [[gnu::always_inline]] block_id take_tightest(list_id list, request const& r) noexcept {
    size_class const sought = size_class::of(r.span());
    block_id const own = list == shared ? 0 : find(list, r, sought);
    if (own != 0 && table_[own].size == r.size) [[likely]]
      return take(own, r);
    block_id const done = find(shared, r, sought);
    if (own != 0 && (done == 0 || table_[own].size < table_[done].size)) return take(own, r);
    return done == 0 ? 0 : take_extending(list, done, r);
  }
  /// The same, but an aligned request may also have a block that is smaller than its span, where it lies so that the
  /// request fits: else what an aligned block leaves where it was would serve no other. Looks at a few of these.
  [[gnu::always_inline]] block_id take_fitting(list_id list, request const& r) noexcept {
    block_id const id = take_tightest(list, r);
    return id != 0 || r.alignment == unit_bytes ? id : take_aligned(list, r);
  }

  /// Takes back a live block: into `list`, merged with its neighbours there. Sequence numbers must not go down within a
  /// free list.
  [[gnu::always_inline]] block_id give(block_id id, list_id list, sequence_number sequence) noexcept {
    table_.delist(id);
    return put_merged(id, list, sequence);
  }

  /// See `block_table`.
  void set_taker(block_id id, list_id list) noexcept { table_.set_taker(id, list); }
  void set_cached(block_id id, block_id next) noexcept { table_.set_cached(id, next); }
  [[gnu::always_inline]] std::uintptr_t reuse(block_id id, std::uint64_t requested, live_mark mark) noexcept {
    return table_.reuse(id, requested, mark);
  }

  // ---- Taking a live block apart into several: from its end on, each piece live or free as the caller says.

  /// Makes room for as many pieces. May throw `std::bad_alloc`.
  void reserve_pieces(std::size_t count) {
    while (table_.is_short_of(count)) add_room_for(count);
    table_.reserve(count, count);
  }
  /// From now on `id` is no live block any more, and none yet that is free: it has to become one by `enlist_piece` or
  /// `free_piece`, as all that is cut off it. Needs room reserved.
  void take_apart(block_id id) noexcept { table_.delist(id); }
  /// Cuts the last `size` units off it.
  block_id cut_end(block_id id, units size) noexcept { return table_.split(id, size); }
  void enlist_piece(block_id id, std::uint64_t requested, unsigned alignment_log) noexcept {
    table_.enlist(id, requested, alignment_log);
  }
  block_id free_piece(block_id id, list_id list, sequence_number sequence) noexcept {
    return put_merged(id, list, sequence);
  }

  /// Everything freed in `list` up to `sequence` is done: it becomes shared; without ages only all of the free list
  /// together.
  void complete(list_id list, sequence_number sequence) noexcept {
    while (block_id const id = free_.pull_until(list, sequence)) put_merged(id, shared, sequence_number::none);
  }

  /// Adjacent free blocks that are together large enough for a request.
  struct run {
    block_id first = 0;      ///< 0: there is none
    std::uint64_t size = 0;  ///< units
  };

  /// A run of blocks that `may_use(id)` accepts, at least one of them of free list `from`, which is not
  /// `shared`. Looks at every block of `from`, and at most at so many around each; only then at each longer run, once.
  template <class MayUse>
  run find_run(list_id from, request const& r, MayUse may_use) const {
    auto const usable = [&](block_id id) {
      return id != 0 && table_[id].is_free() && table_[id].size < r.max_split && may_use(id);
    };
    auto const is_behind_one_of_its_run = [&](block_id id) {
      block_id left = table_[id].left;
      while (usable(left) && table_[left].list != from) left = table_[left].left;
      return usable(left);
    };
    run found;
    bool is_some_longer = false;
    auto const finds = [&](block_id id, unsigned looks) {
      if (!usable(id)) return false;
      found = {id, table_[id].size};
      block_id next = table_[id].right;
      for (; found.size < r.span() && looks != 0 && usable(next); next = table_[next].right, --looks)
        found.size += table_[next].size;
      for (; found.size < r.span() && looks != 0 && usable(table_[found.first].left); --looks)
        found.size += table_[found.first = table_[found.first].left].size;
      is_some_longer = is_some_longer || looks == 0;
      return found.size >= r.span();
    };
    tlsf_index const& all = free_.by_size(from);
    if (all.any_of(table_, [&](block_id id) { return finds(id, looks_for_run); })) return found;
    bool const any = is_some_longer &&
                     all.any_of(table_, [&](block_id id) { return !is_behind_one_of_its_run(id) && finds(id, ~0u); });
    return any ? found : run{};
  }
  template <class F>
  void for_each_in(run const& blocks, F f) const {
    std::uint64_t left = blocks.size;
    for (block_id id = blocks.first; left != 0; id = table_[id].right) {
      left -= table_[id].size;
      f(id);
    }
  }
  /// Makes one block of a run, in `list` and with a new `sequence`.
  block_id merge(run const& blocks, list_id list, sequence_number sequence) noexcept {
    block_id const first = blocks.first;
    free_.pull(first);
    while (table_[first].size < blocks.size) {
      free_.pull(table_[first].right);
      table_.merge_right(first);
    }
    return put_merged(first, list, sequence);
  }

  /// A block that is live belongs to a stream capture, of which `list` is one; `shared`: to none, as when it was handed
  /// out.
  void set_captured(block_id id, list_id list) noexcept { table_[id].captured = list; }
  /// Blocks of captures whose free list `is_exiting(list)` belong to none any more. Looks at every block.
  template <class IsOver>
  void forget_captured(IsOver is_exiting) noexcept {
    for (std::size_t id = 1; id < table_.end(); ++id)
      if (block& b = table_[static_cast<block_id>(id)]; b.captured != shared && is_exiting(b.captured))
        b.captured = shared;
  }

  block_table const& blocks() const noexcept { return table_; }
  /// The live block at an address, or 0.
  [[gnu::always_inline]] block_id find_live(std::uintptr_t address) noexcept { return table_.find(address); }
  [[gnu::always_inline]] block_id find_live(std::uintptr_t address, unsigned alignment_log) noexcept {
    return table_.find(address, alignment_log);
  }
  [[gnu::always_inline]] block_id find_live_at_once(std::uintptr_t address, live_mark mark) const noexcept {
    return table_.find_at_once(address, mark);
  }
  /// The sequence number up to which a free block's free list has to be done before others may have it.
  sequence_number sequence(block_id id) const noexcept { return free_.sequence(id); }

  std::size_t list_count() const noexcept { return free_.count(); }
  /// Free bytes in a free list.
  std::size_t free_bytes(list_id list) const noexcept { return free_.free_units(list) * unit_bytes; }
  /// True if it has some, which takes less to say.
  bool has_free(list_id list) const noexcept { return free_.has_free(list); }
  /// The first list from `list` on that has some, and is below `end`; else `shared`.
  list_id next_with_free(list_id list, std::size_t end) const noexcept { return free_.next_with_free(list, end); }
  /// Bytes of the largest free block in a free list; looks at one size class.
  std::size_t largest_free(list_id list) const noexcept {
    return std::size_t{free_.by_size(list).largest(table_)} * unit_bytes;
  }
  std::size_t host_bytes() const noexcept { return table_.host_bytes() + free_.host_bytes(); }

  /// Checks everything; slow, for tests.
  bool valid() const {
    if (!table_.valid() || !free_.valid()) return false;
    for (std::size_t list = 0; list < free_.count(); ++list) {
      bool const unmerged = free_.by_size(static_cast<list_id>(list)).any_of(table_, [&](block_id id) {
        block_id const right = table_[id].right;
        return right != 0 && table_[right].is_free() && table_[right].list == table_[id].list;
      });
      if (unmerged) return false;
    }
    return true;
  }

 protected:
  block_id put_merged(block_id id, list_id list, sequence_number sequence) noexcept {
    auto const joins = [&](block_id other) {
      return other != 0 && table_[other].is_free() && table_[other].list == list;
    };
    if (block_id const right = table_[id].right; joins(right)) {
      free_.pull(right);
      table_.merge_right(id);
    }
    block_id const left = table_[id].left;
    if (!joins(left)) {
      free_.put(id, list, sequence);
      return id;
    }
    units const before = table_[left].size;
    table_.merge_right(left);
    free_.grown(left, before, sequence);
    return left;
  }

  block_table table_;
  free_lists free_;

 private:
  /// True if a free block is a whole segment.
  bool is_whole(block_id id) const noexcept { return (table_[id].left | table_[id].right) == 0; }

  static constexpr std::size_t records_a_call = 4;
  static constexpr unsigned looks_for_part = 16, looks_for_place = 16, looks_for_run = 32;
  static constexpr std::size_t least_share = 128;  // else 20 live blocks take six times as long

  /// Where the class of the request's span is known. A whole segment is cut last: it may go back as it is, or serve
  /// what needs all of it.
  [[gnu::always_inline]] block_id find(list_id list, request const& r, size_class sought) const noexcept {
    block_id const id = free_.by_size(list).find(table_, r.span(), sought);
    if (id == 0 || !r.may_have(table_[id].size)) return 0;
    return is_whole(id) && table_[id].size != r.size ? find_part(list, r, id) : id;
  }
  /// Of those behind `whole` one that is no whole segment, else that one. Looks at a few.
  [[gnu::noinline]] block_id find_part(list_id list, request const& r, block_id whole) const noexcept {
    block_id const part = free_.by_size(list).find_first(table_, r.span(), looks_for_part, [&](block const& b) {
      return (b.left | b.right) != 0 && r.may_have(b.size);
    });
    return part != 0 ? part : whole;
  }

  /// Of those that `take_fitting` has besides.
  block_id find_aligned(list_id list, request const& r) const noexcept {
    block_id found = 0;
    unsigned looks = 0;
    free_.by_size(list).any_from_largest(table_, r.size, r.span() - 1, [&](block_id id) {
      block const& b = table_[id];
      if (std::uint64_t{r.front_of(b.address())} + r.size <= b.size && b.size < r.max_split) found = id;
      return found != 0 || ++looks == looks_for_place;
    });
    return found;
  }

  [[gnu::noinline]] block_id take_aligned(list_id list, request const& r) noexcept {
    block_id id = find_aligned(shared, r);
    if (id == 0 && list != shared) id = find_aligned(list, r);
    return id == 0 ? 0 : take(id, r);
  }

  [[gnu::noinline]] void add_room() { add_room_for(records_a_call); }
  /// For some of as many records, at least: what knows of blocks first, then the table, step by step as that grows.
  void add_room_for(std::size_t records) {
    if (table_.unused() < records) free_.reserve_blocks(table_.end_if_grown());
    table_.reserve(lesser(records, table_.unused() + 1));
  }

  /// Makes `id` end where the request, aligned, can end; cuts off what is behind that. Blocks kept whole stay whole.
  void cut_for_alignment(block_id id, request const& r) noexcept {
    block const& b = table_[id];
    std::uintptr_t const last = b.address() + b.bytes() - std::size_t{r.size} * unit_bytes;
    units const tail = static_cast<units>((last & (r.alignment - 1)) / unit_bytes);
    if (tail == 0 || b.size >= r.max_split) return;
    units const before = b.size;
    free_.cut(id, before, table_.split(id, tail));
  }

  [[gnu::always_inline]] block_id hand_out(block_id id, request const& r) noexcept {
    table_.enlist(id, r.requested, r.alignment_log);
    return id;
  }
};

}  // namespace weir::detail
