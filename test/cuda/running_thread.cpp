// needs: tsan
#include <weir/cuda/running_thread.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

using weir::detail::running_thread;

TEST_CASE("every thread has a number of its own, and threads that ended are known") {
  std::set<std::uint64_t> numbers{0, running_thread::this_number()};
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      std::uint64_t const mine = running_thread::this_number();
      CHECK(running_thread::this_number() == mine);
      CHECK(numbers.insert(mine).second);
      CHECK_FALSE(running_thread::has_ended(mine));
    }).join();
  for (std::uint64_t const number : numbers)
    CHECK(running_thread::has_ended(number) == (number != running_thread::this_number()));
}

TEST_CASE("threads may begin, ask and end at once") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round)
        std::thread([&] { wrong += running_thread::has_ended(running_thread::this_number()); }).join();
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}
