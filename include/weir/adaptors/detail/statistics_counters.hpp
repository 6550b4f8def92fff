#pragma once
// The counters of one `statistics` layer, which all threads change.

#include <weir/adaptors/detail/memory_statistics.hpp>
#include <weir/adaptors/detail/thread_shares.hpp>
#include <weir/core/bytes.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// They change together under one short lock, which costs the thread that mostly counts no atomic operation; three
/// exact peaks without a lock would cost three. Where threads wait for each other, they get `thread_shares`: then this
/// is not all that there is (`with_numbers`). On a line of its own: every request of every thread writes it.
class alignas(64) statistics_counters {
 public:
  statistics_counters() = default;
  ~statistics_counters() { delete shares_.load(); }
  statistics_counters(statistics_counters const&) = delete;
  statistics_counters& operator=(statistics_counters const&) = delete;

  biased_lock lock{};
  atomic<int> watchers{};       ///< open scopes, and one where it counts by tag
  memory_statistics numbers{};  ///< all, for the lock's owner

  /// Returns `f(numbers)`, called with the lock: all numbers at one moment.
  template <class F>
  auto with_numbers(F f) {
    biased_section const section(lock);
    if (shares_.load() != nullptr) [[unlikely]]
      settle();
    return f(numbers);
  }

  /// Counts in the calling thread's share, where threads have some. False, and nothing changed, if it has to be
  /// counted in the numbers. The same for `take_off_in_share`, also if so much is not live.
  bool add_in_share(std::size_t bytes, std::size_t taken) noexcept {
    shares* const lent = made_shares();
    if (lent == nullptr || !is_amount(bytes)) return false;
    amounts<3> const a = of(bytes, taken);
    return lent->add(a) || add_and_lend(*lent, a);
  }
  bool take_off_in_share(std::size_t bytes, std::size_t taken) noexcept {
    shares* const lent = shares_.load_acquire();
    if (lent == nullptr || !is_amount(bytes)) return false;
    amounts<3> const a = of(bytes, taken);
    return lent->take_off(a) || take_off_and_lend(*lent, a);
  }

 private:
  using shares = thread_shares<3>;

  static bool is_amount(std::size_t bytes) noexcept { return static_cast<std::ptrdiff_t>(bytes) > 0; }
  static amounts<3> of(std::size_t bytes, std::size_t taken) noexcept {
    return {
        {static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(round_up_or_zero(taken, default_alignment)), 1}};
  }

  amounts<3> peaks() const noexcept {
    return {{numbers.requested.peak, numbers.allocated.peak, numbers.allocations.peak}};
  }
  [[gnu::noinline]] bool add_and_lend(shares& lent, amounts<3> const& a) noexcept {
    biased_section const section(lock);
    return with_own([&](amounts<3>& own, amounts<3>& added) { return lent.add_and_lend(own, peaks(), a, added); });
  }
  [[gnu::noinline]] bool take_off_and_lend(shares& lent, amounts<3> const& a) noexcept {
    biased_section const section(lock);
    return with_own([&](amounts<3>& own, amounts<3>& added) { return lent.take_off_and_lend(own, peaks(), a, added); });
  }

  /// Null while nobody needs them, and if there is no host memory for them.
  shares* made_shares() noexcept {
    shares* const made = shares_.load_acquire();
    return made != nullptr || !lock.is_contended() ? made : make_shares();
  }
  [[gnu::noinline]] shares* make_shares() noexcept {
    auto* const made = new (std::nothrow) shares;
    if (made == nullptr) return nullptr;
    lock.end_ownership();
    biased_section const section(lock);
    if (shares_.load() != nullptr)
      delete made;
    else
      shares_.store_release(made);
    return shares_.load();
  }

  // With the lock.
  [[gnu::noinline]] void settle() noexcept {
    with_own([&](amounts<3>& own, amounts<3>& added) {
      shares_.load()->settle(own, added);
      return true;
    });
  }
  template <class F>
  bool with_own(F f) noexcept {
    counter* const all[] = {&numbers.requested, &numbers.allocated, &numbers.allocations};
    amounts<3> own, added;
    for (unsigned i = 0; i < 3; ++i) own.of[i] = all[i]->current;
    bool const result = f(own, added);
    for (unsigned i = 0; i < 3; ++i) {
      all[i]->current = own.of[i];
      all[i]->total += added.of[i];
    }
    return result;
  }

  atomic<shares*> shares_;
};

}  // namespace weir::detail
