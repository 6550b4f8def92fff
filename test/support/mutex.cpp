// needs: tsan
#include <weir/support/mutex.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

using weir::detail::mutex;
using weir::detail::mutex_guard;

TEST_CASE("one thread at a time is inside") {
  constexpr int rounds = 20'000;
  mutex lock;
  int number = 0;
  auto const count = [&] {
    for (int i = 0; i < rounds; ++i) {
      mutex_guard const inside(lock);
      ++number;
    }
  };
  std::thread other(count);
  count();
  other.join();
  CHECK_EQ(number, 2 * rounds);
}

TEST_CASE("a lock that its parent held is free again in a child that renews it") {
  mutex lock;
  lock.lock();
  ::pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(10);  // should it hang
    lock.renew_in_child();
    { mutex_guard const inside(lock); }
    ::_exit(0);
  }
  lock.unlock();
  int status = -1;
  REQUIRE_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}
