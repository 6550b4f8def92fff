#pragma once
// What a thread used last, found in a few instructions.

#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// For each of the threads that use something what it kept here last, or what another thread kept whose place is the
/// same: for who can tell whether that is the right one, as the owner of its lock can. A `thread_local` variable would
/// take the call of a function in a shared library. Thread-safe.
template <class T>
class thread_hints {
 public:
  /// Null if nothing was kept. Who ends calls `forget`, so that a thread at its address begins with that.
  [[gnu::always_inline]] T* find() const noexcept { return kept_[place_of_this_thread()].load_acquire(); }
  void keep(T* what) noexcept { kept_[place_of_this_thread()].store_release(what); }
  void forget() noexcept { keep(nullptr); }

 private:
  static constexpr unsigned places_log = 6;

  /// By Fibonacci hashing (Knuth, volume 3, 6.4): threads' addresses are whole stacks apart.
  [[gnu::always_inline]] static std::size_t place_of_this_thread() noexcept {
    auto const thread = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(this_thread()));
    return thread * 0x9e37'79b9'7f4a'7c15u >> (64 - places_log);
  }

  atomic<T*> kept_[1u << places_log];
};

}  // namespace weir::detail
