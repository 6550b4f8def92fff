#pragma once
// The time of events that come too fast to look at the processor's clock for each.

#include <weir/support/tick_clock.hpp>

#include <time.h>

#include <cstdint>

namespace weir::detail {

/// The two clocks that a `sampled_clock` looks at.
struct __attribute__((visibility("default"))) machine_clocks {
  static std::uint64_t ticks() noexcept { return tick_count(); }
  /// Another number after each tick of the kernel's timer, which comes every 1 to 10 ms, mostly every 4. That is a
  /// number in memory: where a look at the processor's clock takes 15 ns, as on some virtual machines, this takes 4.
  static std::uint64_t step() noexcept {
    ::timespec now;
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) << 30 | static_cast<std::uint64_t>(now.tv_nsec);
  }
};

/// Gives the events of one thread their time in ticks. It looks at the processor's clock when the kernel's timer has
/// ticked since the last look, at every 256th event, and when another thread has looked since. Those between are one
/// tick later each. So an event is never late, and early by less than one tick of the kernel's timer; the first one
/// after a longer pause is exact.
///
/// The order is exact, over threads and objects too. Who keeps events hands in the time of the latest one that it has,
/// and each event is later than that and than all events of its thread. And who comes after another thread, having
/// waited for it, was not the last to look, or looked after that one's events.
template <class Clocks = machine_clocks>
class sampled_clock {
 public:
  static constexpr unsigned events_a_look = 256;

  /// Before an event: looks at the clock if that is due.
  [[gnu::always_inline]] void look_if_due() noexcept {
    if (Clocks::step() != step_ || --left_ == 0 || !is_last_to_look()) [[unlikely]]
      look();
  }
  /// Looks at the clock, so that the next event is exact.
  [[gnu::noinline]] void look() noexcept {
    step_ = Clocks::step();
    left_ = events_a_look;
    std::uint64_t now = 0;
    do {  // else another thread may have looked between, and taken this one's later time for an earlier one
      if (!is_last_to_look()) {
        __atomic_store_n(&last_to_look_, this, __ATOMIC_RELAXED);
        order_before_ticks();
      }
      now = Clocks::ticks();
      order_after_ticks();
    } while (!is_last_to_look());
    if (now > latest_) latest_ = now - 1;
  }
  /// The time of the next event, which comes after one at `before`.
  [[gnu::always_inline]] std::uint64_t next(std::uint64_t before) noexcept {
    latest_ = (latest_ > before ? latest_ : before) + 1;
    return latest_;
  }

 private:
  bool is_last_to_look() const noexcept { return __atomic_load_n(&last_to_look_, __ATOMIC_RELAXED) == this; }

  [[gnu::visibility("default")]] static inline sampled_clock const* last_to_look_ = nullptr;

  std::uint64_t latest_ = 0;
  std::uint64_t step_ = 0;  // of the latest look
  unsigned left_ = 1;       // events to the next look, if there is no step before
};

/// That of the calling thread.
inline constinit thread_local sampled_clock<> thread_clock{};

}  // namespace weir::detail
