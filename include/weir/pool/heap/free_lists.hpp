#pragma once
// The free blocks of a pool, free list by free list: by size, and where that is needed by age.

#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/free_order.hpp>
#include <weir/pool/heap/tlsf_index.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/tailed_array.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A size index a free list, over the records of one `block_table`, and for each block the sequence number of its
/// latest free: exact once `keep_ages` was called, till then the free list's latest for all. Free list 0 needs no
/// sequence numbers and has none. Constant time but for what says otherwise. Not thread-safe.
class free_lists {
 public:
  explicit free_lists(block_table& blocks) : blocks_(blocks) { lists_.grow(1, tlsf_index::bytes_behind(largest_)); }

  /// Has free lists below `count`. May throw `std::bad_alloc`.
  void reserve_lists(std::size_t count) {
    if (keeps_ages_) ages_.reserve(0, count);
    with_free_.grow(count / bits + 1);
    lists_.grow(count, 0);
  }
  /// Blocks may be as large from now on. May throw `std::bad_alloc`.
  void reserve_size(units largest) {
    if (largest <= largest_) return;
    lists_.grow(0, tlsf_index::bytes_behind(largest));
    largest_ = largest;
  }
  /// Room for block numbers below `end`: before the table grows to that. May throw `std::bad_alloc`.
  void reserve_blocks(std::size_t end) {
    if (keeps_ages_) ages_.reserve(end, 0);
  }
  std::size_t count() const noexcept { return lists_.size(); }

  /// From now on every block has its own sequence number. Costs memory, and two cache lines more a call, and is of no
  /// use with one stream. Looks at every free block, once. May throw `std::bad_alloc`.
  void keep_ages() {
    if (keeps_ages_) return;
    ages_.reserve(blocks_.end(), lists_.size());
    for (std::size_t list = 1; list < lists_.size(); ++list)
      lists_[list].index.any_of(blocks_, [&](block_id id) {
        ages_.append(static_cast<list_id>(list), id, lists_[list].latest);
        return false;
      });
    keeps_ages_ = true;
  }

  /// Makes `id` a free block of `list`. Sequence numbers must not go down within a free list.
  [[gnu::always_inline]] void put(block_id id, list_id list, sequence_number sequence) noexcept {
    list_blocks& owner = lists_[list];
    blocks_[id].set_free(list);
    owner.index.insert(blocks_, id);
    if (owner.free == 0) [[unlikely]]
      word_of(list) |= bit_of(list);
    owner.free += blocks_[id].size;
    owner.latest = sequence;
    if (keeps_ages_ && list != shared) [[unlikely]]
      ages_.append(list, id, sequence);
  }
  /// Takes `id` out; what becomes of it is up to the caller.
  [[gnu::always_inline]] void pull(block_id id) noexcept {
    list_id const list = blocks_[id].list;
    list_blocks& owner = lists_[list];
    owner.index.remove(blocks_, id);
    take_off(owner, list, blocks_[id].size);
    if (keeps_ages_ && list != shared) [[unlikely]]
      ages_.remove(list, id);
  }

  /// `id` lost its end: it had `before` units.
  [[gnu::always_inline]] void shrunk(block_id id, units before) noexcept {
    list_blocks& owner = lists_[blocks_[id].list];
    owner.free -= before - blocks_[id].size;
    owner.index.resized(blocks_, id, before);
  }
  /// `id`, which had `before` units, has grown by a free with this sequence number. It stays in place: its size class
  /// is mostly the same.
  void grown(block_id id, units before, sequence_number sequence) noexcept {
    list_id const list = blocks_[id].list;
    list_blocks& owner = lists_[list];
    owner.index.resized(blocks_, id, before);
    owner.free += blocks_[id].size - before;
    owner.latest = sequence;
    if (!keeps_ages_ || list == shared) [[likely]]
      return;
    ages_.remove(list, id);
    ages_.append(list, id, sequence);
  }
  /// `id`, which had `before` units, was cut in two: `end` is free as it is.
  void cut(block_id id, units before, block_id end) noexcept {
    list_id const list = blocks_[id].list;
    blocks_[end].set_free(list);
    lists_[list].index.resized(blocks_, id, before);
    lists_[list].index.insert(blocks_, end);
    if (keeps_ages_ && list != shared) ages_.insert_after(list, id, end, ages_.sequence(id));
  }

  tlsf_index const& by_size(list_id list) const noexcept { return lists_[list].index; }
  /// Units in a free list.
  std::uint64_t free_units(list_id list) const noexcept { return lists_[list].free; }
  /// True if a list has free blocks: a question that reads no list.
  bool has_free(list_id list) const noexcept { return (with_free_[number_of(list) / bits] & bit_of(list)) != 0; }
  /// The first list from `list` on that has some, and is below `end`; else `shared`.
  list_id next_with_free(list_id list, std::size_t end) const noexcept {
    for (std::size_t at = number_of(list); at < end; at = (at / bits + 1) * bits) {
      std::uint64_t const rest = with_free_[at / bits] >> at % bits;
      if (rest == 0) continue;
      std::size_t const found = at + static_cast<std::size_t>(std::countr_zero(rest));
      return found < end ? static_cast<list_id>(found) : shared;
    }
    return shared;
  }
  /// The sequence number up to which a free block's free list has to be done before others may have it.
  sequence_number sequence(block_id id) const noexcept {
    return keeps_ages_ ? ages_.sequence(id) : lists_[blocks_[id].list].latest;
  }
  /// Takes a block out of a free list that is done if everything up to `sequence` is; 0 if there is none.
  block_id pull_until(list_id list, sequence_number sequence) noexcept {
    list_blocks& owner = lists_[list];
    if (!keeps_ages_) {
      block_id const id = owner.latest <= sequence ? owner.index.remove_any(blocks_) : 0;
      if (id != 0) take_off(owner, list, blocks_[id].size);
      return id;
    }
    block_id const id = ages_.oldest(list);
    if (id == 0 || ages_.sequence(id) > sequence) return 0;
    pull(id);
    return id;
  }

  std::size_t host_bytes() const noexcept { return ages_.host_bytes() + lists_.bytes() + with_free_.bytes(); }

  /// Checks everything; slow, for tests.
  bool valid() const {
    for (std::size_t list = 0; list < lists_.size(); ++list)
      if (!valid(static_cast<list_id>(list))) return false;
    return true;
  }

 private:
  struct list_blocks {
    std::uint64_t free = 0;  // units
    sequence_number latest{};
    tlsf_index index;  // last: it has its heads behind itself
  };

  static constexpr std::size_t bits = 64;
  static std::size_t number_of(list_id list) noexcept { return static_cast<std::size_t>(list); }
  static std::uint64_t bit_of(list_id list) noexcept { return std::uint64_t{1} << number_of(list) % bits; }
  std::uint64_t& word_of(list_id list) noexcept { return with_free_[number_of(list) / bits]; }
  [[gnu::always_inline]] void take_off(list_blocks& owner, list_id list, units size) noexcept {
    if ((owner.free -= size) == 0) [[unlikely]]
      word_of(list) &= ~bit_of(list);
  }

  bool valid(list_id list) const {
    list_blocks const& l = lists_[list];
    if (!l.index.valid(blocks_, largest_)) return false;
    std::uint64_t free = 0;
    bool const foreign = l.index.any_of(blocks_, [&](block_id id) {
      free += blocks_[id].size;
      return blocks_[id].list != list;
    });
    if (foreign || free != l.free || has_free(list) != (free != 0)) return false;
    if (!keeps_ages_ || list == shared) return true;
    sequence_number sequence{};
    std::uint64_t aged = 0;
    for (block_id id = ages_.oldest(list); id != 0; id = ages_.newer(id)) {
      if (!blocks_[id].is_free() || blocks_[id].list != list || ages_.sequence(id) < sequence) return false;
      sequence = ages_.sequence(id);
      aged += blocks_[id].size;
    }
    return aged == free && sequence <= l.latest;
  }

  block_table& blocks_;
  free_order ages_;
  bool keeps_ages_ = false;
  units largest_ = 0;  // the largest block that there may be
  tailed_array<list_blocks> lists_;
  grown_array<std::uint64_t> with_free_{1};  // a bit for each list
};

}  // namespace weir::detail
