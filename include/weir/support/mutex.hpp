#pragma once
// A lock for sections that may block: the part of `std::mutex` that weir needs, without its header.

#include <weir/version.hpp>

#include <pthread.h>

namespace weir::detail {

/// A POSIX mutex. Held by a `mutex_guard`. When not to use it: for short sections that never block (`spin_lock`).
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(mutex const&) = delete;
  mutex& operator=(mutex const&) = delete;

  void lock() noexcept { ::pthread_mutex_lock(&handle_); }
  void unlock() noexcept { ::pthread_mutex_unlock(&handle_); }

  /// Free again, whoever had it. For a forked child alone: the thread that holds it may not be there.
  void renew_in_child() noexcept { handle_ = PTHREAD_MUTEX_INITIALIZER; }

 private:
  pthread_mutex_t handle_ = PTHREAD_MUTEX_INITIALIZER;
};

/// Holds a `mutex` while it lives. Who drops the lock in between has it again before the guard ends.
class mutex_guard {
 public:
  explicit mutex_guard(mutex& lock) noexcept : lock_(lock) { lock_.lock(); }
  ~mutex_guard() { lock_.unlock(); }
  mutex_guard(mutex_guard const&) = delete;
  mutex_guard& operator=(mutex_guard const&) = delete;

 private:
  mutex& lock_;
};

}  // namespace weir::detail
