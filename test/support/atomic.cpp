// needs: tsan
#include <weir/support/atomic.hpp>

#include <doctest/doctest.h>

#include <thread>

using weir::detail::atomic;

TEST_CASE("what two threads add and take away is counted exactly") {
  constexpr int rounds = 20'000;
  atomic<int> number;
  auto const count = [&number] {
    for (int i = 0; i < rounds; ++i) {
      number.add(3);
      number.subtract(1);
    }
  };
  std::thread other(count);
  count();
  other.join();
  CHECK_EQ(number.load(), 2 * rounds * 2);
}

TEST_CASE("a value is replaced by those who saw it last, and nobody else") {
  atomic<unsigned> number;
  unsigned seen = 1;
  CHECK_FALSE(number.replace_release(seen, 7));
  CHECK_EQ(seen, 0);
  CHECK_EQ(number.load(), 0);
  while (!number.replace_release(seen, 7)) CHECK_EQ(seen, 0);  // it may fail for no reason
  CHECK_EQ(number.load(), 7);
}

TEST_CASE("who acquires a pointer sees what was written before it was released") {
  int written = 0;
  atomic<int*> shared;
  std::thread writer([&] {
    written = 42;
    shared.store_release(&written);
  });
  int* seen = nullptr;
  while ((seen = shared.load_acquire()) == nullptr) std::this_thread::yield();
  CHECK_EQ(*seen, 42);
  writer.join();
}

TEST_CASE("of two threads that each count themselves and then look, one sees the other") {
  for (int round = 0; round < 500; ++round) {
    atomic<int> here, there;
    bool seen_here = false, seen_there = false;
    std::thread other([&] {
      there.add_ordered(1);
      seen_here = here.load_ordered() != 0;
    });
    here.add_ordered(1);
    seen_there = there.load_ordered() != 0;
    other.join();
    CHECK((seen_here || seen_there));
  }
}
