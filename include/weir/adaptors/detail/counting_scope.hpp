#pragma once
// Numbers of one thread for a part of a program, beside those of a `statistics` layer.

#include <weir/adaptors/detail/memory_statistics.hpp>
#include <weir/adaptors/detail/statistics_counters.hpp>
#include <weir/core/error.hpp>

namespace weir::detail {

/// What its thread does through one layer, while it lives: a layer changes the numbers of all scopes that the calling
/// thread has open on it. They may end in any order, on the thread that made them.
class counting_scope {
 public:
  // Out of line: for a scope in a `std::optional`, g++ cannot see that the destructor takes the address back, and would
  // warn of a dangling pointer.
  [[nodiscard, gnu::noinline]] explicit counting_scope(statistics_counters& watched) noexcept
      : watched_(&watched), outer_(innermost_) {
    watched.watchers.add(1);
    innermost_ = this;
  }
  ~counting_scope() {
    for (counting_scope** at = &innermost_; *at != nullptr; at = &(*at)->outer_) {
      if (*at != this) continue;
      *at = outer_;
      watched_->watchers.subtract(1);
      return;
    }
    report_misuse("weir: statistics: a scope ended on another thread than the one that made it");
  }
  counting_scope(counting_scope const&) = delete;
  counting_scope& operator=(counting_scope const&) = delete;

  memory_statistics const& numbers() const noexcept { return numbers_; }

  /// True if the calling thread has some open, on whichever layer.
  [[gnu::always_inline]] static bool are_open() noexcept { return innermost_ != nullptr; }
  /// Calls `change(numbers)` for each that it has open on this layer.
  template <class Change>
  static void for_each_on(statistics_counters const& layer, Change change) noexcept {
    for (counting_scope* scope = innermost_; scope != nullptr; scope = scope->outer_)
      if (scope->watched_ == &layer) change(scope->numbers_);
  }

 private:
  [[gnu::visibility("default")]] inline static constinit thread_local counting_scope* innermost_ = nullptr;
  statistics_counters* watched_;
  counting_scope* outer_;
  memory_statistics numbers_;
};

}  // namespace weir::detail
