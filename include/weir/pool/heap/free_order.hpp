#pragma once
// The order in which blocks were freed, lane by lane.

#include <weir/pool/heap/block_table.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A list of free blocks for each lane, oldest first, with the ticket of the latest free in each. Apart from the
/// blocks' records, since a pool with one stream does without: there it would be two lines of memory more a call.
/// Constant time but for `reserve`. Not thread-safe.
class free_order {
 public:
  /// Room for block numbers below `blocks` and lanes below `lanes`; may throw `std::bad_alloc`.
  void reserve(std::size_t blocks, std::size_t lanes) {
    entries_.grow(blocks);
    ends_.grow(lanes);
  }

  /// Puts `id` behind all others of its lane. Tickets must not go down within a lane.
  void append(list_id lane, block_id id, sequence ticket) noexcept {
    insert_after(lane, ends_[lane].newest, id, ticket);
  }
  /// Puts `id` right behind `place`, which may be 0: before all others.
  void insert_after(list_id lane, block_id place, block_id id, sequence ticket) noexcept {
    end& e = ends_[lane];
    entry& added = entries_[id];
    added = {ticket, place, place == 0 ? e.oldest : entries_[place].newer};
    (added.newer == 0 ? e.newest : entries_[added.newer].older) = id;
    (place == 0 ? e.oldest : entries_[place].newer) = id;
  }
  void remove(list_id lane, block_id id) noexcept {
    entry const& gone = entries_[id];
    (gone.older == 0 ? ends_[lane].oldest : entries_[gone.older].newer) = gone.newer;
    (gone.newer == 0 ? ends_[lane].newest : entries_[gone.newer].older) = gone.older;
  }

  block_id oldest(list_id lane) const noexcept { return ends_[lane].oldest; }
  block_id newer(block_id id) const noexcept { return entries_[id].newer; }
  sequence ticket(block_id id) const noexcept { return entries_[id].ticket; }

  std::size_t host_bytes() const noexcept { return entries_.bytes() + ends_.bytes(); }

 private:
  struct entry {
    sequence ticket{};
    block_id older = 0;
    block_id newer = 0;
  };
  struct end {
    block_id oldest = 0;
    block_id newest = 0;
  };

  grown_array<entry> entries_;  // by block number
  grown_array<end> ends_;       // by lane
};

}  // namespace weir::detail
