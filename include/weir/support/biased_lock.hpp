#pragma once
// A lock that costs the thread which mostly takes it two plain stores.

#include <weir/support/process_barrier.hpp>
#include <weir/support/spin_lock.hpp>

namespace weir::detail {

/// Tells threads apart, also where several libraries have a copy of this each. A thread may have that of one that has
/// ended.
[[gnu::always_inline]] inline void const* this_thread() noexcept {
#if defined(__x86_64__) && defined(__linux__) && !defined(__ILP32__)
  // The thread pointer, which stands where it points to. A shared library has to call a function for the address of
  // anything that is `thread_local`: that is as long as all the rest of taking the lock. Read anew each time: what a
  // function does between two locks may be to go on in another thread, as fibers and coroutines do.
  void const* self;
  asm volatile("mov %%fs:0, %0" : "=r"(self));
  return self;
#else
  static constinit thread_local char mark = 0;
  return &mark;
#endif
}

/// True of the calling thread's. In one comparison where that reads memory: it is a part of every entry into a lock.
[[gnu::always_inline]] inline bool is_this_thread(void const* thread) noexcept {
#if defined(__x86_64__) && defined(__linux__) && !defined(__ILP32__)
  int is_other;  // no `bool`: g++ would keep it for one that is returned much later
  asm volatile("cmp %%fs:0, %1" : "=@ccnz"(is_other) : "r"(thread));
  return is_other == 0;
#else
  return thread == this_thread();
#endif
}

/// For short sections that never block, as `spin_lock`, where one thread does nearly all of them: an atomic exchange
/// takes as long as a section of some 30 instructions. A thread that took the lock many times in a row becomes its
/// owner. From then on it enters by a store and a load that only the compiler keeps in order. Another thread that wants
/// the lock takes the ownership away, lets all threads pass a memory barrier (`process_barrier`), and sees then whether
/// the owner is inside. Each time that happens it takes twice as many entries in a row, up to `longest_streak`, until
/// somebody is the owner again, so that threads which share the lock soon have a `spin_lock`. It counts how often they
/// wait, so that who has the lock can give them something better (`is_contended`). Held by a `biased_guard`. When not
/// to use it: for a lock that threads share evenly; where many objects are locked once each. `Barrier` is another one
/// only in tests.
template <class Barrier = process_barrier>
class basic_biased_lock {
 public:
  basic_biased_lock() = default;
  basic_biased_lock(basic_biased_lock const&) = delete;
  basic_biased_lock& operator=(basic_biased_lock const&) = delete;
  /// For a lock that is one thread's in all but name, which others take seldom: that one is soon the owner again.
  constexpr explicit basic_biased_lock(unsigned longest_streak) noexcept : longest_streak_(longest_streak) {}

  [[gnu::always_inline]] void lock() noexcept { entered_ = &enter(); }
  [[gnu::always_inline]] void unlock() noexcept { leave(*entered_); }

  /// Calls `f()` without the lock, which the caller holds. `f` must not throw.
  template <class F>
  auto unlocked(F f) noexcept {
    unlock();
    auto const result = f();
    lock();
    return result;
  }

  /// True once threads have often waited for each other. For good: any thread, without the lock.
  [[gnu::always_inline]] bool is_contended() const noexcept { return __atomic_load_n(&contended_, __ATOMIC_RELAXED); }
  /// From now on.
  void set_contended() noexcept { __atomic_store_n(&contended_, true, __ATOMIC_RELAXED); }
  /// They may wait as often as they like: for who has nothing better. Before other threads know the lock.
  void ignore_waits() noexcept { counts_waits_ = false; }
  /// From now on no thread owns it. Without the lock.
  void end_ownership() noexcept {
    enter_slowly();
    may_have_owner_ = false;
    __atomic_store_n(&owner_, &nobody_, __ATOMIC_RELAXED);  // at most this thread, from its next entry on
    leave(lock_.flag());
  }

  /// For tests: whether a thread owns it.
  bool has_owner() const noexcept { return owner() != &nobody_; }

 private:
  template <class Lock>
  friend class biased_section_of;
  template <class Lock>
  friend class biased_owner_section_of;

  /// Where an owner says that it is inside. Each has one of its own: a thread may stop right before it says so, and go
  /// on when another one is the owner long since.
  struct seat {
    void const* thread = nullptr;  // written once
    bool is_taken = false;
  };

  /// Returns what is to be handed to `leave`: whether the owner is inside, or whether the lock is taken.
  [[gnu::always_inline]] bool& enter() noexcept {
    seat* const mine = owner();
    if (is_this_thread(__atomic_load_n(&mine->thread, __ATOMIC_RELAXED))) [[likely]] {
      Barrier::announce(mine->is_taken);
      if (owner() == mine) [[likely]]
        return mine->is_taken;
      Barrier::withdraw(mine->is_taken);
    }
    enter_slowly();
    return lock_.flag();
  }
  /// The same for its owner; null, and nothing done, for others. Not called by `enter`, for which compilers take an
  /// instruction more then.
  [[gnu::always_inline]] bool* enter_if_owner() noexcept {
    seat* const mine = owner();
    if (is_this_thread(__atomic_load_n(&mine->thread, __ATOMIC_RELAXED))) [[likely]] {
      Barrier::announce(mine->is_taken);
      if (mine == owner()) [[likely]]
        return &mine->is_taken;
      Barrier::withdraw(mine->is_taken);
    }
    return nullptr;
  }
  /// Both are left by the same store.
  [[gnu::always_inline]] static void leave(bool& entered) noexcept { Barrier::withdraw(entered); }

  static constexpr unsigned seats = 4;  // threads beyond these never own it
  static constexpr unsigned first_streak = 64;
  static constexpr unsigned many_waits = 64;  // between two owners

  seat* owner() const noexcept { return __atomic_load_n(&owner_, __ATOMIC_ACQUIRE); }

  [[gnu::noinline]] void enter_slowly() noexcept {
    if (!lock_.try_lock()) {
      lock_.lock();
      if (counts_waits_ && ++waits_ == many_waits) set_contended();
    }
    if (has_owner()) take_away();
    if (latest_ != this_thread()) streak_ = 0;
    latest_ = this_thread();
    if (++streak_ < needed_) return;
    streak_ = 0;
    waits_ = 0;
    if (may_have_owner_ && Barrier::exists())
      __atomic_store_n(&owner_, seat_of_this_thread(), __ATOMIC_RELEASE);  // from the next time on
  }
  /// With the lock. The owner either sees that it is none any more, or is seen inside.
  void take_away() noexcept {
    seat const* const its = owner_;
    __atomic_store_n(&owner_, &nobody_, __ATOMIC_RELAXED);
    Barrier::pass();
    for (unsigned round = 0; __atomic_load_n(&its->is_taken, __ATOMIC_ACQUIRE); ++round) spin_lock::pause(round);
    if (needed_ < longest_streak_) needed_ *= 2;
  }
  /// With the lock. Nobody's if others have all of them.
  seat* seat_of_this_thread() noexcept {
    for (seat& each : seats_) {
      if (each.thread == nullptr) __atomic_store_n(&each.thread, this_thread(), __ATOMIC_RELAXED);
      if (each.thread == this_thread()) return &each;
    }
    return &nobody_;
  }

  seat* owner_ = &nobody_;
  bool contended_ = false, may_have_owner_ = true, counts_waits_ = true;
  bool* entered_ = nullptr;  // what `enter` returned to who holds it: only that one looks
  seat seats_[seats];
  seat nobody_;  // never written: so that an entry has one question less
  spin_lock lock_;
  unsigned const longest_streak_ = 1 << 16;
  unsigned needed_ = first_streak, streak_ = 0;  // entries in a row of `latest_`
  unsigned waits_ = 0;                           // of threads for others, since there was an owner
  void const* latest_ = nullptr;
};

using biased_lock = basic_biased_lock<>;
using biased_guard = short_guard<biased_lock>;

/// Holds a biased lock while it lives. Costs less than a `biased_guard`, since it keeps in a register what that has in
/// the lock: for sections in which nobody leaves the lock for a while (`unlocked`).
template <class Lock>
class biased_section_of {
 public:
  [[gnu::always_inline]] explicit biased_section_of(Lock& lock) noexcept : entered_(lock.enter()) {}
  [[gnu::always_inline]] ~biased_section_of() { Lock::leave(entered_); }
  biased_section_of(biased_section_of const&) = delete;
  biased_section_of& operator=(biased_section_of const&) = delete;

 private:
  bool& entered_;
};
using biased_section = biased_section_of<biased_lock>;

/// Holds a biased lock while it lives if this thread owns it, and else nothing: for who then goes another way.
template <class Lock>
class biased_owner_section_of {
 public:
  [[gnu::always_inline]] explicit biased_owner_section_of(Lock& lock) noexcept : entered_(lock.enter_if_owner()) {}
  [[gnu::always_inline]] ~biased_owner_section_of() {
    if (entered_ != nullptr) [[likely]]
      Lock::leave(*entered_);
  }
  biased_owner_section_of(biased_owner_section_of const&) = delete;
  biased_owner_section_of& operator=(biased_owner_section_of const&) = delete;

  /// True if it holds the lock.
  [[gnu::always_inline]] explicit operator bool() const noexcept { return entered_ != nullptr; }

 private:
  bool* const entered_;
};
using biased_owner_section = biased_owner_section_of<biased_lock>;

}  // namespace weir::detail
