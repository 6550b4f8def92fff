#pragma once
// Which tag each live block was allocated under, and what each tag holds.

#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/blocks_by_address.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::detail {

/// What a block counts for its tag.
struct tagged_block {
  tag_name tag = {};
  std::size_t bytes = 0, taken = 0;  // bytes is 0: no block
};

/// A free counts for the tag that the block was allocated under, whatever the tag of the thread that frees it. A block
/// that there is no host memory to remember counts for no tag. Not thread-safe: under its layer's lock.
class blocks_by_tag {
 public:
  /// Under the calling thread's tag; `bytes` is not 0. Takes host memory now and then.
  void add(void const* p, std::size_t bytes, std::size_t taken) noexcept try {
    tag_name const tag = current_tag();
    totals_.make_room(tag);
    tagged_block& block = blocks_.value_for(reinterpret_cast<std::uintptr_t>(p));
    if (block.bytes != 0) count_off(block);  // what is live there still was given back past this layer
    block = {tag, bytes, taken};
    totals_.of(tag).add(bytes, taken);
  } catch (...) {
  }

  /// Returns what it counted; nothing for a block that is not known.
  tagged_block take_off(void const* p) noexcept {
    tagged_block const counted = blocks_.take(reinterpret_cast<std::uintptr_t>(p));
    if (counted.bytes != 0) count_off(counted);
    return counted;
  }
  /// As if `take_off(p)`, which returned `counted`, had not been called.
  void put_back(void const* p, tagged_block const& counted) noexcept {
    if (counted.bytes != 0 && blocks_.insert_again(reinterpret_cast<std::uintptr_t>(p), counted))
      totals_.of(counted.tag).put_back(counted.bytes, counted.taken);
  }

  void reset_peaks() noexcept { totals_.reset_peaks(); }
  template <class = void>  // so that only those pay for compiling it who use it
  std::vector<tag_statistics> numbers() const {
    return totals_.used();
  }

 private:
  void count_off(tagged_block const& b) noexcept { totals_.of(b.tag).take_off(b.bytes, b.taken); }

  blocks_by_address<tagged_block> blocks_;
  tag_totals totals_;
};

}  // namespace weir::detail
