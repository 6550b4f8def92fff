// needs: tsan
#include <weir/support/thread_hints.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

using weir::detail::thread_hints;

TEST_CASE("a thread finds what it kept last, until it forgets that") {
  thread_hints<int> hints;
  int one = 1, two = 2;
  CHECK(hints.find() == nullptr);
  hints.keep(&one);
  CHECK(hints.find() == &one);
  hints.keep(&two);
  CHECK(hints.find() == &two);
  hints.forget();
  CHECK(hints.find() == nullptr);
}

TEST_CASE("few threads have a place each, mostly, and of those that share one who kept last is right") {
  thread_hints<int> hints;
  constexpr int count = 16;
  std::vector<int> kept(count);
  std::atomic<int> wrong{0}, others{0};
  std::barrier all_kept(count), all_found(count);
  std::vector<std::thread> threads;
  for (int& mine : kept)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        hints.keep(&mine);
        all_kept.arrive_and_wait();
        int* const seen = hints.find();
        wrong += seen == nullptr || seen < kept.data() || seen >= kept.data() + count;
        others += seen != &mine;
        all_found.arrive_and_wait();
      }
    });
  for (std::thread& each : threads) each.join();
  CHECK(wrong == 0);
  CHECK(others < 20 * count / 2);
}
