#pragma once
// A number or a pointer that threads share: the part of `std::atomic` that weir needs, without its header.

#include <weir/version.hpp>

namespace weir::detail {

/// Read and changed by any thread. Relaxed, where the name does not say otherwise: nothing else is ordered by it.
/// By the compilers' own atomics, which sanitizers know: `<atomic>` would be a tenth of what `weir/weir.hpp` takes to
/// compile.
template <class T>
class atomic {
 public:
  constexpr atomic() noexcept = default;
  atomic(atomic const&) = delete;
  atomic& operator=(atomic const&) = delete;

  T load() const noexcept { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
  T load_acquire() const noexcept { return __atomic_load_n(&value_, __ATOMIC_ACQUIRE); }
  /// With `add_ordered`, on any objects: in one order that all threads see.
  T load_ordered() const noexcept { return __atomic_load_n(&value_, __ATOMIC_SEQ_CST); }
  void add_ordered(T amount) noexcept { __atomic_fetch_add(&value_, amount, __ATOMIC_SEQ_CST); }
  void store_release(T value) noexcept { __atomic_store_n(&value_, value, __ATOMIC_RELEASE); }
  void add(T amount) noexcept { __atomic_fetch_add(&value_, amount, __ATOMIC_RELAXED); }
  void subtract(T amount) noexcept { __atomic_fetch_sub(&value_, amount, __ATOMIC_RELAXED); }

  /// Stores `wanted` if the value is `seen`; else, or for no reason, returns false with what it is in `seen`.
  bool replace_release(T& seen, T wanted) noexcept {
    return __atomic_compare_exchange_n(&value_, &seen, wanted, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  }

 private:
  T value_{};
};

}  // namespace weir::detail
