#pragma once
// What is charged to a budget, and the most that ever was.

#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>

namespace weir::detail {

/// Thread-safe and exact: never more than a request may bring it to, whatever threads do. Changed under a lock that
/// costs the thread which mostly charges no atomic instruction; read without it. On a line of its own, since every
/// request of every thread writes it.
class alignas(64) charges {
 public:
  /// Bytes charged now.
  std::size_t load() const noexcept { return now_.load(); }
  /// The most that `raise_peak` was told since the last reset.
  std::size_t peak() const noexcept { return peak_.load(); }

  /// Charges if no more than `most` are charged then: what that is, else 0. Whoever is let in by a `credit` comes after
  /// what that thread did before it.
  [[gnu::always_inline]] std::size_t charge_up_to(std::size_t most, std::size_t charge) noexcept {
    auto const wanted = static_cast<std::ptrdiff_t>(charge);
    if (wanted <= 0) return 0;  // rounding up wrapped, or it exceeds any memory
    biased_section const lock(lock_);
    std::size_t const now = now_.load();
    if (static_cast<std::ptrdiff_t>(most - now) < wanted) return 0;  // below 0 where the budget was lowered
    now_.store_release(now + charge);
    return now + charge;
  }
  /// Takes a charge back; false, and nothing below zero, if there was less.
  [[gnu::always_inline]] bool credit(std::size_t charge) noexcept {
    biased_section const lock(lock_);
    std::size_t const now = now_.load();
    now_.store_release(now < charge ? 0 : now - charge);
    return now >= charge;
  }

  /// A request that brought it to `held` was served.
  [[gnu::always_inline]] void raise_peak(std::size_t held) noexcept {
    if (held > peak_.load()) [[unlikely]]
      raise_peak_to(held);
  }
  /// The peak starts again from what is charged now.
  void reset_peak() noexcept {
    biased_section const lock(lock_);
    peak_.store_release(now_.load());
  }

 private:
  [[gnu::noinline]] void raise_peak_to(std::size_t held) noexcept {
    biased_section const lock(lock_);
    if (held > peak_.load()) peak_.store_release(held);
  }

  atomic<std::size_t> now_;
  atomic<std::size_t> peak_;
  biased_lock lock_;
};

}  // namespace weir::detail
