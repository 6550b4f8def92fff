#pragma once
// What is charged to a budget, and the most that ever was.

#include <weir/adaptors/detail/thread_shares.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// Thread-safe and exact: never more than a request may bring it to, whatever threads do. Changed under a lock that
/// costs the thread which mostly charges no atomic instruction; read without it. Threads that wait for each other there
/// get `thread_shares`, of which the sum and the peak are as exact. On a line of its own, since every request of every
/// thread writes it.
class alignas(64) charges {
 public:
  charges() = default;
  ~charges() { delete shares_.load(); }
  charges(charges const&) = delete;
  charges& operator=(charges const&) = delete;

  /// Bytes charged now. A load, unless threads have shares.
  std::size_t load() noexcept {
    std::size_t const now = now_.load_acquire();
    if (shares_.load() == nullptr) [[likely]]
      return now;  // of a time at which nothing was lent: who sees less because of that sees the shares too
    biased_section const lock(lock_);
    settle();
    return now_.load();
  }
  /// Whether so much is charged.
  bool covers(std::size_t charge) noexcept {
    if (now_.load_acquire() >= charge || is_in_share(charge)) return true;
    shares* const lent = shares_.load();
    if (lent == nullptr || !is_amount(charge)) return false;
    biased_section const lock(lock_);
    return with_own([&](amounts<1>& own, amounts<1>& ever) { return lent->gather(own, of(charge), ever); });
  }
  /// Whether so much is charged, and no more than `bound`; false also where that takes longer to find out.
  [[gnu::always_inline]] bool is_plain(std::size_t charge) noexcept {
    // Where less is charged, or it is lent to threads, the difference wraps.
    return now_.load() - charge < bound_.load() || is_in_share(charge);
  }
  /// The most that `raise_peak` was told since the last reset.
  std::size_t peak() const noexcept { return peak_.load(); }

  /// Up to how much `charge` charges, from now on.
  void set_bound(std::size_t most) noexcept {
    biased_section const lock(lock_);
    settle();
    bound_.store_release(most);
  }

  /// For tests: threads get shares from the next charge on, as if they had often waited for each other; whether they
  /// have some.
  void set_contended() noexcept { lock_.set_contended(); }
  bool is_shared() const noexcept { return shares_.load() != nullptr; }

  /// Charges if no more than `bound` are charged then: what that is, or less where that is no new peak; else 0. Whoever
  /// is let in by a `credit` comes after what that thread did before it.
  [[gnu::always_inline]] std::size_t charge(std::size_t charge) noexcept {
    biased_owner_section const lock(lock_);
    if (!lock) [[unlikely]]
      return charge_slowly(charge);
    return charge_own(bound_.load(), charge);
  }
  /// The same up to `most`, and always what that is. `most` is looked at with the lock: nobody charges up to what it
  /// was before a `set_bound`.
  std::size_t charge_up_to(atomic<std::size_t> const& most, std::size_t charge) noexcept {
    biased_section const lock(lock_);
    settle();
    return charge_own(most.load(), charge);
  }
  /// Takes a charge back; false, and nothing below zero, if there was less.
  [[gnu::always_inline]] bool credit(std::size_t charge) noexcept {
    biased_owner_section const lock(lock_);
    if (!lock) [[unlikely]]
      return credit_slowly(charge);
    return credit_own(charge);
  }

  /// A request that brought it to `held` was served.
  [[gnu::always_inline]] void raise_peak(std::size_t held) noexcept {
    if (held > peak_.load()) [[unlikely]]
      raise_peak_to(held);
  }
  /// The peak starts again from what is charged now.
  void reset_peak() noexcept {
    biased_section const lock(lock_);
    settle();
    peak_.store_release(now_.load());
  }

 private:
  using shares = thread_shares<1>;

  static amounts<1> of(std::size_t bytes) noexcept { return {{static_cast<std::int64_t>(bytes)}}; }
  /// Neither nothing nor more than any memory, or than can be counted: what rounding up makes of that is 0.
  static bool is_amount(std::size_t bytes) noexcept { return static_cast<std::ptrdiff_t>(bytes) > 0; }

  // With the lock, and nothing lent.
  [[gnu::always_inline]] std::size_t charge_own(std::size_t most, std::size_t charge) noexcept {
    if (!is_amount(charge)) return 0;
    std::size_t const now = now_.load();
    // below 0 where the budget was lowered
    if (static_cast<std::ptrdiff_t>(most - now) < static_cast<std::ptrdiff_t>(charge)) return 0;
    now_.store_release(now + charge);
    return now + charge;
  }
  [[gnu::always_inline]] bool credit_own(std::size_t charge) noexcept {
    std::size_t const now = now_.load();
    now_.store_release(now < charge ? 0 : now - charge);
    return now >= charge;
  }

  // With the lock.
  template <class F>
  bool with_own(F f) noexcept {
    amounts<1> own = of(now_.load()), ever;
    bool const result = f(own, ever);
    now_.store_release(static_cast<std::size_t>(own.of[0]));
    return result;
  }
  // Where threads wait for each other. Nobody owns the lock where they have shares.
  [[gnu::noinline]] std::size_t charge_slowly(std::size_t charge) noexcept {
    if (shares* const lent = shares_.load_acquire(); lent != nullptr && is_amount(charge))
      return lent->add(of(charge)) ? charge : charge_and_lend(*lent, charge);
    if (lock_.is_contended() && bound_.load() != 0) [[unlikely]]
      make_shares();
    biased_section const lock(lock_);
    settle();
    return charge_own(bound_.load(), charge);
  }
  [[gnu::noinline]] bool credit_slowly(std::size_t charge) noexcept {
    if (shares* const lent = shares_.load_acquire(); lent != nullptr && is_amount(charge))
      return lent->take_off(of(charge)) || credit_and_lend(*lent, charge);
    biased_section const lock(lock_);
    settle();
    return credit_own(charge);
  }
  [[gnu::noinline]] bool is_in_share(std::size_t charge) const noexcept {
    shares* const lent = shares_.load_acquire();
    return lent != nullptr && is_amount(charge) && lent->covers(of(charge));
  }

  /// Up to how much may be charged without anybody seeing it.
  amounts<1> unseen() const noexcept {
    std::size_t const bound = bound_.load(), peak = peak_.load();
    return of(bound < peak ? bound : peak);
  }
  [[gnu::noinline]] std::size_t charge_and_lend(shares& lent, std::size_t charge) noexcept {
    biased_section const lock(lock_);
    bool const added =
        with_own([&](amounts<1>& own, amounts<1>& ever) { return lent.add_and_lend(own, unseen(), of(charge), ever); });
    return added ? charge : charge_own(bound_.load(), charge);
  }
  [[gnu::noinline]] bool credit_and_lend(shares& lent, std::size_t charge) noexcept {
    biased_section const lock(lock_);
    bool const taken = with_own(
        [&](amounts<1>& own, amounts<1>& ever) { return lent.take_off_and_lend(own, unseen(), of(charge), ever); });
    return taken || credit_own(charge);
  }

  /// Without them, where there is no host memory, it works as before.
  [[gnu::noinline]] void make_shares() noexcept {
    auto* const made = new (std::nothrow) shares;
    if (made == nullptr) return;
    lock_.end_ownership();
    biased_section const lock(lock_);
    if (shares_.load() != nullptr) return delete made;
    shares_.store_release(made);
  }

  // With the lock.
  [[gnu::always_inline]] void settle() noexcept {
    if (shares_.load() != nullptr) [[unlikely]]
      settle_shares();
  }
  [[gnu::noinline]] void settle_shares() noexcept {
    with_own([&](amounts<1>& own, amounts<1>& ever) {
      shares_.load()->settle(own, ever);
      return true;
    });
  }
  [[gnu::noinline]] void raise_peak_to(std::size_t held) noexcept {
    biased_section const lock(lock_);
    if (held > peak_.load()) peak_.store_release(held);
  }

  atomic<std::size_t> now_;  // without what is lent
  atomic<std::size_t> peak_;
  atomic<std::size_t> bound_;
  atomic<shares*> shares_;
  biased_lock lock_;
};

}  // namespace weir::detail
