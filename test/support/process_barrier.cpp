#include <weir/support/process_barrier.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

using weir::detail::process_barrier;

// Before all others, which have the answer from then on.
TEST_CASE("a child that is forked while another thread asks for the first time has an answer") {
  for (int i = 0; i < 20; ++i) {
    pid_t const parent = ::fork();
    REQUIRE(parent >= 0);
    if (parent == 0) {
      std::atomic<bool> asks{false};
      std::thread other([&] {
        asks = true;
        process_barrier::exists();
      });
      while (!asks) continue;
      pid_t const child = ::fork();
      if (child == 0) {
        ::alarm(10);
        process_barrier::exists();
        ::_exit(7);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      other.join();
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(parent, &status, 0) == parent);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    if (status != 7 << 8) break;
  }
}

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
