#pragma once
// A lock that costs the thread which mostly takes it two plain stores.

#include <weir/support/process_barrier.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstdint>

namespace weir::detail {

inline constinit std::uint64_t last_thread_token = 0;
/// A number that no other thread of the process ever has; 0 until the thread first takes such a lock the long way.
inline constinit thread_local std::uint64_t this_thread_token = 0;

/// For short sections that never block, as `spin_lock`, where one thread does nearly all of them: an atomic exchange
/// takes as long as a section of some 30 instructions. A thread that took the lock many times in a row becomes its
/// owner. From then on it enters by a store and a load that only the compiler keeps in order. Another thread that wants
/// the lock takes the ownership away, lets all threads pass a memory barrier (`process_barrier`), and sees then whether
/// the owner is inside. Each time that happens it takes twice as long until somebody is the owner again, so that
/// threads which share the lock soon have a `spin_lock`. Held by a `biased_guard`. When not to use it: for a lock that
/// threads share evenly; where many objects are locked once each.
class biased_lock {
 public:
  /// True if it was the owner's way in, which `leave` has to be told.
  [[gnu::always_inline]] bool enter() noexcept {
    if (is_mine()) [[likely]] {
      __atomic_store_n(&owner_is_inside_, true, __ATOMIC_RELAXED);
      asm volatile("" ::: "memory");  // who takes the ownership away sees to it that the processor does not swap them
      if (is_mine()) [[likely]]
        return true;
      __atomic_store_n(&owner_is_inside_, false, __ATOMIC_RELEASE);
    }
    enter_slowly();
    return false;
  }
  [[gnu::always_inline]] void leave(bool as_owner) noexcept {
    if (as_owner) [[likely]]
      __atomic_store_n(&owner_is_inside_, false, __ATOMIC_RELEASE);
    else
      lock_.unlock();
  }

  /// For tests: whether a thread owns it.
  bool has_owner() const noexcept { return __atomic_load_n(&owner_, __ATOMIC_RELAXED) != nobody; }

 private:
  static constexpr std::uint64_t nobody = ~std::uint64_t{0};
  static constexpr unsigned first_streak = 64, longest_streak = 1 << 16;

  bool is_mine() const noexcept { return __atomic_load_n(&owner_, __ATOMIC_RELAXED) == this_thread_token; }

  [[gnu::noinline]] void enter_slowly() noexcept {
    if (this_thread_token == 0) this_thread_token = __atomic_add_fetch(&last_thread_token, 1, __ATOMIC_RELAXED);
    lock_.lock();
    if (has_owner()) take_away();
    if (latest_ != this_thread_token) streak_ = 0;
    latest_ = this_thread_token;
    if (++streak_ == needed_ && process_barrier::exists()) {  // from the next time on
      streak_ = 0;
      __atomic_store_n(&owner_, latest_, __ATOMIC_RELAXED);
    }
  }
  /// With the lock. The owner either sees that it is none any more, or is seen inside.
  void take_away() noexcept {
    __atomic_store_n(&owner_, nobody, __ATOMIC_RELAXED);
    process_barrier::pass();
    for (unsigned round = 0; __atomic_load_n(&owner_is_inside_, __ATOMIC_ACQUIRE); ++round) spin_lock::pause(round);
    if (needed_ < longest_streak) needed_ *= 2;
  }

  std::uint64_t owner_ = nobody;
  bool owner_is_inside_ = false;
  spin_lock lock_;
  unsigned needed_ = first_streak, streak_ = 0;  // entries in a row of `latest_`
  std::uint64_t latest_ = 0;
};

/// Holds a `biased_lock` while it lives.
class biased_guard {
 public:
  [[gnu::always_inline]] explicit biased_guard(biased_lock& lock) noexcept : lock_(lock), as_owner_(lock.enter()) {}
  [[gnu::always_inline]] ~biased_guard() { lock_.leave(as_owner_); }
  biased_guard(biased_guard const&) = delete;
  biased_guard& operator=(biased_guard const&) = delete;

 private:
  biased_lock& lock_;
  bool as_owner_;
};

}  // namespace weir::detail
