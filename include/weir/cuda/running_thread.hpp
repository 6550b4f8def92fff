#pragma once
// Numbers for threads: whose default stream a per-thread one is, and whether that thread has ended.

#include <weir/blocks/spin_lock.hpp>

#include <cstdint>

namespace weir::detail {

/// Gives every thread a number, never 0 and never used twice in a process (a thread's address may come back), and knows
/// which threads still run: the default streams of the others get no more work. Allocates nothing.
class running_thread {
 public:
  static std::uint64_t this_number() noexcept {
    thread_local running_thread const mine;
    return mine.number_;
  }
  static bool has_ended(std::uint64_t number) noexcept {
    spin_guard const lock(mutex);
    running_thread const* t = first;
    while (t != nullptr && t->number_ != number) t = t->next_;
    return t == nullptr;
  }

 private:
  running_thread() noexcept {
    spin_guard const lock(mutex);
    number_ = ++last;
    next_ = first;
    first = this;
  }
  ~running_thread() {
    spin_guard const lock(mutex);
    running_thread const** place = &first;
    while (*place != this) place = &(*place)->next_;
    *place = next_;
  }

  static inline constinit spin_lock mutex;
  static inline constinit running_thread const* first = nullptr;
  static inline constinit std::uint64_t last = 0;

  std::uint64_t number_ = 0;
  mutable running_thread const* next_ = nullptr;
};

}  // namespace weir::detail
