#include <weir/adaptors/detail/leak_exit.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

using weir::detail::leak_exit;

namespace {

/// Leaks when it goes, which for a static object is at exit.
struct leaking_at_exit {
  ~leaking_at_exit() { leak_exit::leaked(5); }
};

/// What a child that does this exits with; it would have been 0.
template <class F>
int status_of(F work) {
  ::pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    std::exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a process that leaked ends with the status, and another as it would") {
  CHECK(status_of([] { leak_exit::arm(); }) == 0);
  CHECK(status_of([] { leak_exit::arm(), leak_exit::leaked(0); }) == 0);
  CHECK(status_of([] { leak_exit::arm(), leak_exit::leaked(23); }) == 23);
  CHECK(status_of([] {
          leak_exit::arm();
          [[maybe_unused]] static leaking_at_exit const later;
        }) == 5);
}
