#pragma once
// How large the block is that serves a request.

#include <weir/core/bytes.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/pool/heap/block_request.hpp>
#include <weir/pool/heap/slot_class.hpp>
#include <weir/pool/pool_options.hpp>

#include <cstddef>

namespace weir::detail {

/// The rules of one pool: whole units, the size of a slot where small requests are served by what their stream has at
/// hand, and a whole segment where blocks are not split. Holds no memory.
class block_sizes {
 public:
  using request = block_request;

  /// Sizes above this are refused: rounding and alignment might wrap.
  static constexpr std::size_t most_bytes = max_block_bytes - max_alignment;

  /// `max_split`: blocks of so many units and more are kept whole; `~units{0}`: none.
  constexpr block_sizes(bool keeps_small, units max_split) noexcept
      : max_split_(max_split), has_slots_(keeps_small && max_split == ~units{0}) {}

  /// Whether small requests are served by what their stream has at hand.
  bool has_slots() const noexcept { return has_slots_; }

  /// A request for `bytes` that is served by a block of at least `least_block` bytes. Small blocks have the size of a
  /// slot, in a slab or not, so that what a request takes is known before.
  request of(std::size_t bytes, std::size_t alignment, std::size_t least_block) const noexcept {
    request r = request::of(bytes, greater(bytes, least_block), alignment, max_split_);
    bool const is_small = (least_block == 0) & (r.size <= slot_class::most_units) & (r.alignment == unit_bytes);
    units const over = slot_class::step(r.size) - 1;
    r.size = (is_small & has_slots_) ? (r.size + over) & ~over : r.size;
    return r;
  }
  bool may_be_small(request const& r) const noexcept {
    return r.size <= slot_class::most_units && r.alignment == unit_bytes && has_slots_ &&
           slot_class::rounded(r.size) == r.size;
  }

  /// The bytes of the block.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    if (max_split_ == ~units{0}) [[likely]]
      return block_bytes(has_slots_, bytes, alignment);
    std::size_t const whole_units = round_up_or_zero(bytes, unit_bytes);
    if (bytes > most_bytes || !is_valid_alignment(alignment)) return whole_units;
    request const r = request::of(bytes, bytes, alignment, max_split_);
    return r.size < max_split_ ? whole_units : round_up_or_zero(r.span() * unit_bytes, growth_granularity);
  }
  /// The same where blocks are split.
  static constexpr std::size_t block_bytes(bool keeps_small, std::size_t bytes, std::size_t alignment) noexcept {
    return keeps_small ? slot_class::block_bytes(bytes, alignment) : round_up_or_zero(bytes, unit_bytes);
  }

 private:
  units max_split_;
  bool has_slots_;
};

}  // namespace weir::detail
