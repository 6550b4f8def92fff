#include <weir/adaptors/detail/limit_options.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/sim_fixture.hpp"

using namespace weir;

TEST_CASE("a budget in bytes asks CUDA nothing, a fraction asks the device") {
  test::fresh_world const world;
  sim::set_capacity(1, 64_MiB);
  auto const before = sim::calls();
  CHECK(detail::budget_of({.max_bytes = 1000}, 1) == 1000);
  CHECK(sim::calls() == before);
  CHECK(detail::budget_of({.fraction = 0.25}, 1) == 16_MiB);
  CHECK(detail::budget_of({.fraction_of_free = 0.25}, 1) == 16_MiB);
}

TEST_CASE("options are valid or say what is wrong") {
  CHECK(limit{8_GiB}.valid());
  CHECK(limit{.fraction_of_free = 0.9}.valid());
  CHECK(limit{.max_bytes = 8_GiB, .soft_bytes = 8_GiB, .reserve_bytes = 8_GiB}.valid());
  CHECK_FALSE(limit{}.valid());
  CHECK_FALSE(limit{.max_bytes = 8_GiB, .soft_bytes = 9_GiB}.valid());
  // Rounded up it would be none at all.
  CHECK_FALSE(limit{.max_bytes = ~std::size_t{0}, .reserve_bytes = ~std::size_t{0}}.valid());
  CHECK(limit{.fraction = 0.5, .reserve_bytes = ~std::size_t{0}}.problem() ==
        "limit: reserve_bytes is 18446744073709551615; no memory is as large");
}
