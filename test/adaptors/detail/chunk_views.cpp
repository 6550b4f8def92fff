#include <weir/adaptors/detail/chunk_views.hpp>

#include <doctest/doctest.h>

using weir::detail::chunk_views;

TEST_CASE("the last address that shows a chunk is known, in whatever order they go") {
  chunk_views views;
  int places[4] = {};
  CHECK(views.leave(&places[3]));  // nobody showed it a second time
  views.add(&places[1], &places[0]);
  views.add(&places[2], &places[1]);
  CHECK_FALSE(views.leave(&places[1]));
  views.forget(&places[1]);
  CHECK_FALSE(views.leave(&places[0]));
  CHECK(views.leave(&places[2]));
}

TEST_CASE("an address that stays counts again, and one that is forgotten may show another chunk") {
  chunk_views views;
  int places[3] = {};
  views.add(&places[1], &places[0]);
  CHECK_FALSE(views.leave(&places[0]));
  views.stay(&places[0]);
  CHECK_FALSE(views.leave(&places[1]));
  views.forget(&places[1]);
  CHECK(views.leave(&places[0]));
  views.forget(&places[0]);
  views.add(&places[1], &places[2]);
  CHECK(views.leave(&places[0]));
  CHECK_FALSE(views.leave(&places[1]));
}
