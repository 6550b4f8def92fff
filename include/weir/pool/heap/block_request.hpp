#pragma once
// What a request needs of a block, and which sizes may serve it.

#include <weir/pool/heap/size_class.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A block of some size, at an aligned address. Knows nothing of which blocks there are.
struct block_request {
  units size;               ///< of the block that is handed out
  std::size_t alignment;    ///< of its address; at least `unit_bytes`
  units max_split;          ///< blocks of this size and more are handed out whole, and only to requests as large
  std::uint64_t requested;  ///< bytes asked for, and log2 of the alignment: kept for checks
  std::uint8_t alignment_log;

  /// For `bytes` in a block of at least `block_bytes`; neither is so large that rounding up could wrap.
  static block_request of(std::size_t bytes, std::size_t block_bytes, std::size_t alignment, units max_split) noexcept {
    return {.size = static_cast<units>((block_bytes + unit_bytes - 1) / unit_bytes),
            .alignment = alignment < unit_bytes ? unit_bytes : alignment,
            .max_split = max_split,
            .requested = bytes,
            .alignment_log = static_cast<std::uint8_t>(std::countr_zero(alignment))};
  }

  /// Units that any block has to have so that the request fits at an aligned address.
  units span() const noexcept { return size + static_cast<units>(alignment / unit_bytes) - 1; }
  /// Units from an address to the first one behind it that is aligned.
  units front_of(std::uintptr_t address) const noexcept {
    return static_cast<units>((-address & (alignment - 1)) / unit_bytes);
  }

  /// Whether a free block of at least `span()` may serve it. One that is kept whole may, if the request is as large as
  /// those that are kept whole and little is wasted.
  [[gnu::always_inline]] bool may_have(units block_size) const noexcept {
    return block_size < max_split || may_have_whole(block_size);
  }

 private:
  // What a whole block may waste: 20 MiB.
  static constexpr units whole_slack = static_cast<units>((std::size_t{20} << 20) / unit_bytes);

  [[gnu::noinline]] bool may_have_whole(units block_size) const noexcept {
    return span() >= max_split && block_size - size <= whole_slack;
  }
};

}  // namespace weir::detail
