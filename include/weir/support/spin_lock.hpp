#pragma once
// The cheapest lock there is, for short sections.

#include <weir/version.hpp>

#include <sched.h>
#include <time.h>

namespace weir::detail {

/// A mutex for sections that are short and never block: one atomic exchange to take, a plain store to leave, where
/// `std::mutex` needs two atomic exchanges and two calls. Who waits spins for some hundred nanoseconds to a few
/// microseconds, then yields, then sleeps. It is not fair. Held by a `spin_guard`. When not to use it: around anything
/// that can block, such as a CUDA call that allocates, frees or synchronises.
///
/// Who waits looks away meanwhile, for longer where the lock is mostly taken when he looks again. Threads that get it
/// as soon as it is free take turns, and with each turn what it guards goes from one processor's cache to another's:
/// that takes ten times as long as most sections do. So one thread does many sections before another does as many.
class spin_lock {
 public:
  [[gnu::always_inline]] void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      lock_slowly();
  }
  /// True if it is free, and the caller's now.
  [[gnu::always_inline]] bool try_lock() noexcept { return !__atomic_exchange_n(&taken_, true, __ATOMIC_ACQUIRE); }
  [[gnu::always_inline]] void unlock() noexcept { __atomic_store_n(&taken_, false, __ATOMIC_RELEASE); }
  /// What `unlock` stores `false` in.
  [[gnu::always_inline]] bool& flag() noexcept { return taken_; }

  /// Calls `f()` without the lock, which the caller holds. `f` must not throw.
  template <class F>
  auto unlocked(F f) noexcept {
    unlock();
    auto const result = f();
    lock();
    return result;
  }

  /// What a thread does between two looks at something that another thread is about to change; `round` counts those.
  /// First yielding gives that thread the processor; sleeping does so even if this thread has real-time priority and
  /// the other has not.
  static void pause(unsigned round) noexcept {
    if (round < 8) {
      ::sched_yield();
    } else {
      timespec const time{.tv_sec = 0, .tv_nsec = 20'000};
      ::nanosleep(&time, nullptr);
    }
  }

 private:
  static constexpr unsigned most_patience = 64;  // of the processor's own pauses, which takes 1 to 3 us
  static constexpr unsigned most_spins = 256;    // of these; then the holder has been preempted, or many wait

  [[gnu::noinline]] void lock_slowly() noexcept {
    unsigned spins = 0, round = 0;
    for (unsigned patience = __atomic_load_n(&patience_, __ATOMIC_RELAXED);;) {
      spins < most_spins ? look_away(patience) : pause(round++);
      if (try_lock()) return keep(patience - patience / 4);
      spins += patience;
      if (patience < most_patience) patience *= 2;
    }
  }
  void keep(unsigned patience) noexcept {
    __atomic_store_n(&patience_, static_cast<unsigned char>(patience), __ATOMIC_RELAXED);
  }
  static void look_away(unsigned pauses) noexcept {
    for (unsigned i = 0; i < pauses; ++i) relax();
  }

  static void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // By the compilers' own atomics: <atomic> takes longer to compile than the pool that needs this.
  bool taken_ = false;
  unsigned char patience_ = 1;  // of the next who waits; written with the lock
};

/// Holds a lock while it lives. Who drops the lock in between (`unlocked`) has it again before the guard ends: there is
/// no flag to ask, as in `std::unique_lock`, and no header to include.
template <class Lock>
class short_guard {
 public:
  [[gnu::always_inline]] explicit short_guard(Lock& lock) noexcept : lock_(lock) { lock.lock(); }
  [[gnu::always_inline]] ~short_guard() { lock_.unlock(); }
  short_guard(short_guard const&) = delete;
  short_guard& operator=(short_guard const&) = delete;

 private:
  Lock& lock_;
};
using spin_guard = short_guard<spin_lock>;

/// The same, or holds nothing.
template <class Lock>
class optional_guard {
 public:
  [[gnu::always_inline]] optional_guard(Lock& lock, bool may_enter) noexcept : lock_(may_enter ? &lock : nullptr) {
    if (may_enter) [[likely]]
      lock.lock();
  }
  [[gnu::always_inline]] ~optional_guard() {
    if (lock_ != nullptr) [[likely]]
      lock_->unlock();
  }
  optional_guard(optional_guard const&) = delete;
  optional_guard& operator=(optional_guard const&) = delete;

  /// True if it holds the lock.
  explicit operator bool() const noexcept { return lock_ != nullptr; }

 private:
  Lock* lock_;
};

}  // namespace weir::detail
