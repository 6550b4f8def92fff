#pragma once
// Alignments above the 256 bytes that CUDA gives: a block inside a larger one.

#include <weir/core/bytes.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// No object can be larger than this, so nothing larger is asked for: what CUDA answers to such sizes varies.
inline constexpr std::size_t largest_request = PTRDIFF_MAX;

/// Alignments above CUDA's own 256 B: asks for more than needed and remembers what was moved up. Thread-safe.
class shifted_blocks {
 public:
  /// `take(n)` gives n bytes aligned to 256 or nullptr, and `give(base)` takes them back. Returns nullptr as `take`
  /// does.
  template <class Take, class Give>
  void* allocate(std::size_t bytes, std::size_t alignment, Take take, Give give) {
    if (bytes > largest_request) return nullptr;
    if (alignment <= default_alignment) [[likely]]
      return take(bytes);
    void* const base = take(padded_or_zero(bytes, alignment));
    std::size_t const shift = (0 - reinterpret_cast<std::uintptr_t>(base)) & (alignment - 1);
    if (base == nullptr || shift == 0) return base;
    void* const p = static_cast<std::byte*>(base) + shift;
    try {
      mutex_guard const lock(mutex_);
      base_of_.insert(reinterpret_cast<std::uintptr_t>(p), base);
    } catch (...) {
      give(base);
      throw;
    }
    return p;
  }

  /// What `take` gave for the block at `p`, which is forgotten.
  void* base_of(void* p, std::size_t alignment) noexcept {
    if (alignment <= default_alignment) [[likely]]
      return p;
    mutex_guard const lock(mutex_);
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    auto const* const found = base_of_.find(address);
    if (found == nullptr) return p;
    void* const base = found->value;
    base_of_.erase(address);
    return base;
  }

 private:
  mutex mutex_;
  address_map<void*> base_of_;  // only blocks that moved
};

}  // namespace weir::detail
