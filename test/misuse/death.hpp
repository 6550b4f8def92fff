#pragma once
// Runs what is expected to end its process in a forked child, and says how that ended and what it said.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

namespace death {

struct ending {
  int signal = 0;    // 0: it was not killed
  std::string said;  // on stderr

  /// It aborted, and said all of these words.
  template <class... Words>
  bool with(Words... words) const {
    return signal == SIGABRT && ((said.find(words) != std::string::npos) && ...);
  }
};

/// `work` makes all it needs itself: what the parent made is over in a child.
template <class Work>
ending of(Work work) {
  int ends[2];
  if (::pipe(ends) != 0) return {-1, "no pipe"};
  std::fflush(nullptr);  // or the child prints it again
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::rlimit const none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::alarm(30);
    std::signal(SIGABRT, SIG_DFL);  // the test framework's handler would print
    ::dup2(ends[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  ending result;
  char buffer[512];
  for (::ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    result.said.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace death
