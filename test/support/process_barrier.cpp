#include <weir/support/process_barrier.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

using weir::detail::process_barrier;

TEST_CASE("it says the same each time, and can be passed again and again") {
  bool const exists = process_barrier::exists();
  for (int i = 0; i < 100; ++i) {
    process_barrier::pass();
    CHECK(process_barrier::exists() == exists);
  }
}

TEST_CASE("a forked child passes it, too") {
  process_barrier::exists();
  pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    process_barrier::pass();
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("what is announced is so until it is withdrawn") {
  bool flag = false;
  process_barrier::announce(flag);
  CHECK(flag);
  process_barrier::withdraw(flag);
  CHECK_FALSE(flag);
}
