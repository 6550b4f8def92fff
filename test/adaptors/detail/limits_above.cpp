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

/// A limit that credits a byte each time it is asked, and has two captured.
struct asked_limit {
  std::atomic<std::size_t> times{0};
  limit_above above{this, &credit, &captured};

  static std::size_t credit(void const* layer) noexcept {
    ++const_cast<asked_limit*>(static_cast<asked_limit const*>(layer))->times;
    return 1;
  }
  static std::size_t captured(void const*) noexcept { return 2; }
};

}  // namespace

TEST_CASE("each is asked as long as it is in the list, whichever goes first") {
  limits_above list;
  CHECK(list.credit_released() == 0);
  asked_limit a, b, c;
  for (asked_limit* each : {&a, &b, &c}) list.add(each->above);
  CHECK(list.credit_released() == 3);
  CHECK(list.captured() == 6);
  SUBCASE("the first") {
    list.remove(c.above);
    CHECK(list.credit_released() == 2);
    CHECK(c.times == 1);
  }
  SUBCASE("one in the middle") {
    list.remove(b.above);
    CHECK(list.credit_released() == 2);
    CHECK(b.times == 1);
  }
  SUBCASE("the last") {
    list.remove(a.above);
    CHECK(list.credit_released() == 2);
    CHECK(a.times == 1);
  }
  for (asked_limit* each : {&a, &b, &c}) list.remove(each->above);  // one of them is out already
  CHECK(list.credit_released() == 0);
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
  CHECK(list.credit_released() == 0);
}
