#pragma once
// The order in which blocks were freed, free list by free list.

#include <weir/pool/heap/block_table.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A list of free blocks for each free list, oldest first, with the sequence number of the latest free in each. Apart
/// from the blocks' records, since a pool with one stream does without: there it would be two lines of memory more a
/// call. Constant time but for `reserve`. Not thread-safe.
class free_order {
 public:
  /// Room for block numbers below `blocks` and free lists below `lists`; may throw `std::bad_alloc`.
  void reserve(std::size_t blocks, std::size_t lists) {
    entries_.grow(blocks);
    ends_.grow(lists);
  }

  /// Puts `id` behind all others of its free list. Sequence numbers must not go down within a free list.
  void append(list_id list, block_id id, sequence_number sequence) noexcept {
    insert_after(list, ends_[list].newest, id, sequence);
  }
  /// Puts `id` right behind `place`, which may be 0: before all others.
  void insert_after(list_id list, block_id place, block_id id, sequence_number sequence) noexcept {
    end& e = ends_[list];
    entry& added = entries_[id];
    added = {sequence, place, place == 0 ? e.oldest : entries_[place].newer};
    (added.newer == 0 ? e.newest : entries_[added.newer].older) = id;
    (place == 0 ? e.oldest : entries_[place].newer) = id;
  }
  void remove(list_id list, block_id id) noexcept {
    entry const& gone = entries_[id];
    (gone.older == 0 ? ends_[list].oldest : entries_[gone.older].newer) = gone.newer;
    (gone.newer == 0 ? ends_[list].newest : entries_[gone.newer].older) = gone.older;
  }

  block_id oldest(list_id list) const noexcept { return ends_[list].oldest; }
  block_id newer(block_id id) const noexcept { return entries_[id].newer; }
  sequence_number sequence(block_id id) const noexcept { return entries_[id].sequence; }

  std::size_t host_bytes() const noexcept { return entries_.bytes() + ends_.bytes(); }

 private:
  struct entry {
    sequence_number sequence{};
    block_id older = 0;
    block_id newer = 0;
  };
  struct end {
    block_id oldest = 0;
    block_id newest = 0;
  };

  grown_array<entry> entries_;  // by block number
  grown_array<end> ends_;       // by free list
};

}  // namespace weir::detail
