// needs: tsan
#include <weir/adaptors/detail/statistics_counters.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <thread>
#include <vector>

#include "support/turns.hpp"

using weir::memory_statistics;
using weir::detail::statistics_counters;
using weir::test::turns;

namespace {

memory_statistics numbers(statistics_counters& counters) {
  return counters.with_numbers([](memory_statistics const& n) { return n; });
}

/// As the layer counts for a thread that does not own the lock.
void add(statistics_counters& counters, std::size_t bytes) {
  if (!counters.add_in_share(bytes, bytes)) counters.with_numbers([&](memory_statistics& n) { n.add(bytes, bytes); });
}
void take_off(statistics_counters& counters, std::size_t bytes) {
  if (!counters.take_off_in_share(bytes, bytes))
    counters.with_numbers([&](memory_statistics& n) { n.take_off(bytes, bytes); });
}

}  // namespace

TEST_CASE("nobody has a share while no threads wait for each other") {
  statistics_counters counters;
  CHECK_FALSE(counters.add_in_share(1, 1));
  CHECK_FALSE(counters.take_off_in_share(1, 1));
}

TEST_CASE("counters that threads share tell what one thread would have counted, each peak too") {
  constexpr std::size_t count = 5;
  statistics_counters counters;
  counters.lock.set_contended();
  turns threads(count);
  std::minstd_rand random(1);
  auto const below = [&](std::size_t n) { return random() % n; };
  memory_statistics expected;
  std::vector<std::size_t> live;
  for (int i = 0; i < 20'000; ++i) {
    std::size_t const what = below(1000);
    threads.on(below(count), [&] {
      if (what == 0) {
        counters.with_numbers([](memory_statistics& n) { n.reset_peaks(); });
        expected.reset_peaks();
      } else if (what < 5) {
        REQUIRE(numbers(counters) == expected);
      } else if (what < 510 || live.empty()) {
        live.push_back(1 + below(i % 2 == 0 ? 100 : 5000));
        add(counters, live.back());
        expected.add(live.back(), live.back());
      } else {
        std::size_t const at = below(live.size());
        take_off(counters, live[at]);
        expected.take_off(live[at], live[at]);
        live[at] = live.back();
        live.pop_back();
      }
    });
  }
  CHECK(numbers(counters) == expected);
}

TEST_CASE("no more is taken off than is live, whichever thread has it") {
  statistics_counters counters;
  counters.lock.set_contended();
  turns threads(2);
  threads.on(0, [&] { add(counters, 1000); });
  threads.on(1, [&] {
    CHECK_FALSE(counters.take_off_in_share(1001, 1001));
    CHECK(numbers(counters).live() == 1);
    take_off(counters, 1000);
    CHECK_FALSE(counters.take_off_in_share(1, 1));
  });
  CHECK(numbers(counters).requested.current == 0);
}

TEST_CASE("threads that count at one time lose nothing") {
  statistics_counters counters;
  counters.lock.set_contended();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        add(counters, 300);
        take_off(counters, 300);
        if (i % 1000 == 0) REQUIRE(numbers(counters).live() >= 0);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  memory_statistics const all = numbers(counters);
  CHECK(all.live() == 0);
  CHECK(all.requested.total == 4 * 5000 * 300);
  CHECK(all.requested.peak >= 300);
  CHECK(all.requested.peak <= 4 * 300);
}
