// needs: tsan
#include <weir/adaptors/detail/limits_above.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

using weir::detail::limit_above;
using weir::detail::limits_above;

namespace {

/// A limit that counts how often it is asked, and has two bytes captured.
struct asked_limit {
  std::atomic<std::size_t> times{0};
  limit_above above{this, &credit, &captured};

  static void credit(void const* layer) noexcept {
    ++const_cast<asked_limit*>(static_cast<asked_limit const*>(layer))->times;
  }
  static std::size_t captured(void const*) noexcept { return 2; }
};

}  // namespace

TEST_CASE("each is asked as long as it is in the list, whichever goes first") {
  limits_above list;
  list.credit_released();
  asked_limit a, b, c;
  auto const times = [&] { return std::vector<std::size_t>{a.times, b.times, c.times}; };
  for (asked_limit* each : {&a, &b, &c}) list.add(each->above);
  list.credit_released();
  CHECK(times() == std::vector<std::size_t>{1, 1, 1});
  CHECK(list.captured() == 6);
  SUBCASE("the first") {
    list.remove(c.above);
    list.credit_released();
    CHECK(times() == std::vector<std::size_t>{2, 2, 1});
  }
  SUBCASE("one in the middle") {
    list.remove(b.above);
    list.credit_released();
    CHECK(times() == std::vector<std::size_t>{2, 1, 2});
  }
  SUBCASE("the last") {
    list.remove(a.above);
    list.credit_released();
    CHECK(times() == std::vector<std::size_t>{1, 2, 2});
  }
  CHECK(list.captured() == 4);
  for (asked_limit* each : {&a, &b, &c}) list.remove(each->above);  // one of them is out already
  CHECK(list.captured() == 0);
}

TEST_CASE("who was removed is asked no more, whatever other threads do") {
  limits_above list;
  std::atomic<bool> done{false};
  std::thread asking([&] {
    while (!done) list.credit_released();
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        asked_limit here;  // gone at the end of this turn
        list.add(here.above);
        list.remove(here.above);
        std::size_t const times = here.times;
        CHECK(here.times == times);
      }
    });
  for (auto& thread : threads) thread.join();
  done = true;
  asking.join();
  CHECK(list.captured() == 0);
}
