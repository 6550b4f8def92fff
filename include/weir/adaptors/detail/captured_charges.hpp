#pragma once
// What of a budget is charged for memory that stream captures keep, one sum a capture.

#include <weir/support/atomic.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// Bytes by capture. Thread-safe. `keep` allocates no host memory, since frees call it: there are `places` from the
/// beginning, and `reserve` makes more, ahead of it. A capture without a place of its own shares one with all others
/// such, and is then known by the id 0.
class captured_charges {
 public:
  static constexpr std::size_t places = 64;

  captured_charges() : accounts_(1 + places) {}

  /// The sum of all. One load.
  std::size_t total() const noexcept { return total_.load(); }

  /// Makes room for one more capture, if there is host memory for that: else captures share a place. True if it is time
  /// to `release`: all are looked through at each `keep`, and there are twice as many as that left.
  bool reserve() noexcept {
    spin_guard const lock(mutex_);
    try {
      accounts_.grow(count_ + 1);
    } catch (std::bad_alloc const&) {
      return true;
    }
    return count_ > 2 * held_ + places;
  }

  /// Adds to what is charged for a capture.
  void keep(std::uint64_t capture, std::size_t bytes) noexcept {
    spin_guard const lock(mutex_);
    find_or_add(capture).bytes += bytes;
    total_.add(bytes);
  }

  /// Calls `f(capture, bytes)` for each; 0 stands for all that have no place of their own.
  template <class F>
  void for_each(F f) noexcept {
    spin_guard const lock(mutex_);
    for (std::size_t i = 0; i < count_; ++i)
      if (accounts_[i].bytes != 0) f(accounts_[i].capture, accounts_[i].bytes);
  }

  /// Takes off up to `most` bytes; returns how many. None of a capture that has no place of its own.
  std::size_t take(std::uint64_t capture, std::size_t most) noexcept {
    spin_guard const lock(mutex_);
    account* const a = capture != 0 ? find(capture) : nullptr;
    return a == nullptr ? 0 : take_off(*a, a->bytes < most ? a->bytes : most);
  }
  /// Takes off all of `bytes`, or nothing and returns false.
  bool take_all(std::uint64_t capture, std::size_t bytes) noexcept {
    spin_guard const lock(mutex_);
    account* const a = capture != 0 ? find(capture) : nullptr;
    if (a == nullptr || a->bytes < bytes) return false;
    take_off(*a, bytes);
    return true;
  }

  /// Takes off everything of captures that `holds(capture)` denies, and calls `credit(bytes)` with how much that is.
  /// Both under the lock: what is kept meanwhile is not taken for released, and who finds nothing here any more finds
  /// it credited.
  template <class Holds, class Credit>
  void release(Holds holds, Credit credit) noexcept {
    spin_guard const lock(mutex_);
    std::size_t released = 0;
    for (std::size_t i = count_; i-- > 0;) {
      account& a = accounts_[i];
      if (a.bytes != 0 && !holds(a.capture)) {
        released += a.bytes;
        a.bytes = 0;
      }
      if (a.bytes != 0 || i == 0) continue;
      a = accounts_[--count_];
    }
    held_ = count_;
    if (released == 0) return;
    credit(released);
    total_.subtract(released);
  }

 private:
  struct account {
    std::uint64_t capture = 0;
    std::size_t bytes = 0;
  };

  account* find(std::uint64_t capture) noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (accounts_[i].capture == capture) return &accounts_[i];
    return nullptr;
  }
  account& find_or_add(std::uint64_t capture) noexcept {
    if (account* const known = find(capture); known != nullptr) return *known;
    if (count_ == accounts_.size()) return accounts_[0];
    return accounts_[count_++] = {capture, 0};
  }
  std::size_t take_off(account& a, std::size_t bytes) noexcept {
    a.bytes -= bytes;
    total_.subtract(bytes);
    return bytes;
  }

  spin_lock mutex_;
  grown_array<account> accounts_;  // the first is that of those without a place
  std::size_t count_ = 1;
  std::size_t held_ = 0;  // of which some had bytes at the last `release`
  atomic<std::size_t> total_;
};

}  // namespace weir::detail
