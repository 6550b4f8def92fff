#include <weir/adaptors/detail/scrubbed_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>

using weir::detail::scrubbed_block;
using weir::detail::scrubbed_blocks;

namespace {

int memory[4];
constexpr auto any = [](scrubbed_block const&) { return true; };

}  // namespace

TEST_CASE("a block is live until it is taken, once") {
  scrubbed_blocks blocks;
  CHECK(!blocks.find_live(memory));
  blocks.insert(memory, {100, 256, 7});
  auto const found = blocks.find_live(memory);
  REQUIRE(found);
  CHECK(found->bytes == 100);
  CHECK(found->alignment == 256);
  CHECK(found->allocated_in == 7);
  CHECK(!blocks.find_live(memory + 1));
  CHECK(blocks.take(memory));
  CHECK(!blocks.take(memory));
  CHECK(!blocks.find_live(memory));
  CHECK(!blocks.take_held(any));
}

TEST_CASE("a block that is held is not live, and is taken out once, by the capture that it is held for") {
  scrubbed_blocks blocks;
  blocks.insert(memory, {100, 256, 5});
  blocks.insert(memory + 1, {30, 256, 0});
  blocks.insert(memory + 2, {1, 256, 0});
  CHECK(!blocks.holds(0));
  CHECK(!blocks.holds(5));
  CHECK(blocks.hold(memory, 7, cudaStreamLegacy));
  CHECK(blocks.hold(memory + 1, 8, cudaStreamPerThread));
  CHECK(!blocks.hold(memory, 9, cudaStreamLegacy));
  CHECK(!blocks.find_live(memory));
  CHECK(!blocks.take(memory));
  CHECK(blocks.held_bytes() == 130);
  CHECK(blocks.holds(0));
  CHECK(blocks.holds(7));
  CHECK(blocks.holds(5));  // which allocated it
  CHECK(!blocks.holds(9));
  auto const of_7 = [](scrubbed_block const& b) { return b.held_for == 7; };
  auto const held = blocks.take_held(of_7);
  REQUIRE(held);
  CHECK(held->first == memory);
  CHECK(held->second.bytes == 100);
  CHECK(held->second.freed_on.get() == cudaStreamLegacy);
  CHECK(!blocks.take_held(of_7));
  CHECK(blocks.held_bytes() == 30);
  CHECK(blocks.take_held(any)->first == memory + 1);
  CHECK(!blocks.holds(0));
  CHECK(blocks.find_live(memory + 2));
}

TEST_CASE("the place of a block that is gone may be another's") {
  scrubbed_blocks blocks;
  blocks.insert(memory, {100, 256, 0});
  CHECK(blocks.take(memory));
  blocks.insert(memory, {200, 512, 0});
  CHECK(blocks.find_live(memory)->bytes == 200);
}

TEST_CASE("to take all that one capture holds looks at each block a few times") {
  static constexpr std::size_t count = 1000;
  static char many[2 * count];
  scrubbed_blocks blocks;
  for (std::size_t i = 0; i < 2 * count; ++i) {
    blocks.insert(many + i, {1, 256, 0});
    blocks.hold(many + i, i % 2 == 0 ? 7 : 8, cudaStreamLegacy);
  }
  std::size_t looks = 0, taken = 0;
  auto const of_7 = [&](scrubbed_block const& b) {
    ++looks;
    return b.held_for == 7;
  };
  while (blocks.take_held(of_7)) ++taken;
  CHECK(taken == count);
  CHECK(looks <= 4 * count);
  CHECK(blocks.held_bytes() == count);
  CHECK(!blocks.holds(7));
  CHECK(blocks.holds(8));
}

TEST_CASE("what is given at the address of a block that is held is live, and the others stay held") {
  for (int replaced : {0, 1, 2}) {
    scrubbed_blocks blocks;
    for (int i = 0; i < 3; ++i) {
      blocks.insert(memory + i, {100, 256, 0});
      blocks.hold(memory + i, 7, cudaStreamLegacy);
    }
    blocks.insert(memory + replaced, {30, 256, 0});
    CHECK(blocks.find_live(memory + replaced)->bytes == 30);
    CHECK(blocks.held_bytes() == 200);
    blocks.insert(memory + 3, {1, 256, 0});
    blocks.hold(memory + 3, 8, cudaStreamLegacy);
    int taken = 0;
    while (auto const held = blocks.take_held(any)) {
      ++taken;
      CHECK(held->first != memory + replaced);
    }
    CHECK(taken == 3);
    CHECK(blocks.held_bytes() == 0);
  }
}
