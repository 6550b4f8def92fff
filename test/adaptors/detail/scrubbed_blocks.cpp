#include <weir/adaptors/detail/scrubbed_blocks.hpp>

#include <doctest/doctest.h>

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
