#pragma once
// A memory barrier between threads of which one side pays for both.

#include <weir/version.hpp>

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace weir::detail {

/// For an agreement between threads of which one side acts often and the other seldom. Each says something and then
/// looks at what the other one said. Of two that do so at one time, at least one sees the other, if the frequent side
/// says it by `announce`, which only keeps the compiler from reordering, and the seldom one calls `pass` between saying
/// and looking: Linux's `membarrier`.
class process_barrier {
 public:
  /// False where there is no such call: not on Linux, or a filter of system calls forbids it. Under the thread
  /// sanitizer too, which does not know it. The same for the whole life of the process.
  static bool exists() noexcept {
    int const known = __atomic_load_n(&known_, __ATOMIC_RELAXED);
    return (known != not_asked ? known : ask()) == yes;
  }

  /// The frequent side: sets a flag, and then looks.
  [[gnu::always_inline]] static void announce(bool& flag) noexcept {
    __atomic_store_n(&flag, true, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
  /// Clears it, after all that this thread did since.
  [[gnu::always_inline]] static void withdraw(bool& flag) noexcept { __atomic_store_n(&flag, false, __ATOMIC_RELEASE); }

  /// The seldom side: when this returns, every thread of the process has passed a full memory barrier since the call,
  /// or does not run. Costs a system call, and an interrupt of each processor that runs one of them: 0.2 us on two,
  /// some us on many.
  static void pass() noexcept {
    if (call(private_expedited) == 0) return;
    // A forked child may have to register anew. Where a filter came later, what a processor has stored is seen long
    // before the end of this.
    timespec const time{.tv_sec = 0, .tv_nsec = 1'000'000};
    if (call(register_private) != 0 || call(private_expedited) != 0) ::nanosleep(&time, nullptr);
  }

 private:
  // Numbers of <linux/membarrier.h>, which is not everywhere.
  static constexpr int private_expedited = 1 << 3, register_private = 1 << 4;

#if defined(__SANITIZE_THREAD__)
  static constexpr bool is_possible = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  static constexpr bool is_possible = false;
#else
  static constexpr bool is_possible = true;
#endif
#else
  static constexpr bool is_possible = true;
#endif

  static constexpr int not_asked = 0, yes = 1, no = 2;

  /// Threads that come at one time all ask. This is no function's static variable: what another thread was just about
  /// to find out, which takes some milliseconds, a forked child would wait for without end.
  [[gnu::noinline, gnu::cold]] static int ask() noexcept {
    int first = not_asked;
    int const mine = is_possible && call(register_private) == 0 ? yes : no;
    bool const is_first = __atomic_compare_exchange_n(&known_, &first, mine, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return is_first ? mine : first;
  }

  static inline constinit int known_ = not_asked;

  static long call([[maybe_unused]] int command) noexcept {
#ifdef SYS_membarrier
    return ::syscall(SYS_membarrier, command, 0, 0);
#else
    return -1;
#endif
  }
};

}  // namespace weir::detail
