#pragma once
// Which addresses are somebody's: a set that takes its host memory before an address is put in, never when one goes.

#include <weir/support/atomic.hpp>
#include <weir/support/blocks_by_address.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Addresses of blocks. An address needs a place: `take_place` before the memory is asked for, then `insert`; `remove`,
/// and `leave_place` once the memory is gone for good. Constant time, but for growth. Thread-safe. No live blocks share
/// an address.
class address_set {
 public:
  /// How many addresses are in it. One load.
  std::size_t size() const noexcept { return size_.load(); }

  /// Makes sure that one more address has room. May throw `std::bad_alloc`, and has changed nothing then.
  void take_place() {
    spin_guard const lock(mutex_);
    addresses_.promise();
  }
  void leave_place() noexcept {
    spin_guard const lock(mutex_);
    addresses_.forget_promise();
  }

  /// Needs a place.
  void insert(std::uintptr_t address) noexcept {
    spin_guard const lock(mutex_);
    addresses_.insert(address, {});
    size_.add(1);
  }
  /// False if it was not in it. Its place stays taken.
  bool remove(std::uintptr_t address) noexcept {
    spin_guard const lock(mutex_);
    if (addresses_.find(address) == nullptr) return false;
    addresses_.erase_and_promise(address);
    size_.subtract(1);
    return true;
  }

 private:
  struct nothing {};

  spin_lock mutex_;
  blocks_by_address<nothing> addresses_;
  atomic<std::size_t> size_;
};

}  // namespace weir::detail
