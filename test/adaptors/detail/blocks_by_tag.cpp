#include <weir/adaptors/detail/blocks_by_tag.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace weir;
using detail::blocks_by_tag;

namespace {

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// What a tag holds.
counter requested(blocks_by_tag const& blocks, char const* name) {
  for (tag_statistics const& each : blocks.numbers())
    if (each.tag == tag_name(name)) return each.numbers.requested;
  return {};
}

detail::tagged_block taken_off(blocks_by_tag& blocks, void* p) {
  detail::tagged_block counted;
  blocks.take_off(p, counted);
  return counted;
}

}  // namespace

TEST_CASE("a block counts for the tag of the thread that added it, until it is taken off") {
  blocks_by_tag blocks;
  {
    tag const scope{"a"};
    blocks.add(at(256), 100, 256);
  }
  blocks.add(at(512), 7, 256);
  CHECK(requested(blocks, "a") == counter{100, 100, 100});
  tag const other{"b"};
  taken_off(blocks, at(256));
  CHECK(requested(blocks, "a") == counter{0, 100, 100});
  CHECK(requested(blocks, "") == counter{7, 7, 7});
  CHECK(requested(blocks, "b") == counter{});
}

TEST_CASE("what is unknown is nothing, and putting that back does nothing") {
  blocks_by_tag blocks;
  CHECK(taken_off(blocks, at(256)).bytes == 0);
  blocks.add(at(512), 7, 256);
  taken_off(blocks, at(512));
  blocks.put_back(at(256), taken_off(blocks, at(256)));
  CHECK(requested(blocks, "") == counter{0, 7, 7});
}

TEST_CASE("what is put back is as it was, whatever was freed since") {
  blocks_by_tag blocks;
  {
    tag const scope{"a"};
    blocks.add(at(1024), 1, 256);  // the first of a tag makes room for it
    blocks.add(at(256), 100, 512);
  }
  taken_off(blocks, at(1024));
  blocks.add(at(512), 7, 256);
  detail::tagged_block const counted = taken_off(blocks, at(256));
  taken_off(blocks, at(512));
  blocks.put_back(at(256), counted);
  CHECK(requested(blocks, "a") == counter{100, 101, 101});
  CHECK(requested(blocks, "") == counter{0, 7, 7});
  taken_off(blocks, at(256));
  CHECK(requested(blocks, "a") == counter{0, 101, 101});
  for (tag_statistics const& each : blocks.numbers()) CHECK(each.numbers.allocated.current == 0);
}

TEST_CASE("a block where another is live means that that one was given back past this layer") {
  blocks_by_tag blocks;
  blocks.add(at(256), 100, 256);
  tag const scope{"next"};
  blocks.add(at(256), 30, 256);
  CHECK(requested(blocks, "") == counter{0, 100, 100});
  CHECK(requested(blocks, "next") == counter{30, 30, 30});
}
