#include <weir/pool/pool_options.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;

namespace {

bool says(pool const& options, char const* piece) { return options.problem().find(piece) != std::string::npos; }

}  // namespace

TEST_CASE("the defaults are valid, and so is everything that can be meant") {
  CHECK(pool{}.valid());
  CHECK(pool{.initial_bytes = 1_GiB, .max_bytes = 1_GiB}.valid());
  CHECK(pool{.max_bytes = 256}.valid());
  CHECK(pool{.initial_bytes = 1}.valid());
  CHECK(pool{.growth_bytes = 1}.valid());
  CHECK(pool{.max_split_bytes = 1_MiB}.valid());
  CHECK(pool{.initial_bytes = 1_MiB - 1, .max_split_bytes = 1_MiB}.valid());
  CHECK(pool{.release_threshold = 0}.valid());
  CHECK(pool{.initial_bytes = detail::max_block_bytes}.valid());
}

TEST_CASE("a wrong option is named with its value and what is allowed") {
  CHECK(says({.initial_bytes = 2_GiB, .max_bytes = 1_GiB},
             "pool: initial_bytes (2.00 GiB) is more than max_bytes (1.00 GiB)"));
  CHECK(says({.max_bytes = 255}, "max_bytes is 255 B"));
  CHECK(says({.max_bytes = 255}, "at least 256 B"));
  CHECK(says({.max_split_bytes = 1_MiB - 1}, "max_split_bytes"));
  CHECK(says({.max_split_bytes = 1_MiB - 1}, "at least 1 MiB"));
  CHECK(says({.initial_bytes = 1_MiB, .max_split_bytes = 1_MiB}, "initial_bytes (1.00 MiB)"));
  CHECK(says({.initial_bytes = detail::max_block_bytes + 1}, "a segment can be"));
}

TEST_CASE("a level remembers its peak") {
  pool_level level;
  level.add(100);
  level.current -= 60;
  level.add(30);
  CHECK(level.current == 70);
  CHECK(level.peak == 100);
  level.add(50);
  CHECK(level.peak == 120);
}
