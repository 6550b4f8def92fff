// needs: tsan
#include <weir/pool/thread_caches.hpp>

#include <doctest/doctest.h>

#include <thread>

using weir::detail::thread_cache;
using weir::detail::thread_caches;

TEST_CASE("each thread has a cache of its own, and the next one that of a thread that ended") {
  thread_caches all;
  CHECK(all.held_by_this_thread() == nullptr);
  thread_cache* const mine = all.of_this_thread();
  REQUIRE(mine != nullptr);
  CHECK(all.of_this_thread() == mine);
  CHECK(all.held_by_this_thread() == mine);
  thread_cache *second = nullptr, *third = nullptr;
  std::thread([&] {
    CHECK(all.held_by_this_thread() == nullptr);  // to ask is not to take
    second = all.of_this_thread();
    CHECK(all.held_by_this_thread() == second);
  }).join();
  std::thread([&] { third = all.of_this_thread(); }).join();
  CHECK(second != mine);
  CHECK(third == second);
  int count = 0;
  all.for_each([&](thread_cache&) { ++count; });
  CHECK(count == 2);
}

TEST_CASE("a thread's hint is its cache once it asked for that, and no cache of a thread that ended") {
  thread_caches all;
  CHECK(all.lease().hint() == nullptr);
  thread_cache* const mine = all.of_this_thread();
  CHECK(all.lease().hint() == mine);
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      void* const before = all.lease().hint();
      CHECK((before == nullptr || before == mine));  // the thread before was most likely at the same address
      thread_cache* const own = all.of_this_thread();
      CHECK(all.lease().hint() == own);
      CHECK(own != mine);
    }).join();
}
