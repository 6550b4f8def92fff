#pragma once
// Which tag each live block was allocated under, and what each tag holds.

#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/blocks_by_address.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
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
  /// May throw `std::bad_alloc`.
  blocks_by_tag() { blocks_.make_room(); }

  /// Under the calling thread's tag; `bytes` is not 0. Takes host memory now and then.
  [[gnu::always_inline]] void add(void const* p, std::size_t bytes, std::size_t taken) noexcept {
    tag_name const tag = current_tag();
    memory_statistics* const numbers = totals_.find(tag);
    if (numbers == nullptr || !blocks_.has_room() ||
        !blocks_.insert_at_home(reinterpret_cast<std::uintptr_t>(p), {tag, bytes, taken})) [[unlikely]]
      return add_otherwise(p, bytes, taken);
    numbers->add(bytes, taken);
  }

  /// `counted` becomes what it counted; unchanged for a block that is not known.
  [[gnu::always_inline]] void take_off(void const* p, tagged_block& counted) noexcept {
    if (blocks_.take(reinterpret_cast<std::uintptr_t>(p), counted)) count_off(counted);
  }
  /// As if `take_off(p, counted)` had not been called.
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
  /// Out of line: so that `add` calls nothing, and has no registers to save.
  [[gnu::noinline]] void add_otherwise(void const* p, std::size_t bytes, std::size_t taken) noexcept try {
    tag_name const tag = current_tag();
    totals_.make_room(tag);
    blocks_.make_room();
    tagged_block old;
    take_off(p, old);  // what is live there still was given back past this layer
    blocks_.insert_in_room(reinterpret_cast<std::uintptr_t>(p), {tag, bytes, taken});
    totals_.of(tag).add(bytes, taken);
  } catch (std::bad_alloc const&) {
  }
  [[gnu::always_inline]] void count_off(tagged_block const& b) noexcept {
    totals_.of(b.tag).take_off(b.bytes, b.taken);
  }

  blocks_by_address<tagged_block> blocks_;
  tag_totals totals_;
};

}  // namespace weir::detail
