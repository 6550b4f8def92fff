#pragma once
// The budgets that stand on a budget, for what only they know.

#include <weir/support/atomic.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>

namespace weir::detail {

/// One of them: who keeps the account of what stream captures keep of its memory. A place in the list of the budget
/// below, at the same address as long as it is in there.
struct limit_above {
  void const* layer;
  void (*credit_released)(void const* layer) noexcept;  ///< see `limits_above::credit_released`
  std::size_t (*captured)(void const* layer) noexcept;  ///< what of that is charged to the budget below
  limit_above* next = nullptr;
};

/// The list. Thread-safe; asking takes the locks of those above, never the other way round.
class limits_above {
 public:
  void add(limit_above& above) noexcept {
    spin_guard const lock(mutex_);
    above.next = first_.load();
    first_.store_release(&above);
  }
  /// Afterwards nobody asks it any more.
  void remove(limit_above& above) noexcept {
    spin_guard const lock(mutex_);
    if (first_.load() == &above) return first_.store_release(above.next);
    for (limit_above* at = first_.load(); at != nullptr; at = at->next)
      if (at->next == &above) return void(at->next = above.next);
  }

  /// Lets each credit what captures kept whose memory was released since, here and below. A load where there are none.
  void credit_released() const noexcept {
    for_each([](limit_above const& above) { above.credit_released(above.layer); });
  }
  /// How many bytes are charged below for what captures keep of them. A load where there are none.
  std::size_t captured() const noexcept {
    std::size_t all = 0;
    for_each([&](limit_above const& above) { all += above.captured(above.layer); });
    return all;
  }

 private:
  template <class F>
  void for_each(F f) const noexcept {
    if (first_.load() == nullptr) return;
    spin_guard const lock(mutex_);
    for (limit_above const* at = first_.load(); at != nullptr; at = at->next) f(*at);
  }

  mutable spin_lock mutex_;
  atomic<limit_above*> first_;
};

}  // namespace weir::detail
