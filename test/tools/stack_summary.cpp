#include <weir/tools/stack_summary.hpp>

#include <doctest/doctest.h>

#include <optional>

using namespace weir;

TEST_CASE("fragmentation is the share of what is idle outside its largest piece") {
  CHECK(fragmentation({.layer = "pool", .free = 800, .largest_free = 200}) == 0.75);
  CHECK(fragmentation({.layer = "pool", .pending = 200, .free = 600, .largest_free = 200}) == 0.75);
  CHECK(fragmentation({.layer = "pool", .free = 800, .largest_free = 800}) == 0.0);
}

TEST_CASE("fragmentation is not known where nothing is idle, or the layer does not say") {
  CHECK(fragmentation({.layer = "pool", .free = 0, .largest_free = 0}) == std::nullopt);
  CHECK(fragmentation({.layer = "pool", .free = 800}) == std::nullopt);
  CHECK(fragmentation({.layer = "pool", .largest_free = 800}) == std::nullopt);
}

TEST_CASE("fragmentation is never negative, although its two numbers are of two moments") {
  CHECK(fragmentation({.layer = "pool", .free = 100, .largest_free = 200}) == 0.0);
}
