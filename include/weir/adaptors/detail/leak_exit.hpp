#pragma once
// The exit status of a process that leaked.

#include <weir/support/atomic.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>

namespace weir::detail {

/// Lets the process end with a status of its own if something leaked, as leak sanitizers do. What is to run at exit
/// runs all the same. Thread-safe.
class leak_exit {
 public:
  /// The latest status counts, also if this is called at exit; in this process, not in one that it forks. 0 changes
  /// nothing.
  static void leaked(int status) noexcept {
    bool const will_end = latest.load() != 0;
    process.store_release(::getpid());
    latest.store_release(status);
    if (!will_end) std::atexit(&end);
  }

 private:
  /// On Linux an exit function may call `exit`: it runs those that are left, once each, and its status is the one that
  /// counts. `_exit` would leave them out.
  static void end() noexcept {
    int const status = latest.load_acquire();
    latest.store_release(0);
    if (status != 0 && process.load() == ::getpid()) std::exit(status);
  }

  static inline constinit atomic<int> latest;
  static inline constinit atomic<::pid_t> process;
};

}  // namespace weir::detail
