#pragma once
// The reports of the latest refusals, for whoever looks at them later.

#include <weir/core/shown_events.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace weir::detail {

/// Some texts of some KiB, by number. Thread-safe. Takes host memory where something was refused, and none before.
class latest_reports {
 public:
  static constexpr std::uint32_t most = 64;

  /// The number of the next report. They begin with 1.
  std::uint32_t begin() noexcept {
    mutex_guard const lock(mutex_);
    return ++last_;
  }
  /// Keeps its text, in place of an older one. Where there is no host memory for it, it is not kept.
  void keep(std::uint32_t number, char const* text) noexcept try {
    std::string copy(text);
    mutex_guard const lock(mutex_);
    kept& place = kept_[number % most];
    if (number < place.number) return;  // a later one was quicker
    place.number = number;
    place.text.swap(copy);
  } catch (std::bad_alloc const&) {
  }

  /// Those that are kept, the oldest first.
  void show(event_visitor& visitor) const {
    std::uint32_t last = 0;
    {
      mutex_guard const lock(mutex_);
      last = last_;
    }
    for (std::uint32_t number = last < most ? 1 : last - most + 1; number <= last; ++number)
      if (std::string const text = text_of(number); !text.empty()) visitor.see_report(number, text);
  }

 private:
  struct kept {
    std::uint32_t number = 0;
    std::string text = {};
  };

  /// Empty where it is not kept.
  std::string text_of(std::uint32_t number) const {
    mutex_guard const lock(mutex_);
    kept const& place = kept_[number % most];
    return place.number == number ? place.text : std::string();
  }

  mutable mutex mutex_;
  std::uint32_t last_ = 0;
  kept kept_[most];
};

}  // namespace weir::detail
