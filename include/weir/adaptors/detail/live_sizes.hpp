#pragma once
// How large live blocks are: a table that takes its host memory before a block is put in, never when one goes.

#include <weir/support/atomic.hpp>
#include <weir/support/blocks_by_address.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Sizes of blocks by their addresses. A block needs a place: `take_place` before the memory is asked for, then
/// `insert`; `remove`, and `leave_place` once the memory is gone for good. Constant time, but for growth. Thread-safe.
/// No live blocks share an address.
class live_sizes {
 public:
  /// How many blocks are in it. One load.
  std::size_t size() const noexcept { return size_.load(); }

  /// Makes sure that one more block has room. May throw `std::bad_alloc`, and has changed nothing then.
  void take_place() {
    spin_guard const lock(mutex_);
    sizes_.promise();
  }
  void leave_place() noexcept {
    spin_guard const lock(mutex_);
    sizes_.forget_promise();
  }

  /// Needs a place. `bytes` is above 0.
  void insert(std::uintptr_t address, std::size_t bytes) noexcept {
    spin_guard const lock(mutex_);
    sizes_.insert(address, bytes);
    size_.add(1);
  }
  /// Returns how large it was; 0 if it was not in it. Its place stays taken.
  std::size_t remove(std::uintptr_t address) noexcept {
    spin_guard const lock(mutex_);
    std::size_t const* const found = sizes_.find(address);
    if (found == nullptr) return 0;
    std::size_t const bytes = *found;
    sizes_.erase_and_promise(address);
    size_.subtract(1);
    return bytes;
  }

 private:
  spin_lock mutex_;
  blocks_by_address<std::size_t> sizes_;
  atomic<std::size_t> size_;
};

}  // namespace weir::detail
