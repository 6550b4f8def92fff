#pragma once
// All segments of a pool, cut into blocks: which block serves a request, and where a freed one goes.

#include <weir/blocks/block_table.hpp>
#include <weir/blocks/free_index.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::detail {

/// Free blocks stand in lanes. Lane 0, `shared`, has those whose work is known to be done: everybody may take them.
/// Every other lane belongs to a stream and has what was freed on it, oldest first, each marked with the ticket of its
/// latest free. Free neighbours of one lane are always merged. Knows nothing of streams or CUDA; not thread-safe.
class block_store {
 public:
  static constexpr lane_id shared = 0;

  block_store() : lanes_(1) {}

  /// Makes room so that one take, one add and any number of gives need no host memory. May throw `std::bad_alloc`.
  void reserve(std::size_t lanes) {
    table_.reserve(4);
    if (lanes_.size() < lanes) [[unlikely]]
      lanes_.resize(lanes);
  }

  /// Adds a segment as one shared block; returns its first block, which names the segment from now on.
  block_id add_segment(std::uintptr_t address, units size) noexcept {
    block_id const id = table_.add(address, size);
    put(id, shared, 0);
    return id;
  }
  /// True if all of the segment is free and its work done.
  bool is_idle(block_id segment) const noexcept {
    block const& b = table_[segment];
    return b.state == block_state::free && b.lane == shared && is_whole(segment);
  }
  /// True if some of the segment is free, but not known to be done.
  bool is_pending(block_id segment) const noexcept {
    for (block_id id = segment; id != 0; id = table_[id].right)
      if (table_[id].state == block_state::free && table_[id].lane != shared) return true;
    return false;
  }
  /// True if a free block is a whole segment.
  bool is_whole(block_id id) const noexcept { return table_[id].left == 0 && table_[id].right == 0; }
  /// Forgets an idle segment.
  void remove_segment(block_id segment) noexcept {
    pull(segment);
    table_.drop(segment);
  }

  /// What a request needs of a block.
  struct request {
    units size;               ///< of the block that is handed out
    std::size_t alignment;    ///< of its address; at least `unit_bytes`
    units max_split;          ///< blocks of this size and more are handed out whole, and only to requests as large
    std::uint64_t requested;  ///< bytes asked for, and log2 of the alignment: kept for checks
    std::uint8_t alignment_log;

    /// Units that any block has to have so that the request fits at an aligned address.
    units span() const noexcept { return size + static_cast<units>(alignment / unit_bytes) - 1; }
  };

  /// A free block of `lane` that fits, or 0.
  block_id find(lane_id lane, request const& r) const noexcept {
    block_id const id = lanes_[lane].index.find(table_, r.span());
    return id != 0 && suits(table_[id], r) ? id : 0;
  }
  /// The same, however many blocks of nearly the size do not fit: looks at all of the request's own size class.
  block_id find_hidden(lane_id lane, request const& r) const noexcept {
    return lanes_[lane].index.find_in_class(table_, r.span(), [&](block const& b) { return suits(b, r); });
  }

  /// Hands out the free block `id`, cut to size; what is left stays where it was.
  block_id take(block_id id, request const& r) noexcept {
    block const& b = table_[id];
    lane_blocks& owner = lanes_[b.lane];
    units const front = static_cast<units>((-b.address & (r.alignment - 1)) / unit_bytes);
    owner.index.remove(table_, id);
    owner.free -= b.size;
    block_id taken = id;
    if (front != 0) {
      taken = table_.split(id, front);
      owner.index.insert(table_, id);
      owner.free += front;
    }
    if (table_[taken].size > r.size && table_[taken].size < r.max_split) {
      block_id const rest = table_.split(taken, r.size);
      block& left_over = table_[rest];
      left_over.state = block_state::free;
      left_over.lane = table_[id].lane;
      left_over.mark = table_[id].mark;
      owner.index.insert(table_, rest);
      owner.free += left_over.size;
      if (left_over.lane != shared) age_insert_after(owner, id, rest);
    }
    if (front == 0 && b.lane != shared) age_remove(owner, id);
    return hand_out(taken, r);
  }

  /// As `take` of a shared block, but starts it in a free block of `lane` that ends where `id` begins: a stream that
  /// outgrows its own last block extends it instead of leaving it as a hole.
  block_id take_extending(lane_id lane, block_id id, request const& r) noexcept {
    block_id const left = table_[id].left;
    bool const extends = left != 0 && lane != shared && r.alignment == unit_bytes && r.size < r.max_split &&
                         table_[left].state == block_state::free && table_[left].lane == lane &&
                         table_[left].size < r.size;
    if (!extends) return take(id, r);
    pull(left);
    pull(id);
    table_.merge_right(left);
    if (table_[left].size > r.size) put(table_.split(left, r.size), shared, 0);
    return hand_out(left, r);
  }

  /// Takes back a live block: into `lane`, merged with its neighbours there. Tickets must not go down within a lane.
  block_id give(block_id id, lane_id lane, std::uint64_t ticket) noexcept {
    table_.delist(id);
    return put_merged(id, lane, ticket);
  }

  /// Everything freed in `lane` up to `ticket` is done: it becomes shared.
  void complete(lane_id lane, std::uint64_t ticket) noexcept {
    for (block_id id = lanes_[lane].oldest; id != 0 && table_[id].mark <= ticket; id = lanes_[lane].oldest) {
      pull(id);
      put_merged(id, shared, 0);
    }
  }

  /// Adjacent free blocks that are together large enough for a request.
  struct run {
    block_id first = 0;      ///< 0: there is none
    std::uint64_t size = 0;  ///< units
  };

  /// A run of blocks that `may_use(block)` accepts, at least one of them of lane `from`. Looks at every block of
  /// `from`.
  template <class MayUse>
  run find_run(lane_id from, request const& r, MayUse may_use) const {
    auto const usable = [&](block_id id) {
      return id != 0 && table_[id].state == block_state::free && table_[id].size < r.max_split && may_use(table_[id]);
    };
    for (block_id id = lanes_[from].oldest; id != 0; id = table_[id].newer) {
      if (!usable(id)) continue;
      run found{id, table_[id].size};
      while (usable(table_[found.first].left)) found.size += table_[found.first = table_[found.first].left].size;
      for (block_id next = table_[id].right; usable(next); next = table_[next].right) found.size += table_[next].size;
      if (found.size >= r.span()) return found;
    }
    return {};
  }
  template <class F>
  void for_each_in(run const& blocks, F f) const {
    std::uint64_t left = blocks.size;
    for (block_id id = blocks.first; left != 0; id = table_[id].right) {
      left -= table_[id].size;
      f(table_[id]);
    }
  }
  /// Makes one block of a run, in `lane` and with a new `ticket`.
  block_id merge(run const& blocks, lane_id lane, std::uint64_t ticket) noexcept {
    block_id const first = blocks.first;
    pull(first);
    while (table_[first].size < blocks.size) {
      pull(table_[first].right);
      table_.merge_right(first);
    }
    return put_merged(first, lane, ticket);
  }

  block_table const& blocks() const noexcept { return table_; }
  /// The live block at an address, or 0.
  block_id find_live(std::uintptr_t address) noexcept { return table_.find(address); }

  std::size_t lane_count() const noexcept { return lanes_.size(); }
  /// Free bytes in a lane.
  std::size_t free_bytes(lane_id lane) const noexcept { return lanes_[lane].free * unit_bytes; }
  std::uint64_t oldest_ticket(lane_id lane) const noexcept {
    return lanes_[lane].oldest == 0 ? 0 : table_[lanes_[lane].oldest].mark;
  }
  /// Bytes of the largest free block in a lane; looks at one size class.
  std::size_t largest_free(lane_id lane) const noexcept {
    return std::size_t{lanes_[lane].index.largest(table_)} * unit_bytes;
  }
  /// The same over all lanes.
  std::size_t largest_free() const noexcept {
    std::size_t most = 0;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      most = std::max(most, largest_free(static_cast<lane_id>(lane)));
    return most;
  }
  std::size_t host_bytes() const noexcept { return table_.host_bytes() + lanes_.capacity() * sizeof(lane_blocks); }

  /// Checks everything; slow, for tests.
  bool valid() const {
    if (!table_.valid()) return false;
    for (lane_id l = 0; l < lanes_.size(); ++l) {
      if (!lanes_[l].index.valid(table_)) return false;
      std::uint64_t ticket = 0;
      for (block_id id = lanes_[l].oldest; id != 0; id = table_[id].newer) {
        block const& b = table_[id];
        if (b.state != block_state::free || b.lane != l || b.mark < ticket) return false;
        if (b.right != 0 && table_[b.right].state == block_state::free && table_[b.right].lane == l) return false;
        ticket = b.mark;
      }
    }
    return true;
  }

 private:
  struct lane_blocks {
    free_index index;
    block_id oldest = 0;  // by ticket; the shared lane needs no order and keeps none
    block_id newest = 0;
    std::uint64_t free = 0;  // units
  };

  // What a whole block may waste: 20 MiB.
  static constexpr units whole_slack = static_cast<units>((std::size_t{20} << 20) / unit_bytes);

  // A block that is kept whole may be used by a request as large if little is wasted.
  static bool suits(block const& b, request const& r) noexcept {
    return b.size < r.max_split || (r.span() >= r.max_split && b.size - r.size <= whole_slack);
  }

  block_id hand_out(block_id id, request const& r) noexcept {
    table_[id].mark = r.requested;
    table_[id].alignment_log = r.alignment_log;
    table_.enlist(id);
    return id;
  }

  void put(block_id id, lane_id lane, std::uint64_t ticket) noexcept {
    block& b = table_[id];
    b.state = block_state::free;
    b.lane = lane;
    b.mark = ticket;
    lanes_[lane].index.insert(table_, id);
    lanes_[lane].free += b.size;
    if (lane != shared) age_insert_after(lanes_[lane], lanes_[lane].newest, id);
  }

  void pull(block_id id) noexcept {
    lane_blocks& owner = lanes_[table_[id].lane];
    owner.index.remove(table_, id);
    owner.free -= table_[id].size;
    if (table_[id].lane != shared) age_remove(owner, id);
  }

  block_id put_merged(block_id id, lane_id lane, std::uint64_t ticket) noexcept {
    auto const joins = [&](block_id other) {
      return other != 0 && table_[other].state == block_state::free && table_[other].lane == lane;
    };
    if (block_id const right = table_[id].right; joins(right)) {
      pull(right);
      table_.merge_right(id);
    }
    if (block_id const left = table_[id].left; joins(left)) {
      pull(left);
      table_.merge_right(left);
      id = left;
    }
    put(id, lane, ticket);
    return id;
  }

  void age_insert_after(lane_blocks& owner, block_id place, block_id id) noexcept {
    block& b = table_[id];
    b.older = place;
    b.newer = place == 0 ? owner.oldest : table_[place].newer;
    (b.newer == 0 ? owner.newest : table_[b.newer].older) = id;
    (place == 0 ? owner.oldest : table_[place].newer) = id;
  }

  void age_remove(lane_blocks& owner, block_id id) noexcept {
    block const& b = table_[id];
    (b.older == 0 ? owner.oldest : table_[b.older].newer) = b.newer;
    (b.newer == 0 ? owner.newest : table_[b.newer].older) = b.older;
  }

  block_table table_;
  std::vector<lane_blocks> lanes_;
};

}  // namespace weir::detail
