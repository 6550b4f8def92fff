#include <weir/adaptors/detail/passed_blocks.hpp>

#include <doctest/doctest.h>
#include <support/test_source.hpp>

#include <string>

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
  CHECK(blocks.take(&memory[0], 1000, 256, "mine"));
  CHECK_FALSE(blocks.find(&memory[0]));
  CHECK(blocks.find(&memory[1]).bytes == 2000);
}

TEST_CASE("a block goes as it came, and in no other way") {
  detail::passed_blocks blocks;
  char memory = 0;
  blocks.insert_or(&memory, 1000, 256, [] { FAIL("there is host memory"); });
  test::caught_misuse const misuse;
  std::string const freed = "weir: mine: deallocate of " + detail::hex(&memory) + " with ";
  CHECK_FALSE(blocks.take(&memory, 2000, 256, "mine"));
  CHECK(misuse.last() ==
        freed + "2000 B aligned to 256: it was allocated with 1000 B aligned to 256; give back the same");
  CHECK_FALSE(blocks.take(&memory, 1000, 512, "mine"));
  CHECK(blocks.take(&memory, 1000, 256, "mine"));
  CHECK(misuse.count() == 2);
  CHECK_FALSE(blocks.take(&memory, 1000, 256, "mine"));
  CHECK(std::string(misuse.last()).starts_with(freed + "1000 B aligned to 256: no live block starts there"));
}
