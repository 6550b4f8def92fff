#pragma once
// The free blocks of a pool, lane by lane: by size, and where that is needed by age.

#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/free_order.hpp>
#include <weir/pool/heap/tlsf_index.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A size index a lane, over the records of one `block_table`, and for each block the ticket of its latest free: exact
/// once `keep_ages` was called, till then the lane's latest for all. Lane 0 needs no tickets and has none. Constant
/// time but for what says otherwise. Not thread-safe.
class free_lists {
 public:
  explicit free_lists(block_table& blocks) : blocks_(blocks), lanes_(1) {}

  /// Has lanes below `count`. May throw `std::bad_alloc`.
  void reserve_lanes(std::size_t count) {
    if (keeps_ages_) ages_.reserve(0, count);
    lanes_.grow(count);
  }
  /// Room for block numbers below `end`: before the table grows to that. May throw `std::bad_alloc`.
  void reserve_blocks(std::size_t end) {
    if (keeps_ages_) ages_.reserve(end, 0);
  }
  std::size_t count() const noexcept { return lanes_.size(); }

  /// From now on every block has its own ticket. Costs memory, and two cache lines more a call, and is of no use with
  /// one stream. Looks at every free block, once. May throw `std::bad_alloc`.
  void keep_ages() {
    if (keeps_ages_) return;
    ages_.reserve(blocks_.end(), lanes_.size());
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane)
      lanes_[lane].index.any_of(blocks_, [&](block_id id) {
        ages_.append(static_cast<list_id>(lane), id, lanes_[lane].latest);
        return false;
      });
    keeps_ages_ = true;
  }

  /// Makes `id` a free block of `lane`. Tickets must not go down within a lane.
  [[gnu::always_inline]] void put(block_id id, list_id lane, sequence ticket) noexcept {
    lane_blocks& owner = lanes_[lane];
    blocks_[id].set_free(lane);
    owner.index.insert(blocks_, id);
    owner.free += blocks_[id].size;
    owner.latest = ticket;
    if (keeps_ages_ && lane != shared) [[unlikely]]
      ages_.append(lane, id, ticket);
  }
  /// Takes `id` out; what becomes of it is up to the caller.
  [[gnu::always_inline]] void pull(block_id id) noexcept {
    list_id const lane = blocks_[id].lane;
    lane_blocks& owner = lanes_[lane];
    owner.index.remove(blocks_, id);
    owner.free -= blocks_[id].size;
    if (keeps_ages_ && lane != shared) [[unlikely]]
      ages_.remove(lane, id);
  }

  /// `id` lost its end: it had `before` units.
  void shrunk(block_id id, units before) noexcept {
    lane_blocks& owner = lanes_[blocks_[id].lane];
    owner.free -= before - blocks_[id].size;
    owner.index.resized(blocks_, id, before);
  }
  /// `id`, which had `before` units, has grown by a free with this ticket. It stays in place: its size class is mostly
  /// the same.
  void grown(block_id id, units before, sequence ticket) noexcept {
    list_id const lane = blocks_[id].lane;
    lane_blocks& owner = lanes_[lane];
    owner.index.resized(blocks_, id, before);
    owner.free += blocks_[id].size - before;
    owner.latest = ticket;
    if (!keeps_ages_ || lane == shared) [[likely]]
      return;
    ages_.remove(lane, id);
    ages_.append(lane, id, ticket);
  }
  /// `id`, which had `before` units, was cut in two: `end` is free as it is.
  void cut(block_id id, units before, block_id end) noexcept {
    list_id const lane = blocks_[id].lane;
    blocks_[end].set_free(lane);
    lanes_[lane].index.resized(blocks_, id, before);
    lanes_[lane].index.insert(blocks_, end);
    if (keeps_ages_ && lane != shared) ages_.insert_after(lane, id, end, ages_.ticket(id));
  }

  tlsf_index const& by_size(list_id lane) const noexcept { return lanes_[lane].index; }
  /// Units in a lane.
  std::uint64_t free_units(list_id lane) const noexcept { return lanes_[lane].free; }
  /// The ticket up to which a free block's lane has to be done before others may have it.
  sequence ticket(block_id id) const noexcept {
    return keeps_ages_ ? ages_.ticket(id) : lanes_[blocks_[id].lane].latest;
  }
  /// A block of a lane that is done if everything up to `ticket` is, or 0.
  block_id any_until(list_id lane, sequence ticket) const noexcept {
    block_id const id = keeps_ages_ ? ages_.oldest(lane) : lanes_[lane].index.any();
    return id != 0 && this->ticket(id) <= ticket ? id : 0;
  }

  std::size_t host_bytes() const noexcept { return ages_.host_bytes() + lanes_.bytes(); }

  /// Checks everything; slow, for tests.
  bool valid() const {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      if (!valid(static_cast<list_id>(lane))) return false;
    return true;
  }

 private:
  struct lane_blocks {
    tlsf_index index;
    std::uint64_t free = 0;  // units
    sequence latest{};
  };

  bool valid(list_id lane) const {
    lane_blocks const& l = lanes_[lane];
    if (!l.index.valid(blocks_)) return false;
    std::uint64_t free = 0;
    bool const foreign = l.index.any_of(blocks_, [&](block_id id) {
      free += blocks_[id].size;
      return blocks_[id].lane != lane;
    });
    if (foreign || free != l.free) return false;
    if (!keeps_ages_ || lane == shared) return true;
    sequence ticket{};
    std::uint64_t aged = 0;
    for (block_id id = ages_.oldest(lane); id != 0; id = ages_.newer(id)) {
      if (!blocks_[id].is_free() || blocks_[id].lane != lane || ages_.ticket(id) < ticket) return false;
      ticket = ages_.ticket(id);
      aged += blocks_[id].size;
    }
    return aged == free && ticket <= l.latest;
  }

  block_table& blocks_;
  free_order ages_;
  bool keeps_ages_ = false;
  grown_array<lane_blocks> lanes_;
};

}  // namespace weir::detail
