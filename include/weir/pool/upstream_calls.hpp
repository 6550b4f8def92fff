#pragma once
// What threads are taking from an upstream and giving back just now, and how a request waits for that.

#include <weir/core/call_note.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/support/spin_lock.hpp>

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// How an attempt to take memory from an upstream ended. `contended`: refused while other threads were taking or giving
/// back what may be enough.
enum class growth { done, refused, contended };

/// Memory that one thread is taking from an upstream or giving back may be just what another thread's request lacks:
/// such a request waits here, then tries again. Guarded by its owner's lock; allocates nothing.
class upstream_calls {
  /// A call that a thread is in, and the one that it was in before that.
  struct entered_call {
    upstream_calls const* of;
    entered_call const* outer;
  };

 public:
  /// All that one thread does with the upstream for one purpose: one call, or several that ask for less and less. The
  /// owner's lock is held where it begins and where it ends.
  class attempt {
   public:
    // Out of line: where g++ inlines it, but not the destructor, it warns of the address that is kept.
    [[gnu::noinline]] explicit attempt(upstream_calls& all) noexcept
        : all_(all), began_alone_(all.oldest_ == nullptr), number_(++all.begun_), before_(all.newest_) {
      (before_ == nullptr ? all.oldest_ : before_->after_) = this;
      all.newest_ = this;
    }
    ~attempt() {
      (before_ == nullptr ? all_.oldest_ : before_->after_) = after_;
      (after_ == nullptr ? all_.newest_ : after_->before_) = before_;
    }
    attempt(attempt const&) = delete;
    attempt& operator=(attempt const&) = delete;

    /// What it is called when it fails.
    growth refusal() const noexcept {
      return began_alone_ && all_.begun_ == number_ ? growth::refused : growth::contended;
    }

   private:
    friend upstream_calls;
    upstream_calls& all_;
    bool began_alone_;
    pthread_t thread_ = ::pthread_self();
    std::uint64_t number_;
    attempt* before_;
    attempt* after_ = nullptr;
  };

  /// One call of an attempt. Drops the owner's lock while it lives. What is noted of it (`last_call`) is not of what
  /// the owner was asked for, and lost.
  template <class Lock>
  class call {
   public:
    [[gnu::noinline]] call(upstream_calls& all, Lock& lock, std::size_t bytes) noexcept
        : all_(all), lock_(lock), bytes_(bytes), entered_{&all, innermost_} {
      all_.bytes_ += bytes_;
      innermost_ = &entered_;
      lock_.unlock();
    }
    ~call() {
      lock_.lock();
      innermost_ = entered_.outer;
      all_.bytes_ -= bytes_;
    }
    call(call const&) = delete;
    call& operator=(call const&) = delete;

   private:
    upstream_calls& all_;
    Lock& lock_;
    std::size_t bytes_;
    entered_call entered_;
    calls_of_its_own noted_;
  };

  upstream_calls() = default;
  /// For one of several owners that share an upstream by `below`: their attempts may wait for each other there, or
  /// further down.
  explicit upstream_calls(upstream_calls const* below) noexcept : below_(below) {}
  upstream_calls(upstream_calls const&) = delete;
  upstream_calls& operator=(upstream_calls const&) = delete;

  /// Calls `f()` as one call of an attempt: without the owner's lock, and unseen by captures.
  template <class Lock, class F>
  bool without(Lock& lock, std::size_t bytes, F f) {
    call<Lock> const under_way(*this, lock, bytes);
    return relaxed(f);
  }

  /// Bytes that are being taken or given back.
  std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the calling thread is in a call of some owner's.
  static bool is_thread_in_call() noexcept { return innermost_ != nullptr; }
  /// True while some attempt has not ended, whosever it is.
  bool are_under_way() const noexcept { return oldest_ != nullptr; }
  /// A call has brought memory, or given it back. Not to who repeats an attempt, of its own: what its upstream takes
  /// here and gives back in each would have it go on without end.
  void count_success() noexcept {
    if (::pthread_equal(repeats_, ::pthread_self()) == 0) ++successes_;
  }

  /// How many have.
  std::uint64_t successes() const noexcept { return successes_; }

  /// Waits, without the lock, until the attempts that other threads have under way now have ended; false if there is
  /// none. Nor does a thread wait that is in a call itself, here or below, since an upstream may use what stands on it:
  /// two of those would wait for each other. So might two that are in calls elsewhere, as reclaimers are that use each
  /// other's pool: of these one at a time waits.
  template <class Lock>
  bool wait(Lock& lock) const noexcept {
    std::uint64_t const latest = begun_;
    if (oldest_ == nullptr || is_in_attempt()) return false;
    wait_from_elsewhere const mine(*this);
    if (!mine.may_wait()) return false;
    for (unsigned round = 0; oldest_ != nullptr && oldest_->number_ <= latest; ++round) pause(lock, round);
    return true;
  }

  /// For a request whose first attempt was contended: waits for the others, then lets it `try_again()`, which returns a
  /// `growth`; true if that was done. Ends when it is refused with nobody in its way, or if meanwhile nobody else got
  /// or gave back anything. Requests that come to this take turns, so that two of them cannot refuse each other.
  template <class Lock, class TryAgain>
  bool repeat(Lock& lock, TryAgain try_again) {
    if (is_in_attempt()) return false;
    turn const mine(*this, lock);
    if (!mine.has_come()) return false;
    growth outcome = growth::contended;
    for (bool moved = true; outcome == growth::contended && moved;) {
      std::uint64_t const successes = successes_;
      wait(lock);
      outcome = try_again();
      moved = successes_ != successes;
    }
    return outcome == growth::done;
  }

 private:
  /// A wait of the calling thread. If it is in a call of an owner that does not stand on this one, it may wait only
  /// while no other thread of the process waits so. Then no threads wait for each other in a circle: all but one of
  /// them would wait further down than what they are in a call of, so that one for what stands on what it is in a call
  /// of, and none waits for that (`is_in_attempt`).
  class wait_from_elsewhere {
   public:
    explicit wait_from_elsewhere(upstream_calls const& here) noexcept
        : is_one_(here.is_in_call_elsewhere()),
          may_wait_(!is_one_ || __atomic_exchange_n(&waits_in_, forks + 1, __ATOMIC_ACQUIRE) != forks + 1) {}
    ~wait_from_elsewhere() {
      if (is_one_ && may_wait_) __atomic_store_n(&waits_in_, 0, __ATOMIC_RELEASE);
    }
    wait_from_elsewhere(wait_from_elsewhere const&) = delete;
    wait_from_elsewhere& operator=(wait_from_elsewhere const&) = delete;

    bool may_wait() const noexcept { return may_wait_; }

   private:
    // 0, or the process in which one waits so, as the number of forks up to it, counted from 1: a child that is forked
    // meanwhile has no such thread.
    [[gnu::visibility("default")]] static inline constinit unsigned waits_in_ = 0;
    bool const is_one_, may_wait_;
  };

  /// Waits until it is first among those that wait for a turn, and is that while it lives.
  class turn {
   public:
    template <class Lock>
    turn(upstream_calls& all, Lock& lock) noexcept : all_(all) {
      wait_from_elsewhere const mine(all);
      has_come_ = mine.may_wait();
      if (!has_come_) return;
      std::uint64_t const number = all_.last_turn_++;
      for (unsigned round = 0; all_.turn_ != number; ++round) pause(lock, round);
      all_.repeats_ = ::pthread_self();
    }
    ~turn() {
      if (!has_come_) return;
      all_.repeats_ = {};
      ++all_.turn_;
    }
    turn(turn const&) = delete;
    turn& operator=(turn const&) = delete;

    /// False where it may not wait.
    bool has_come() const noexcept { return has_come_; }

   private:
    upstream_calls& all_;
    bool has_come_ = false;
  };

  template <class Lock>
  static void pause(Lock& lock, unsigned round) noexcept {
    lock.unlock();
    spin_lock::pause(round);
    lock.lock();
  }
  bool is_in_attempt() const noexcept {
    for (upstream_calls const* below = below_; below != nullptr; below = below->below_)
      if (below->is_in_call()) return true;
    for (attempt const* a = oldest_; a != nullptr; a = a->after_)
      if (::pthread_equal(a->thread_, ::pthread_self()) != 0) return true;
    return false;
  }
  /// Whether the calling thread is. Any thread, without the lock.
  bool is_in_call() const noexcept {
    entered_call const* each = innermost_;
    while (each != nullptr && each->of != this) each = each->outer;
    return each != nullptr;
  }
  /// Whether it is in a call of an owner that is another one and does not stand on this one.
  bool is_in_call_elsewhere() const noexcept {
    entered_call const* each = innermost_;
    while (each != nullptr && each->of->reaches(*this)) each = each->outer;
    return each != nullptr;
  }
  bool reaches(upstream_calls const& lower) const noexcept {
    upstream_calls const* each = this;
    while (each != nullptr && each != &lower) each = each->below_;
    return each != nullptr;
  }

  [[gnu::visibility("default")]] static inline constinit thread_local entered_call const* innermost_ = nullptr;

  upstream_calls const* const below_ = nullptr;
  attempt* oldest_ = nullptr;
  attempt* newest_ = nullptr;
  std::uint64_t begun_ = 0;
  std::uint64_t successes_ = 0;
  std::uint64_t turn_ = 0;
  std::uint64_t last_turn_ = 0;
  pthread_t repeats_{};  // who has the turn, or nobody
  std::size_t bytes_ = 0;
};

/// What owners over this upstream share it by: the calls of the first pool below. Null where there is none.
template <class Upstream>
upstream_calls const* calls_shared_below(Upstream& upstream) {
  upstream_calls const* found = nullptr;
  detail::for_each_layer(upstream, [&](auto& layer) {
    if (found == nullptr) found = detail::calls_of_layer(layer);
  });
  return found;
}

}  // namespace weir::detail
