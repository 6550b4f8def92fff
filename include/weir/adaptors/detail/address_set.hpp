#pragma once
// Which addresses are somebody's: a set that takes its host memory before an address is put in, never when one goes.

#include <weir/core/bytes.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/grown_array.hpp>
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
    if (2 * (places_ + 1) > slots_.size()) grow();
    ++places_;
  }
  void leave_place() noexcept {
    spin_guard const lock(mutex_);
    --places_;
  }

  /// Needs a place.
  void insert(std::uintptr_t address) noexcept {
    spin_guard const lock(mutex_);
    put(slots_, address);
    size_.add(1);
  }
  /// False if it was not in it. Its place stays taken.
  bool remove(std::uintptr_t address) noexcept {
    spin_guard const lock(mutex_);
    std::size_t const at = slot_of(slots_, address);
    if (slots_[at] == 0) return false;
    size_.subtract(1);
    close_gap(at);
    return true;
  }

 private:
  using table = grown_array<std::uintptr_t>;  // a power of two of slots, at least half of them 0: free

  // Fibonacci hashing: the high bits of the product depend on all bits of the address.
  static std::size_t home_of(table const& slots, std::uintptr_t address) noexcept {
    return (address / default_alignment * 0x9e3779b97f4a7c15u >> 20) & (slots.size() - 1);
  }
  static std::size_t next(table const& slots, std::size_t at) noexcept { return (at + 1) & (slots.size() - 1); }

  /// Where an address is, or where it would be put.
  static std::size_t slot_of(table const& slots, std::uintptr_t address) noexcept {
    std::size_t at = home_of(slots, address);
    while (slots[at] != 0 && slots[at] != address) at = next(slots, at);
    return at;
  }
  static void put(table& slots, std::uintptr_t address) noexcept { slots[slot_of(slots, address)] = address; }

  void grow() {
    table larger(2 * slots_.size());
    for (std::size_t at = 0; at < slots_.size(); ++at)
      if (slots_[at] != 0) put(larger, slots_[at]);
    slots_.swap(larger);
  }

  /// Empties a slot. What stands behind it moves up, unless its search begins behind the gap.
  void close_gap(std::size_t gap) noexcept {
    std::size_t const mask = slots_.size() - 1;
    for (std::size_t at = next(slots_, gap); slots_[at] != 0; at = next(slots_, at)) {
      std::size_t const from_home = (at - home_of(slots_, slots_[at])) & mask, from_gap = (at - gap) & mask;
      if (from_home < from_gap) continue;
      slots_[gap] = slots_[at];
      gap = at;
    }
    slots_[gap] = 0;
  }

  spin_lock mutex_;
  table slots_{16};
  std::size_t places_ = 0;
  atomic<std::size_t> size_;
};

}  // namespace weir::detail
