#pragma once
// The numbers that `statistics` keeps, and their table.

#include <weir/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace weir {

/// One quantity over time. In a scope `current` is what the scope added less what it gave back, and may be negative.
struct counter {
  std::int64_t current = 0;  ///< now
  std::int64_t peak = 0;     ///< the most that `current` ever was; never below 0
  std::int64_t total = 0;    ///< all that was ever added

  std::int64_t given_back() const noexcept { return total - current; }

  [[gnu::always_inline]] void add(std::int64_t amount) noexcept {
    total += amount;
    current += amount;
    if (current > peak) peak = current;
  }
  void take_off(std::int64_t amount) noexcept { current -= amount; }
  /// As if `take_off` had not been called: then what others added meanwhile was added to it.
  void put_back(std::int64_t amount) noexcept {
    current += amount;
    if (current > peak) peak = current;
  }

  friend bool operator==(counter const&, counter const&) noexcept = default;
};

/// A consistent set of numbers, copied out at one moment.
struct memory_statistics {
  counter requested;          ///< bytes as callers asked for them
  counter allocated;          ///< what that takes of the upstream (`weir::taken`), each rounded up to 256 B
  counter allocations;        ///< how many
  std::int64_t failures = 0;  ///< requests that ended in an exception; they are in no other number

  /// How many allocations are live.
  std::int64_t live() const noexcept { return allocations.current; }

  /// A request was served; `taken` is what it took of the upstream. Or `count` of them, that are so large together.
  [[gnu::always_inline]] void add(std::size_t bytes, std::size_t taken, std::int64_t count = 1) noexcept {
    requested.add(static_cast<std::int64_t>(bytes));
    allocated.add(static_cast<std::int64_t>(round_up_or_zero(taken, default_alignment)));
    allocations.add(count);
  }
  [[gnu::always_inline]] void take_off(std::size_t bytes, std::size_t taken, std::int64_t count = 1) noexcept {
    requested.take_off(static_cast<std::int64_t>(bytes));
    allocated.take_off(static_cast<std::int64_t>(round_up_or_zero(taken, default_alignment)));
    allocations.take_off(count);
  }
  /// As if `take_off` had not been called.
  void put_back(std::size_t bytes, std::size_t taken, std::int64_t count = 1) noexcept {
    requested.put_back(static_cast<std::int64_t>(bytes));
    allocated.put_back(static_cast<std::int64_t>(round_up_or_zero(taken, default_alignment)));
    allocations.put_back(count);
  }
  /// Peaks start again from what is live now.
  void reset_peaks() noexcept {
    for (counter* const each : {&requested, &allocated, &allocations})
      each->peak = each->current > 0 ? each->current : 0;
  }

  /// A table for people, 72 columns wide, ending in a newline. `title` heads it.
  std::string summary(std::string const& title = "weir statistics") const {
    std::string text = title + "   failures " + std::to_string(failures) + "\n";
    text += row("Metric", "Current", "Peak", "Total alloc", "Total freed");
    text += row("Requested", bytes(requested.current), bytes(requested.peak), bytes(requested.total),
                bytes(requested.given_back()));
    text += row("Allocated", bytes(allocated.current), bytes(allocated.peak), bytes(allocated.total),
                bytes(allocated.given_back()));
    text += row("Allocations", std::to_string(allocations.current), std::to_string(allocations.peak),
                std::to_string(allocations.total), std::to_string(allocations.given_back()));
    return text;
  }

  friend bool operator==(memory_statistics const&, memory_statistics const&) noexcept = default;

 private:
  static std::string bytes(std::int64_t amount) {
    return amount < 0 ? "-" + format_bytes(static_cast<std::size_t>(-amount))
                      : format_bytes(static_cast<std::size_t>(amount));
  }
  static std::string row(std::string const& name, std::string const& current, std::string const& peak,
                         std::string const& total, std::string const& freed) {
    char text[160];
    std::snprintf(text, sizeof text, "| %-12.12s | %11.20s | %11.20s | %11.20s | %11.20s |\n", name.c_str(),
                  current.c_str(), peak.c_str(), total.c_str(), freed.c_str());
    return text;
  }
};

}  // namespace weir
