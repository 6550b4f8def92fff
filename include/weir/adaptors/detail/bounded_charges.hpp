#pragma once
// Charges up to a bound that may change, and who is told on the way there.

#include <weir/adaptors/detail/charges.hpp>
#include <weir/adaptors/detail/paid_ahead.hpp>
#include <weir/core/call_note.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/function.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Charges with a bound that can be changed, and a mark below it that is told of. Thread-safe. `charges::charge` and
/// `is_plain` say no where this is not all that a request needs: near the bound, above the mark, and with reserves.
class bounded_charges : public charges {
 public:
  /// `mark`: each time that charges go above it is counted, and `on_crossed` told, if there is one; 0: there is none.
  bounded_charges(std::size_t mark, function<void(std::size_t)> const& on_crossed)
      : mark_(mark == 0 ? ~std::size_t{0} : mark), on_crossed_(on_crossed) {}

  /// Up to how much is charged from now on. What is charged stays so, also if it is more.
  void set_max(std::size_t bytes) noexcept {
    constexpr std::size_t no_limit = ~std::size_t{0} >> 1;  // as much as differences can count
    spin_guard const lock(changes_);
    max_.store_release(bytes < no_limit ? bytes : no_limit);
    update_plain();
  }
  std::size_t max() const noexcept { return max_.load(); }
  /// From now on every charge may be paid by a reserve, its own or that of a budget above.
  void set_has_reserves() noexcept {
    spin_guard const lock(changes_);
    has_reserves_.store_release(true);
    update_plain();
  }

  /// Charges up to the budget: what is charged then, else 0. Who goes above the mark tells; each crossing is one
  /// request's, so that none is told twice. Throws what `on_crossed` throws, and then nothing is charged.
  std::size_t charge_and_tell(std::size_t charge) {
    std::size_t const held = charge_up_to(max_, charge);
    if (held <= mark_ || held - charge > mark_) return held;
    crossed_.add(1);
    if (on_crossed_) try {
        paid_ahead const hidden;
        in_program_code const its_own;
        on_crossed_(held);
      } catch (...) {
        credit(charge);
        throw;
      }
    return held;
  }
  std::uint64_t crossed() const noexcept { return crossed_.load(); }
  /// The most if there is none.
  std::size_t mark() const noexcept { return mark_; }

 private:
  void update_plain() noexcept {
    std::size_t const most = max_.load();
    set_bound(has_reserves_.load() ? 0 : mark_ < most ? mark_ : most);
  }

  std::size_t const mark_;
  function<void(std::size_t)> on_crossed_;
  spin_lock changes_;  // of the two below
  atomic<std::size_t> max_;
  atomic<bool> has_reserves_;
  atomic<std::uint64_t> crossed_;
};

}  // namespace weir::detail
