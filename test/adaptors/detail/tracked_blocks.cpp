#include <weir/adaptors/detail/tracked_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace weir;
using detail::tracked_blocks;
using detail::wrong_free;

namespace {

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

tracked_block block_at(std::uintptr_t address, std::size_t bytes) {
  return {.address = address, .bytes = bytes, .alignment = 256, .taken = bytes, .stream = host_order};
}

/// Under this thread's tag.
void add(tracked_blocks& blocks, std::uintptr_t address, std::size_t bytes) {
  tracked_block block = block_at(address, bytes);
  block.tag = current_tag();
  blocks.promise(block.tag);
  blocks.add(block);
}

bool take_off(tracked_blocks& blocks, std::uintptr_t address, std::size_t bytes) {
  tracked_block found;
  return blocks.take_off(at(address), bytes, 256, found);
}

}  // namespace

TEST_CASE("a block is taken off once, with the size and the alignment that it was added with") {
  tracked_blocks blocks;
  add(blocks, 512, 100);
  tracked_block found;
  CHECK_FALSE(blocks.take_off(at(512), 99, 256, found));
  CHECK_FALSE(blocks.take_off(at(512), 100, 128, found));
  CHECK_FALSE(blocks.take_off(at(768), 100, 256, found));
  CHECK(blocks.numbers().live() == 1);
  CHECK(blocks.take_off(at(512), 100, 256, found));
  CHECK(found.bytes == 100);
  CHECK_FALSE(blocks.take_off(at(512), 100, 256, found));
  CHECK(blocks.numbers().requested == counter{0, 100, 100});
}

TEST_CASE("why a free is wrong") {
  tracked_blocks blocks;
  CHECK(blocks.explain(at(512)).what == wrong_free::unknown);
  add(blocks, 512, 1000);
  add(blocks, 4096, 1000);
  wrong_free const differs = blocks.explain(at(512));
  CHECK(differs.what == wrong_free::differs);
  CHECK(differs.block.bytes == 1000);
  wrong_free const inside = blocks.explain(at(4096 + 999));
  CHECK(inside.what == wrong_free::inside);
  CHECK(inside.block.address == 4096);
  CHECK(blocks.explain(at(4096 + 1000)).what == wrong_free::unknown);
  CHECK(blocks.explain(nullptr).what == wrong_free::unknown);
  REQUIRE(take_off(blocks, 512, 1000));
  wrong_free const again = blocks.explain(at(512));
  CHECK(again.what == wrong_free::again);
  CHECK(again.block.bytes == 1000);
  CHECK(again.thread == detail::thread_id());
  CHECK(again.nanoseconds >= again.block.nanoseconds);
}

TEST_CASE("of the frees at an address the latest is told, for 256 frees") {
  tracked_blocks blocks;
  for (std::size_t const bytes : {10u, 20u}) {
    add(blocks, 512, bytes);
    REQUIRE(take_off(blocks, 512, bytes));
  }
  CHECK(blocks.explain(at(512)).block.bytes == 20);
  auto const free_others = [&](int count) {
    for (int i = 0; i < count; ++i) {
      add(blocks, 4096, 1);
      REQUIRE(take_off(blocks, 4096, 1));
    }
  };
  free_others(255);
  CHECK(blocks.explain(at(512)).what == wrong_free::again);
  free_others(1);
  CHECK(blocks.explain(at(512)).what == wrong_free::unknown);
}

TEST_CASE("what is put back is live as before") {
  tracked_blocks blocks;
  {
    tag const scope{"a"};
    add(blocks, 512, 100);
  }
  tracked_block found;
  REQUIRE(blocks.take_off(at(512), 100, 256, found));
  blocks.put_back(found);
  CHECK(blocks.numbers().requested == counter{100, 100, 100});
  REQUIRE(blocks.all().size() == 1);
  CHECK(blocks.all()[0].tag == tag_name("a"));
  CHECK(blocks.numbers_by_tag()[0].numbers.requested == counter{100, 100, 100});
}

TEST_CASE("a block where another is live means that that one was given back past this layer") {
  tracked_blocks blocks;
  add(blocks, 512, 100);
  add(blocks, 512, 30);
  CHECK(blocks.all().size() == 1);
  CHECK(blocks.numbers().requested == counter{30, 100, 130});
  CHECK(blocks.numbers().live() == 1);
}

TEST_CASE("a promise that is forgotten is a failure") {
  tracked_blocks blocks;
  blocks.promise(tag_name("a"));
  blocks.forget_promise();
  CHECK(blocks.numbers().failures == 1);
  CHECK(blocks.numbers_by_tag().empty());
  CHECK(blocks.all().empty());
}
