#include <weir/adaptors/detail/blocks_by_tag.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace weir;
using detail::blocks_by_tag;

namespace {

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// Under this thread's tag.
void add(blocks_by_tag& blocks, std::uintptr_t address, std::size_t bytes, std::size_t taken) {
  blocks.promise(current_tag());
  blocks.add(current_tag(), at(address), bytes, taken);
}

/// What a tag holds.
counter requested(blocks_by_tag const& blocks, char const* name) {
  for (tag_statistics const& each : blocks.numbers())
    if (each.tag == tag_name(name)) return each.numbers.requested;
  return {};
}

}  // namespace

TEST_CASE("a block counts for the tag that it was added under, until it is taken off") {
  blocks_by_tag blocks;
  {
    tag const scope{"a"};
    add(blocks, 256, 100, 256);
  }
  add(blocks, 512, 7, 256);
  CHECK(requested(blocks, "a") == counter{100, 100, 100});
  tag const other{"b"};
  blocks_by_tag::block const taken = blocks.take_off(at(256));
  CHECK(taken.tag == tag_name("a"));
  CHECK(taken.bytes == 100);
  CHECK(taken.taken == 256);
  CHECK(requested(blocks, "a") == counter{0, 100, 100});
  CHECK(requested(blocks, "") == counter{7, 7, 7});
  CHECK(requested(blocks, "b") == counter{});
}

TEST_CASE("what is unknown is nothing, and putting that back does nothing") {
  blocks_by_tag blocks;
  blocks_by_tag::block const nothing = blocks.take_off(at(256));
  CHECK(nothing.bytes == 0);
  blocks.put_back(256, nothing);
  CHECK(blocks.numbers().empty());
}

TEST_CASE("what is put back is as it was") {
  blocks_by_tag blocks;
  add(blocks, 256, 100, 256);
  blocks.put_back(256, blocks.take_off(at(256)));
  CHECK(requested(blocks, "") == counter{100, 100, 100});
  CHECK(blocks.take_off(at(256)).bytes == 100);
}

TEST_CASE("a block where another is live means that that one was given back past this layer") {
  blocks_by_tag blocks;
  add(blocks, 256, 100, 256);
  tag const scope{"next"};
  add(blocks, 256, 30, 256);
  CHECK(requested(blocks, "") == counter{0, 100, 100});
  CHECK(requested(blocks, "next") == counter{30, 30, 30});
}

TEST_CASE("a promise that is forgotten leaves nothing") {
  blocks_by_tag blocks;
  tag const scope{"a"};
  blocks.promise(current_tag());
  blocks.forget_promise();
  CHECK(blocks.numbers().empty());
}
