#pragma once
// Captures whose memory is that of an earlier one: graphs that share a pool.

#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// While there are any, whose memory a capture's is has to be asked.
[[gnu::visibility("default")]] inline constinit unsigned captures_of_others = 0;

/// Captures under way whose graphs share memory with that of an earlier capture, the owner, and never run beside it. To
/// pools they are the owner's capture. Any thread.
class capture_owners {
 public:
  static constexpr std::size_t most = 32;  // at one time

  /// From now until `leave`, what `capture` allocates and gives back is the owner's. False if there is no room; then
  /// its memory is its own.
  bool join(std::uint64_t capture, std::uint64_t owner) noexcept {
    spin_guard const lock(lock_);
    if (count_ == most) return false;
    all_[count_++] = {capture, owner};
    __atomic_fetch_add(&captures_of_others, 1, __ATOMIC_SEQ_CST);
    return true;
  }

  /// The capture has ended: CUDA gives its number to no other.
  void leave(std::uint64_t capture) noexcept {
    spin_guard const lock(lock_);
    for (std::size_t i = 0; i < count_; ++i) {
      if (all_[i].capture != capture) continue;
      all_[i] = all_[--count_];
      __atomic_fetch_sub(&captures_of_others, 1, __ATOMIC_SEQ_CST);
      return;
    }
  }

  /// The capture itself, if it has joined none.
  std::uint64_t owner_of(std::uint64_t capture) noexcept {
    spin_guard const lock(lock_);
    for (std::size_t i = 0; i < count_; ++i)
      if (all_[i].capture == capture) return all_[i].owner;
    return capture;
  }

 private:
  struct joined {
    std::uint64_t capture, owner;
  };

  spin_lock lock_;
  joined all_[most] = {};
  std::size_t count_ = 0;
};

[[gnu::visibility("default")]] inline constinit capture_owners owners_of_captures;

/// What this thread gives back counts as given back in this capture; 0: as it is.
[[gnu::visibility("default")]] inline constinit thread_local std::uint64_t acted_capture = 0;

}  // namespace weir::detail
