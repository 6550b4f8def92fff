#include <weir/sources/lone_attempts.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

using weir::detail::lone_attempts;

TEST_CASE("an attempt that met no other is made once") {
  lone_attempts attempts;
  int made = 0;
  CHECK_FALSE(attempts([&] { return ++made == 0; }));
  CHECK(made == 1);
  CHECK(attempts([&] { return ++made == 2; }));
  CHECK_THROWS_AS(attempts([]() -> bool { throw std::logic_error("no"); }), std::logic_error);
  CHECK(attempts([] { return true; }));
}

TEST_CASE("one that was refused beside another is made again when that has ended") {
  lone_attempts attempts;
  std::atomic<bool> has_begun{false}, is_refused{false}, has_ended{false};
  std::thread other([&] {
    attempts([&] {
      has_begun = true;
      while (!is_refused) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // the other one would be seen not to wait
      has_ended = true;
      return false;
    });
  });
  while (!has_begun) std::this_thread::yield();
  int made = 0;
  CHECK(attempts([&] {
    is_refused = true;
    return ++made == 2 && has_ended;
  }));
  other.join();
}

TEST_CASE("so is one that began later than it, and has ended too") {
  lone_attempts attempts;
  int made = 0;
  CHECK(attempts([&] {
    if (++made == 2) return true;
    std::thread([&] { CHECK(attempts([] { return true; })); }).join();
    return false;
  }));
}

TEST_CASE("of threads that all ask for too much each is refused, and one that does not is served") {
  lone_attempts attempts;
  std::atomic<int> left{4};
  auto const take = [&](int wanted) {
    int got = 0;
    while (got < wanted && left.fetch_sub(1) > 0) ++got;
    if (got == wanted) return true;
    left.fetch_add(got + 1);
    return false;
  };
  std::atomic<int> served{0}, refused{0};
  std::vector<std::thread> threads;
  for (int wanted : {1, 1, 8, 9})
    threads.emplace_back([&, wanted] {
      for (int round = 0; round < 2000; ++round) {
        bool const got = attempts([&] { return take(wanted); });
        if (got) left.fetch_add(wanted);
        (wanted == 1 ? served : refused) += got == (wanted == 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(served == 4000);
  CHECK(refused == 4000);
  CHECK(left == 4);
}
