#include <weir/adaptors/detail/passed_blocks.hpp>

#include <doctest/doctest.h>

using namespace weir;

TEST_CASE("a block is known from its insertion until it goes") {
  detail::passed_blocks blocks;
  char memory[2] = {};
  auto const fails = [] { FAIL("there is host memory"); };
  CHECK(blocks.insert_or(&memory[0], 1000, 256, fails) == &memory[0]);
  blocks.insert_or(&memory[1], 2000, 512, fails);
  CHECK(blocks.find(&memory[0]).bytes == 1000);
  CHECK(blocks.find(&memory[1]).alignment == 512);
  CHECK(blocks.find(&memory[1]).inside);
  blocks.erase(&memory[0]);
  CHECK_FALSE(blocks.find(&memory[0]));
  CHECK(blocks.find(&memory[1]).bytes == 2000);
  blocks.erase(&memory[0]);
}
