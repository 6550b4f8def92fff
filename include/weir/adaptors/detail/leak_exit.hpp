#pragma once
// The exit status of a process that leaked.

#include <weir/support/atomic.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace weir::detail {

/// Lets the process end with a status of its own if something leaked, as leak sanitizers do. Whoever looks for leaks
/// calls `arm` when it begins: what happens at exit is then looked at after all that is made later is destroyed.
/// Thread-safe.
class leak_exit {
 public:
  static void arm() noexcept { [[maybe_unused]] static bool const is_armed = std::atexit(&end) == 0; }
  /// The latest status counts. 0 changes nothing.
  static void leaked(int status) noexcept { latest.store_release(status); }

 private:
  static void end() noexcept {
    int const status = latest.load_acquire();
    if (status == 0) return;
    std::fflush(nullptr);
    ::_exit(status);
  }

  static inline constinit atomic<int> latest;
};

}  // namespace weir::detail
