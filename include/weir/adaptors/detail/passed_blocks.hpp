#pragma once
// The blocks that a pool passes through while caching is off, for frees without a size.

#include <weir/core/live_block.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Thread-safe. Slow with many blocks, which caching that is switched off is anyway.
class passed_blocks {
 public:
  /// Returns `p`. Without host memory calls `give_back()` and throws `std::bad_alloc`.
  template <class GiveBack>
  void* insert_or(void* p, std::size_t bytes, std::size_t alignment, GiveBack give_back) try {
    spin_guard const lock(mutex_);
    blocks_.insert(reinterpret_cast<std::uintptr_t>(p), {bytes, alignment, true});
    return p;
  } catch (...) {
    give_back();
    throw;
  }
  /// Call it before the upstream has the block back: another thread may get it.
  void erase(void* p) noexcept {
    spin_guard const lock(mutex_);
    blocks_.erase(reinterpret_cast<std::uintptr_t>(p));
  }
  live_block find(void const* p) const noexcept {
    spin_guard const lock(mutex_);
    auto const* const found = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    return found == nullptr ? live_block{} : found->value;
  }

 private:
  mutable spin_lock mutex_;
  address_map<live_block> blocks_;
};

}  // namespace weir::detail
