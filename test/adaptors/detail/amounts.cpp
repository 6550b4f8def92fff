#include <weir/adaptors/detail/amounts.hpp>

#include <doctest/doctest.h>

using two = weir::detail::amounts<2>;

TEST_CASE("amounts are added, compared and limited each for itself") {
  two const a{{10, 3}}, b{{4, 3}};
  CHECK(a + b == two{{14, 6}});
  CHECK(a - b == two{{6, 0}});
  CHECK(a.covers(b));
  CHECK_FALSE(b.covers(a));
  CHECK_FALSE(two{{100, 2}}.covers(b));
  CHECK(two::least(a, {{64, 80}}) == two{{8, 3}});
  CHECK(two::least(a, {{-64, 7}}) == two{});
}
