// needs: tsan
#include <weir/adaptors/detail/charges.hpp>

#include <doctest/doctest.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "support/opened.hpp"
#include "support/turns.hpp"

using weir::detail::atomic;
using weir::detail::biased_guard;
using weir::detail::biased_lock;
using weir::detail::charges;
using weir::test::turns;

namespace {

/// Threads have shares of `budget` from now on, which nobody had charged to.
void share(charges& budget) {
  budget.set_contended();
  budget.set_bound(1);
  REQUIRE(budget.charge(1) == 1);
  REQUIRE(budget.credit(1));
  REQUIRE(budget.is_shared());
}

std::size_t charge_up_to(charges& budget, std::size_t most, std::size_t bytes) {
  atomic<std::size_t> now;
  now.store_release(most);
  return budget.charge_up_to(now, bytes);
}

}  // namespace

/// Returns once a thread with next to nothing to do has worked for a while: then it waits for a lock.
void until_it_waits(std::thread& other) {
  clockid_t clock;
  REQUIRE(::pthread_getcpuclockid(other.native_handle(), &clock) == 0);
  auto const worked = [&] {
    timespec now;
    REQUIRE(::clock_gettime(clock, &now) == 0);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
  };
  for (std::int64_t const before = worked(); worked() - before < 200'000;) std::this_thread::yield();
}

namespace weir::test {
struct lock_of_charges {
  using type = biased_lock charges::*;
  friend type member(lock_of_charges);
};
template struct opened<lock_of_charges, &charges::lock_>;
}  // namespace weir::test

TEST_CASE("what fits is charged, to the last byte, and what does not is not") {
  charges budget;
  CHECK(charge_up_to(budget, 1000, 600) == 600);
  CHECK(charge_up_to(budget, 1000, 401) == 0);
  CHECK(budget.load() == 600);
  CHECK(charge_up_to(budget, 1000, 400) == 1000);
  CHECK(charge_up_to(budget, 500, 1) == 0);  // the budget was lowered
  CHECK(charge_up_to(budget, ~std::size_t{0}, 0) == 0);
  CHECK(charge_up_to(budget, ~std::size_t{0}, ~std::size_t{0} - 500) == 0);
  CHECK(budget.credit(999));
  CHECK(budget.load() == 1);
}

TEST_CASE("who waited for the lock while the budget was lowered charges no more than is left of it") {
  charges budget;
  atomic<std::size_t> most;
  most.store_release(1000);
  std::atomic<bool> begins{false};
  std::size_t held = 1;
  std::thread other;
  {
    biased_guard const lock(budget.*member(weir::test::lock_of_charges{}));
    other = std::thread([&] {
      begins = true;
      held = budget.charge_up_to(most, 600);
    });
    while (!begins) std::this_thread::yield();
    until_it_waits(other);
    most.store_release(500);
  }
  other.join();
  CHECK(held == 0);
}

TEST_CASE("no more is taken back than was charged") {
  charges budget;
  charge_up_to(budget, 1000, 10);
  CHECK_FALSE(budget.credit(11));
  CHECK(budget.load() == 0);
}

TEST_CASE("the peak is the most that was served, from the last reset on") {
  charges budget;
  budget.raise_peak(charge_up_to(budget, 1000, 700));
  budget.credit(300);
  CHECK(budget.peak() == 700);
  budget.raise_peak(500);
  CHECK(budget.peak() == 700);
  budget.reset_peak();
  CHECK(budget.peak() == 400);
}

TEST_CASE("threads never charge more than the budget, and leave nothing behind") {
  constexpr std::size_t most = 5;
  charges budget;
  bool exact = true;
  auto const work = [&](bool& right) {
    for (int i = 0; i < 20'000; ++i) {
      std::size_t const held = charge_up_to(budget, most, 3);
      right = right && held <= most;
      if (held == 0) continue;
      budget.raise_peak(held);
      right = budget.credit(3) && right;
    }
  };
  bool other_right = true;
  std::thread other([&] { work(other_right); });
  work(exact);
  other.join();
  CHECK(exact);
  CHECK(other_right);
  CHECK(budget.load() == 0);
  CHECK(budget.peak() == 3);
}

TEST_CASE("a budget that threads share is exact at every step: what it lets in, its sum and its peak") {
  constexpr std::size_t count = 5;
  charges budget;
  share(budget);
  turns threads(count);
  std::minstd_rand random(1);
  auto const below = [&](std::size_t n) { return random() % n; };
  std::size_t now = 0, peak = 0, bound = 3000;
  budget.set_bound(bound);
  std::vector<std::size_t> live;
  for (int i = 0; i < 20'000; ++i) {
    std::size_t const what = below(1000);
    threads.on(below(count), [&] {
      if (what < 4) {
        budget.set_bound(bound = below(2) * 1000 + below(3000));
      } else if (what < 6) {
        budget.reset_peak();
        peak = now;
      } else if (what < 10) {
        REQUIRE(budget.load() == now);
      } else if (what < 520 || live.empty()) {
        std::size_t const bytes = 1 + below(400);
        bool const fits = now + bytes <= bound;
        std::size_t const held = budget.charge(bytes);
        REQUIRE((held != 0) == fits);
        if (!fits) return;
        budget.raise_peak(held);
        live.push_back(bytes);
        now += bytes;
        if (now > peak) peak = now;
      } else {
        std::size_t const at = below(live.size());
        REQUIRE(budget.covers(live[at]));
        REQUIRE(budget.credit(live[at]));
        now -= live[at];
        live[at] = live.back();
        live.pop_back();
      }
      REQUIRE(budget.peak() == peak);
    });
  }
  CHECK(budget.load() == now);
  CHECK_FALSE(budget.covers(now + 1));
  CHECK_FALSE(budget.credit(now + 1));
}

TEST_CASE("nobody has a share of a budget that lets nothing in by itself") {
  charges budget;
  budget.set_contended();
  CHECK(budget.charge(1) == 0);
  CHECK_FALSE(budget.is_shared());
}

TEST_CASE("what a thread frees may be charged in the shares of others") {
  charges budget;
  share(budget);
  budget.set_bound(1000);
  budget.raise_peak(1000);
  turns threads(2);
  for (std::size_t const i : {0U, 1U}) threads.on(i, [&] { REQUIRE(budget.charge(400) != 0); });
  CHECK(budget.covers(400));
  CHECK(budget.covers(800));
  CHECK_FALSE(budget.covers(801));
  CHECK(budget.credit(800));
  CHECK(budget.load() == 0);
}

TEST_CASE("a budget that threads share refuses what cannot be counted") {
  charges budget;
  share(budget);
  budget.set_bound(~std::size_t{0} >> 1);
  REQUIRE(budget.charge(100) == 100);
  CHECK(budget.charge(0) == 0);
  CHECK(budget.charge(~std::size_t{0}) == 0);
  CHECK(budget.charge(~std::size_t{0} >> 1) == 0);
  CHECK_FALSE(budget.covers(~std::size_t{0}));
  CHECK(budget.load() == 100);
  CHECK_FALSE(budget.credit(~std::size_t{0}));
  CHECK(budget.load() == 0);
}

TEST_CASE("who owned a budget's lock before threads shared it counts as all do") {
  charges budget;
  budget.set_bound(1000);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(budget.charge(10) == 10);
    REQUIRE(budget.credit(10));
  }
  budget.raise_peak(1000);
  budget.set_contended();
  std::thread([&] {
    for (int i = 0; i < 2; ++i) REQUIRE(budget.charge(300) != 0);
  }).join();
  REQUIRE(budget.is_shared());
  for (std::size_t i = 1; i <= 1000; ++i) budget.raise_peak(1000 + i);  // each takes the lock
  CHECK(budget.charge(600) == 0);
  CHECK(budget.charge(400) != 0);
  CHECK(budget.load() == 1000);
}

TEST_CASE("a budget that is lowered takes from threads what they have of it") {
  charges budget;
  share(budget);
  budget.set_bound(1000);
  budget.raise_peak(1000);
  REQUIRE(budget.charge(700) != 0);
  REQUIRE(budget.credit(600));
  budget.set_bound(200);
  CHECK(budget.charge(101) == 0);
  CHECK(budget.charge(100) != 0);
}

TEST_CASE("a budget that threads share is charged by what they do at one time, and no more") {
  constexpr std::size_t count = 4, block = 100;
  charges budget;
  share(budget);
  budget.set_bound(count * block);
  std::atomic<std::size_t> shadow{0}, most{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        std::size_t const bytes = i % 8 == 0 ? block : 1 + (static_cast<std::size_t>(i) * 7 + t) % block;
        std::size_t const held = budget.charge(bytes);
        if (held == 0) {
          ++refused;
          continue;
        }
        std::size_t const sum = shadow += bytes;
        for (std::size_t seen = most; sum > seen && !most.compare_exchange_weak(seen, sum);) continue;
        budget.raise_peak(held);
        shadow -= bytes;
        if (!budget.credit(bytes)) ++refused;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(refused == 0);  // each has one block at a time, and there is room for all of them
  CHECK(budget.load() == 0);
  CHECK(budget.peak() <= count * block);
  CHECK(budget.peak() >= most);
}
