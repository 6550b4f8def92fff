#include <weir/support/tick_clock.hpp>

#include <doctest/doctest.h>

using namespace weir::detail;

TEST_CASE("ticks become time between two moments") {
  tick_moment const from{.ticks = 1000, .nanoseconds = 50, .since_1970 = 7}, to{.ticks = 3000, .nanoseconds = 1050};
  tick_scale const scale(from, to);
  CHECK(scale.nanoseconds(1000) == 0);
  CHECK(scale.nanoseconds(1002) == 1);
  CHECK(scale.nanoseconds(3000) == 1000);
  CHECK(scale.nanoseconds(5000) == 2000);
  CHECK(scale.nanoseconds(10) == 0);  // of a processor that is a little behind
}

TEST_CASE("two moments that are one do no harm") {
  tick_moment const once{.ticks = 1000, .nanoseconds = 50};
  CHECK(tick_scale(once, once).nanoseconds(1000) == 0);
}

TEST_CASE("ticks do not go back on a thread") {
  std::uint64_t last = tick_count();
  bool rises = false;
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t const now = tick_count();
    REQUIRE(now >= last);
    rises = rises || now > last;
    last = now;
  }
  CHECK(rises);
}
