#pragma once
// The blocks that a pool passes through while caching is off: what they were asked for, and whether a free is right.

#include <weir/core/error.hpp>
#include <weir/core/live_block.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

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
  /// Forgets a block that was asked for so; else reports the misuse in the name of `layer`, returns false, and the
  /// block stays. Call it before the upstream has the block back: another thread may get it.
  bool take(void* p, std::size_t bytes, std::size_t alignment, char const* layer) noexcept {
    live_block was;
    {
      spin_guard const lock(mutex_);
      auto const address = reinterpret_cast<std::uintptr_t>(p);
      if (auto const* const found = blocks_.find(address)) was = found->value;
      if (was && was.bytes == bytes && was.alignment == alignment) return blocks_.erase(address), true;
    }
    report_wrong(p, bytes, alignment, was, layer);
    return false;
  }
  live_block find(void const* p) const noexcept {
    spin_guard const lock(mutex_);
    auto const* const found = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    return found == nullptr ? live_block{} : found->value;
  }

 private:
  [[gnu::noinline, gnu::cold]] static void report_wrong(void* p, std::size_t bytes, std::size_t alignment,
                                                        live_block const& was, char const* layer) noexcept {
    report_misuse(std::string("weir: ") + layer + ": deallocate of " + hex(p) + " with " + std::to_string(bytes) +
                  " B aligned to " + std::to_string(alignment) + ": " +
                  (was ? "it was allocated with " + std::to_string(was.bytes) + " B aligned to " +
                             std::to_string(was.alignment) + "; give back the same"
                       : std::string("no live block starts there that this layer passed on (freed twice, or not the "
                                     "pointer that allocate returned)")));
  }

  mutable spin_lock mutex_;
  address_map<live_block> blocks_;
};

}  // namespace weir::detail
