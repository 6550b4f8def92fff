// needs: tsan
#include <weir/support/spin_lock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

TEST_CASE("one thread at a time") {
  weir::detail::spin_lock lock;
  long plain = 0;  // not atomic: wrong, and reported by the thread sanitizer, without the lock
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        weir::detail::spin_guard const held(lock);
        ++plain;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(plain == 8 * 5000);
}

TEST_CASE("a waiter does not get the lock while it is held, and does when it is free, however long that takes") {
  weir::detail::spin_lock lock;
  std::atomic<bool> waiting{false};
  std::atomic<bool> got{false};
  lock.lock();
  std::thread waiter([&] {
    waiting = true;
    weir::detail::spin_guard const held(lock);
    got = true;
  });
  while (!waiting) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // long enough to take the waiter past its first patience
  CHECK_FALSE(got);
  lock.unlock();
  waiter.join();
  CHECK(got);
}

TEST_CASE("who only tries gets it where it is free") {
  weir::detail::spin_lock lock;
  CHECK(lock.try_lock());
  CHECK_FALSE(lock.try_lock());
  lock.unlock();
  CHECK(lock.try_lock());
}
