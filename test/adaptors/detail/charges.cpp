// needs: tsan
#include <weir/adaptors/detail/charges.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <thread>

using weir::detail::charges;

TEST_CASE("what fits is charged, to the last byte, and what does not is not") {
  charges budget;
  CHECK(budget.charge_up_to(1000, 600) == 600);
  CHECK(budget.charge_up_to(1000, 401) == 0);
  CHECK(budget.load() == 600);
  CHECK(budget.charge_up_to(1000, 400) == 1000);
  CHECK(budget.charge_up_to(500, 1) == 0);  // the budget was lowered
  CHECK(budget.charge_up_to(~std::size_t{0}, 0) == 0);
  CHECK(budget.charge_up_to(~std::size_t{0}, ~std::size_t{0} - 500) == 0);
  CHECK(budget.credit(999));
  CHECK(budget.load() == 1);
}

TEST_CASE("no more is taken back than was charged") {
  charges budget;
  budget.charge_up_to(1000, 10);
  CHECK_FALSE(budget.credit(11));
  CHECK(budget.load() == 0);
}

TEST_CASE("the peak is the most that was served, from the last reset on") {
  charges budget;
  budget.raise_peak(budget.charge_up_to(1000, 700));
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
      std::size_t const held = budget.charge_up_to(most, 3);
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
