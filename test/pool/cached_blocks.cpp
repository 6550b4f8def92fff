#include <weir/pool/cached_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

using weir::detail::cached_blocks;
using weir::detail::slot_class;
using weir::detail::unit_bytes;

namespace {

void* at(std::uintptr_t unit) { return reinterpret_cast<void*>(unit * unit_bytes); }
cached_blocks::block block_at(std::uintptr_t unit) { return {at(unit), 3, 1000, 8}; }

cached_blocks::number add(cached_blocks& blocks, std::uintptr_t unit) {
  blocks.promise(1);
  return blocks.insert(block_at(unit));
}

}  // namespace

TEST_CASE("a block is found by where it begins, and by its number, until it is erased") {
  cached_blocks blocks;
  CHECK(blocks.find(at(7)) == 0);
  cached_blocks::number const seven = add(blocks, 7);
  cached_blocks::number const nine = add(blocks, 9);
  CHECK(seven != 0);
  CHECK(blocks.find(at(7)) == seven);
  CHECK(blocks.find(at(8)) == 0);
  CHECK(blocks.find(static_cast<char*>(at(7)) + 1) == 0);
  CHECK(blocks[nine].address() == 9 * unit_bytes);
  CHECK(blocks[nine].requested() == 1000);
  CHECK(blocks[nine].bytes() == 4 * unit_bytes);
  blocks.erase(seven);
  CHECK(blocks.find(at(7)) == 0);
  CHECK(blocks.find(at(9)) == nine);
}

TEST_CASE("what was taken last is found until it is erased, and as what its record is used for then") {
  cached_blocks blocks;
  cached_blocks::number const seven = add(blocks, 7), nine = add(blocks, 9);
  CHECK(&blocks.take(seven) == &blocks[seven]);
  CHECK(blocks.find(at(7)) == seven);
  CHECK(blocks.find(at(9)) == nine);
  blocks.erase(seven);
  CHECK(blocks.find(at(7)) == 0);
  CHECK(blocks.find(nullptr) == 0);
  CHECK(add(blocks, 8) == seven);
  CHECK(blocks.find(at(8)) == seven);
  CHECK(blocks.find(at(7)) == 0);
}

TEST_CASE("what is found at once is what is found") {
  cached_blocks blocks;
  blocks.promise(1000);
  for (std::uintptr_t unit = 1; unit <= 1000; ++unit) blocks.insert(block_at(unit));
  std::size_t at_once = 0;
  for (std::uintptr_t unit = 0; unit <= 1500; ++unit) {
    cached_blocks::number const found = blocks.find_at_once(at(unit));
    CHECK((found == 0 || found == blocks.find(at(unit))));
    at_once += found != 0;
  }
  CHECK(at_once > 900);
  cached_blocks::number const first = blocks.find(at(1));
  blocks.take(first);
  CHECK(blocks.find_at_once(at(1)) == first);
  blocks.erase(first);
  CHECK(blocks.find_at_once(at(1)) == 0);
}

TEST_CASE("a record holds the largest block, and says whether it is free") {
  cached_blocks blocks;
  blocks.promise(1);
  cached_blocks::number const n = blocks.insert({at(1), slot_class::count - 1, slot_class::most_bytes, 8});
  CHECK(blocks[n].requested() == slot_class::most_bytes);
  CHECK(blocks[n].bytes() == slot_class::most_bytes);
  CHECK(blocks[n].alignment_log() == 8);
  CHECK_FALSE(blocks[n].is_free());
  CHECK(blocks[n].is_asked(slot_class::most_bytes, 8, slot_class::count - 1));
  blocks[n].set_asked(cached_blocks::free_mark, 0, slot_class::count - 1);
  CHECK(blocks[n].is_free());
  CHECK_FALSE(blocks[n].is_asked(slot_class::most_bytes, 8, slot_class::count - 1));
  CHECK(blocks[n].size_class() == slot_class::count - 1);
  blocks[n].set_asked(1, 0, slot_class::count - 1);
  CHECK_FALSE(blocks[n].is_free());
  CHECK(blocks[n].is_asked(1, 0, slot_class::count - 1));
  CHECK_FALSE(blocks[n].is_asked(1, 1, slot_class::count - 1));
  CHECK_FALSE(blocks[n].is_asked(2, 0, slot_class::count - 1));
  CHECK_FALSE(blocks[n].is_asked(1, 0, slot_class::count - 2));
}

TEST_CASE("what is promised needs no memory later, and records are used again") {
  cached_blocks blocks;
  blocks.promise(100);
  std::size_t const bytes = blocks.host_bytes();
  for (std::uintptr_t unit = 1; unit <= 100; ++unit) blocks.insert(block_at(unit));
  CHECK(blocks.host_bytes() == bytes);
  for (std::uintptr_t unit = 1; unit <= 1000; ++unit) {
    blocks.erase(blocks.find(at(unit)));
    add(blocks, unit + 100);
  }
  CHECK(blocks.host_bytes() <= 2 * bytes);
  blocks.promise(1000);
  CHECK(blocks.host_bytes() > 2 * bytes);
  blocks.forget_promise(1000);
}

TEST_CASE("each block is visited once, and may be erased meanwhile") {
  cached_blocks blocks;
  for (std::uintptr_t unit = 1; unit <= 20; ++unit) add(blocks, unit);
  for (std::uintptr_t unit = 1; unit <= 20; unit += 2) blocks.erase(blocks.find(at(unit)));
  std::vector<std::uintptr_t> seen;
  blocks.for_each([&](cached_blocks::number n) {
    seen.push_back(blocks[n].address() / unit_bytes);
    blocks.erase(n);
  });
  CHECK(seen == std::vector<std::uintptr_t>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20});
  blocks.for_each([&](cached_blocks::number) { FAIL_CHECK("none is left"); });
}

TEST_CASE("thousands of blocks come and go as in a map") {
  cached_blocks blocks;
  std::map<std::uintptr_t, cached_blocks::number> model;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::uintptr_t const unit = 1 + random() % 3000;
    if (auto const there = model.find(unit); there != model.end()) {
      REQUIRE(blocks.find(at(unit)) == there->second);
      blocks.erase(there->second);
      model.erase(there);
    } else {
      REQUIRE(blocks.find(at(unit)) == 0);
      model[unit] = add(blocks, unit);
    }
  }
  for (auto const& [unit, n] : model) CHECK(blocks[n].address() == unit * unit_bytes);
}
