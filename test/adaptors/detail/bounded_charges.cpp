// What threads do with a budget is tested in charges.cpp and adaptors/limit.cpp.
#include <weir/adaptors/detail/bounded_charges.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

using weir::detail::bounded_charges;

TEST_CASE("up to the mark, where there is one, a charge is all that a request needs, and up to the bound else") {
  for (std::size_t const mark : {std::size_t{0}, std::size_t{300}}) {
    CAPTURE(mark);
    bounded_charges charged(mark, {});
    charged.set_max(1000);
    std::size_t const plain = mark == 0 ? 1000 : mark;
    CHECK(charged.charge(plain) == plain);
    CHECK(charged.charge(1) == 0);
    CHECK(charged.credit(plain));
    charged.set_has_reserves();
    CHECK(charged.charge(1) == 0);
    CHECK(charged.charge_and_tell(1000) == 1000);
    CHECK(charged.charge_and_tell(1) == 0);
    CHECK(charged.load() == 1000);
  }
}

TEST_CASE("who goes above the mark tells what is charged then, once for each time") {
  std::vector<std::size_t> told;
  bounded_charges charged(100, [&](std::size_t held) { told.push_back(held); });
  charged.set_max(1000);
  CHECK(charged.charge_and_tell(100) == 100);
  CHECK(told.empty());
  CHECK(charged.charge_and_tell(50) == 150);
  CHECK(charged.charge_and_tell(50) == 200);
  CHECK(charged.charge_and_tell(801) == 0);
  CHECK(charged.credit(150));
  CHECK(charged.charge_and_tell(70) == 120);
  CHECK(told == std::vector<std::size_t>{150, 120});
  CHECK(charged.crossed() == 2);
}

TEST_CASE("nothing is charged to who is told and throws") {
  bounded_charges charged(100, [](std::size_t) { throw std::runtime_error("no"); });
  charged.set_max(1000);
  CHECK_THROWS_AS(charged.charge_and_tell(101), std::runtime_error);
  CHECK(charged.load() == 0);
  CHECK(charged.crossed() == 1);
}

TEST_CASE("a bound that is lowered leaves what is charged, and lets nobody in until that is less") {
  bounded_charges charged(0, {});
  charged.set_max(~std::size_t{0});
  CHECK(charged.charge(1000) == 1000);
  charged.set_max(500);
  CHECK(charged.max() == 500);
  CHECK(charged.charge(1) == 0);
  CHECK(charged.charge_and_tell(1) == 0);
  CHECK(charged.load() == 1000);
  CHECK(charged.credit(600));
  CHECK(charged.charge_and_tell(100) == 500);
}
