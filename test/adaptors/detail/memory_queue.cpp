// needs: tsan
#include <weir/adaptors/detail/memory_queue.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

using weir::detail::memory_queue;
using namespace std::chrono_literals;

namespace {

constexpr auto long_enough = 1min;  // nobody waits so long but for a fault

/// Waits for something that another thread is about to do.
void until(auto condition) {
  while (!condition()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("who comes to an open queue has a turn at once, since a free may have been missed") {
  memory_queue queue;
  CHECK(queue.size() == 0);
  memory_queue::place own(queue, long_enough, long_enough);
  CHECK(queue.size() == 1);
  CHECK(own.wait_for_turn());
}

TEST_CASE("the time ends") {
  memory_queue queue;
  auto const begin = memory_queue::clock::now();
  memory_queue::place own(queue, 1ms, 2ms);
  static_cast<void>(own.wait_for_turn());
  CHECK_FALSE(own.wait_for_turn());
  CHECK(memory_queue::clock::now() - begin >= 2ms);
}

TEST_CASE("a time that is shorter than the patience ends first") {
  memory_queue queue;
  auto const begin = memory_queue::clock::now();
  memory_queue::place own(queue, 5s, 2ms);
  static_cast<void>(own.wait_for_turn());
  CHECK_FALSE(own.wait_for_turn());
  CHECK(memory_queue::clock::now() - begin < 5s);
}

TEST_CASE("a free gives the turn to the one in front, who gives it on where it is of no use") {
  memory_queue queue;
  std::atomic<int> turns{0};
  std::atomic<bool> second_waits{false}, was_passed_on{false}, done{false};
  std::thread first([&] {
    memory_queue::place own(queue, long_enough, long_enough);
    while (own.wait_for_turn() && !done) ++turns;
  });
  until([&] { return turns == 1; });
  std::thread second([&] {
    memory_queue::place own(queue, long_enough, long_enough);
    own.wait_for_turn();  // at once
    second_waits = true;
    while (own.wait_for_turn()) {
      was_passed_on = turns == 2;
      if (was_passed_on) return;  // else the first still passed on the turn that it had at once
    }
  });
  until([&] { return second_waits.load(); });
  queue.on_free();
  second.join();  // its turn comes after the first used its own
  CHECK(was_passed_on);
  done = true;
  queue.on_free();
  first.join();
  CHECK(queue.size() == 0);
}

TEST_CASE("who has lost patience is not passed, until it leaves") {
  memory_queue queue;
  std::atomic<int> turns{0}, seen_by_second{0};
  std::atomic<bool> done{false};
  std::thread first([&] {
    memory_queue::place own(queue, 0s, long_enough);
    while (own.wait_for_turn() && !done) ++turns;
  });
  until([&] { return turns == 1 && queue.is_closed(); });
  std::thread second([&] {
    memory_queue::place own(queue, 0s, long_enough);
    own.wait_for_turn();
    seen_by_second = turns.load();
  });
  until([&] { return queue.size() == 2; });
  for (int free = 2; free < 10; ++free) {
    queue.on_free();
    until([&] { return turns == free; });
  }
  done = true;
  queue.on_free();
  first.join();
  second.join();
  CHECK(seen_by_second == 9);
  CHECK_FALSE(queue.is_closed());
}

TEST_CASE("nor is it when one that had its turn before leaves from behind it") {
  memory_queue queue;
  memory_queue::place impatient(queue, 1ms, 2ms);
  auto second = std::make_unique<memory_queue::place>(queue, long_enough, long_enough);
  memory_queue::place third(queue, long_enough, 50ms);
  static_cast<void>(impatient.wait_for_turn());
  static_cast<void>(second->wait_for_turn());
  static_cast<void>(third.wait_for_turn());
  CHECK_FALSE(impatient.wait_for_turn());  // gives its turn on, closes the queue, and has no more time
  CHECK(queue.is_closed());
  CHECK(second->wait_for_turn());
  second.reset();
  CHECK_FALSE(third.wait_for_turn());  // it waits until its own time is over
}

TEST_CASE("who becomes the one in front after its patience ended closes the queue") {
  memory_queue queue;
  std::atomic<bool> done{false};
  auto first = std::make_unique<memory_queue::place>(queue, long_enough, long_enough);
  std::thread second([&] {
    memory_queue::place own(queue, 0s, long_enough);
    while (own.wait_for_turn() && !done) {
    }
  });
  until([&] { return queue.size() == 2; });
  CHECK_FALSE(queue.is_closed());
  first.reset();
  until([&] { return queue.is_closed(); });
  done = true;
  queue.on_free();
  second.join();
  CHECK_FALSE(queue.is_closed());
}

TEST_CASE("a free of the thread that waits does not wake it, but who comes next") {
  memory_queue queue;
  memory_queue::place own(queue, long_enough, 50ms);
  CHECK(own.wait_for_turn());  // at once
  queue.on_free();             // as a reclaimer that is called now may do
  REQUIRE_FALSE(own.wait_for_turn());
  std::atomic<bool> waits{false}, woken{false};
  std::thread other([&] {
    memory_queue::place next(queue, long_enough, long_enough);
    next.wait_for_turn();  // at once
    waits = true;
    woken = next.wait_for_turn();
  });
  until([&] { return waits.load(); });
  until([&] {
    queue.on_free();
    return woken.load();
  });
  other.join();
  CHECK(woken);
}
