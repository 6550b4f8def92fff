#pragma once
// The processor's own clock, for what is too frequent to ask the system for the time.

#include <weir/version.hpp>

#include <time.h>

#include <cstdint>

namespace weir::detail {

inline std::uint64_t nanoseconds_of(::clockid_t clock) noexcept {
  ::timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Rises at a constant rate that nobody knows, of at least half a tick a nanosecond; the same on all processors, as
/// Linux needs it for its own clock. A third to a half of what `clock_gettime` costs. Elsewhere than on x86-64 and
/// AArch64 it is nanoseconds.
inline std::uint64_t tick_count() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks << 5;  // the counter may be as slow as 25 MHz
#else
  return nanoseconds_of(CLOCK_MONOTONIC);
#endif
}

/// All that this thread stored before is seen by others before it next reads the ticks.
inline void order_before_ticks() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_mfence();
  __builtin_ia32_lfence();
#elif defined(__aarch64__)
  asm volatile("dmb ish\n\tisb" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
/// The ticks that it read before were those before all that it loads next.
inline void order_after_ticks() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/// One moment, in ticks and in time. Two of them say how long a tick is.
struct tick_moment {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;  ///< of a clock that is never set
  std::uint64_t since_1970 = 0;   ///< nanoseconds

  static tick_moment now() noexcept {
    return {tick_count(), nanoseconds_of(CLOCK_MONOTONIC), nanoseconds_of(CLOCK_REALTIME)};
  }
};

/// Turns ticks into time by two moments, best with those before, between and after them. Exact to some hundred
/// nanoseconds.
class tick_scale {
 public:
  tick_scale(tick_moment const& from, tick_moment const& to) noexcept
      : from_(from),
        nanoseconds_a_tick_(to.ticks <= from.ticks ? 1
                                                   : static_cast<double>(to.nanoseconds - from.nanoseconds) /
                                                         static_cast<double>(to.ticks - from.ticks)) {}

  /// Since `from`; 0 for what was before.
  std::uint64_t nanoseconds(std::uint64_t ticks) const noexcept {
    if (ticks <= from_.ticks) return 0;
    return static_cast<std::uint64_t>(static_cast<double>(ticks - from_.ticks) * nanoseconds_a_tick_);
  }

 private:
  tick_moment from_;
  double nanoseconds_a_tick_;
};

}  // namespace weir::detail
