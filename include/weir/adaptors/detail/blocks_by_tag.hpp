#pragma once
// Which tag each live block was allocated under, and what each tag holds.

#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/blocks_by_address.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::detail {

/// A free counts for the tag that the block was allocated under, whatever the tag of the thread that frees it. Under
/// one short lock; thread-safe. Only `promise` takes host memory.
class blocks_by_tag {
 public:
  struct block {
    tag_name tag;
    std::size_t bytes = 0, taken = 0;
  };

  /// Makes room for a block of this tag, so that `add` can be called after it, or `forget_promise`. May throw
  /// `std::bad_alloc`, and has changed nothing then.
  void promise(tag_name tag) {
    spin_guard const lock(lock_);
    totals_.make_room(tag);
    blocks_.promise();
  }
  void forget_promise() noexcept {
    spin_guard const lock(lock_);
    blocks_.forget_promise();
  }
  void add(tag_name tag, void const* p, std::size_t bytes, std::size_t taken) noexcept {
    spin_guard const lock(lock_);
    // What is live there still was given back past this layer.
    if (block const* const stale = blocks_.find(address_of(p)); stale != nullptr)
      totals_.of(stale->tag).take_off(stale->bytes, stale->taken);
    blocks_.insert(address_of(p), {tag, bytes, taken});
    totals_.of(tag).add(bytes, taken);
  }

  /// What the block was added with; nothing, with 0 bytes, if there is none.
  block take_off(void const* p) noexcept {
    spin_guard const lock(lock_);
    block const* const found = blocks_.find(address_of(p));
    if (found == nullptr) return {};
    block const taken_off = *found;
    blocks_.erase(address_of(p));
    totals_.of(taken_off.tag).take_off(taken_off.bytes, taken_off.taken);
    return taken_off;
  }
  /// As if that had not been called. Does nothing for what was not found.
  void put_back(std::uintptr_t address, block const& b) noexcept {
    if (b.bytes == 0) return;
    spin_guard const lock(lock_);
    if (blocks_.insert_again(address, b)) totals_.of(b.tag).put_back(b.bytes, b.taken);
  }

  void reset_peaks() noexcept {
    spin_guard const lock(lock_);
    totals_.reset_peaks();
  }
  std::vector<tag_statistics> numbers() const {
    spin_guard const lock(lock_);
    return totals_.used();
  }

 private:
  static std::uintptr_t address_of(void const* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

  mutable spin_lock lock_;
  blocks_by_address<block> blocks_;
  tag_totals totals_;
};

}  // namespace weir::detail
