#pragma once
// What is known of addresses, in their order.

#include <weir/support/first_index.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A sorted array of addresses, each with a `T` that may be copied as bytes. To look one up takes logarithmic time; to
/// add or remove one moves those above it, which beside the CUDA call that goes with it is little for some thousands.
/// `<map>` would be a tenth of what `weir/weir.hpp` takes to compile. Not thread-safe.
template <class T>
class address_map {
 public:
  struct entry {
    std::uintptr_t address = 0;
    T value{};
  };

  /// `address` is not in it. May throw `std::bad_alloc`, and has changed nothing then.
  void insert(std::uintptr_t address, T const& value) {
    if (size_ == entries_.size()) entries_.grow(2 * size_ + 4);
    std::size_t at = size_++;
    for (; at > 0 && entries_[at - 1].address > address; --at) entries_[at] = entries_[at - 1];
    entries_[at] = {address, value};
  }
  /// The entry for just that address; null if there is none. Valid until the next change.
  entry const* find(std::uintptr_t address) const noexcept {
    entry const* const last = find_last_up_to(address);
    return last != nullptr && last->address == address ? last : nullptr;
  }
  /// The entry with the highest address that is not above this one; null if there is none.
  entry const* find_last_up_to(std::uintptr_t address) const noexcept {
    std::size_t const first = first_index(size_, [&](std::size_t i) { return entries_[i].address > address; });
    return first == 0 ? nullptr : &entries_[first - 1];
  }
  /// Forgets it, if it is there.
  void erase(std::uintptr_t address) noexcept {
    entry const* const found = find(address);
    if (found == nullptr) return;
    --size_;
    for (auto at = static_cast<std::size_t>(found - entries_.data()); at < size_; ++at) entries_[at] = entries_[at + 1];
  }
  std::size_t size() const noexcept { return size_; }

 private:
  grown_array<entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace weir::detail
