#include <weir/adaptors/detail/paid_ahead.hpp>

#include <doctest/doctest.h>

using weir::detail::paid_ahead;

TEST_CASE("only the budget that is meant finds it, for this request or free alone") {
  int budget = 0, other = 0, block = 0;
  CHECK(paid_ahead::find(&budget, nullptr, 100) == nullptr);
  {
    paid_ahead const request(&budget, nullptr, 100, 30);
    REQUIRE(paid_ahead::find(&budget, nullptr, 100) != nullptr);
    CHECK(paid_ahead::find(&budget, nullptr, 100)->bytes() == 30);
    CHECK(paid_ahead::find(&other, nullptr, 100) == nullptr);
    CHECK(paid_ahead::find(&budget, nullptr, 101) == nullptr);
    CHECK(paid_ahead::find(&budget, &block, 100) == nullptr);
  }
  CHECK(paid_ahead::find(&budget, nullptr, 100) == nullptr);
}

TEST_CASE("the innermost counts, and may hide the outer ones") {
  int budget = 0, block = 0;
  paid_ahead const request(&budget, nullptr, 100, 30);
  {
    paid_ahead const hidden;
    CHECK(paid_ahead::find(&budget, nullptr, 100) == nullptr);
    paid_ahead const free(&budget, &block, 50, 20);
    CHECK(paid_ahead::find(&budget, &block, 50)->bytes() == 20);
  }
  CHECK(paid_ahead::find(&budget, nullptr, 100)->bytes() == 30);
}
