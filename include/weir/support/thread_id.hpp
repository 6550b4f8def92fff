#pragma once
// The number of the calling thread, as people see it elsewhere.

#include <weir/version.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace weir::detail {

/// The kernel's number of this thread, as debuggers and `top -H` show it. A system call the first time, then a load. In
/// a forked child, the thread that forked keeps the number that it had in its parent.
inline std::uint64_t thread_id() noexcept {
  static constinit thread_local std::uint64_t id = 0;
  if (id == 0) id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  return id;
}

}  // namespace weir::detail
