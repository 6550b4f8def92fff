#include <weir/adaptors/detail/leak_exit.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using weir::detail::leak_exit;

namespace {

/// Leaks when it goes, which for a static object is at exit.
struct leaking_at_exit {
  ~leaking_at_exit() { leak_exit::leaked(5); }
};

/// What a child that does this exits with; it would have been 0.
template <class F>
int status_of(F work) {
  std::fflush(nullptr);  // or the child prints it again
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
  CHECK(status_of([] {}) == 0);
  CHECK(status_of([] { leak_exit::leaked(0); }) == 0);
  CHECK(status_of([] { leak_exit::leaked(23); }) == 23);
  CHECK(status_of([] { leak_exit::leaked(23), leak_exit::leaked(24); }) == 24);
}

TEST_CASE("what leaks at exit counts too, whenever the object was made") {
  CHECK(status_of([] { [[maybe_unused]] static leaking_at_exit const only; }) == 5);
  CHECK(status_of([] {
          [[maybe_unused]] static leaking_at_exit const earlier;
          leak_exit::leaked(23);
        }) == 5);
  CHECK(status_of([] {
          leak_exit::leaked(23);
          [[maybe_unused]] static leaking_at_exit const later;
        }) == 5);
}

TEST_CASE("exit functions that were registered before run too, once each") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  static int written = -1;  // static: exit functions take no arguments
  written = ends[1];
  CHECK(status_of([] {
          std::atexit([] { static_cast<void>(::write(written, "b", 1) == 1); });
          leak_exit::leaked(23);
          std::atexit([] { static_cast<void>(::write(written, "a", 1) == 1); });
        }) == 23);
  ::close(ends[1]);
  char text[8] = {};
  CHECK(::read(ends[0], text, sizeof text) == 2);
  CHECK(std::string(text) == "ab");
  ::close(ends[0]);
}

TEST_CASE("a forked child ends as it would, and with the status of what it leaked itself") {
  int const status = status_of([] {
    leak_exit::leaked(23);
    if (status_of([] {}) != 0) ::_exit(1);
    if (status_of([] { leak_exit::leaked(24); }) != 24) ::_exit(2);
    if (status_of([] { [[maybe_unused]] static leaking_at_exit const earlier; }) != 5) ::_exit(3);
  });
  CHECK(status == 23);
}
