#include <weir/blocks/block_table.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

using namespace weir::detail;

namespace {

std::uintptr_t at(std::uint64_t unit) { return 0x7000'0000'0000u + unit * unit_bytes; }

}  // namespace

TEST_CASE("a split block has a right neighbour, and merging gives it back") {
  block_table table;
  table.reserve(4);
  block_id const whole = table.add(at(0), 10);
  block_id const rest = table.split(whole, 4);
  block_id const last = table.split(rest, 1);
  CHECK(table[whole].size == 4);
  CHECK(table[rest].address == at(4));
  CHECK(table[rest].size == 1);
  CHECK(table[last].address == at(5));
  CHECK(table[last].size == 5);
  CHECK(table[last].left == rest);
  CHECK(table.used() == 3);

  table.merge_right(whole);
  CHECK(table[whole].size == 5);
  CHECK(table[whole].right == last);
  CHECK(table[last].left == whole);
  table.merge_right(whole);
  CHECK(table[whole].size == 10);
  CHECK(table[whole].right == 0);
  CHECK(table.used() == 1);
  table.drop(whole);
  CHECK(table.used() == 0);
  CHECK(table.valid());
}

TEST_CASE("records are used again before new ones are made") {
  block_table table;
  table.reserve(1);
  std::size_t const before = table.host_bytes();
  for (int i = 0; i < 100'000; ++i) {
    table.reserve(1);
    table.drop(table.add(at(0), 1));
  }
  CHECK(table.host_bytes() == before);
}

TEST_CASE("an address that is not a live block's start is not found") {
  block_table table;
  table.reserve(2);
  block_id const a = table.add(at(0), 4);
  CHECK(table.find(at(0)) == 0);  // not live yet
  table.enlist(a);
  CHECK(table.find(at(0)) == a);
  CHECK(table.find(at(1)) == 0);
  CHECK(table.find(at(0) + 1) == 0);
  CHECK(table.find(0) == 0);
  table.delist(a);
  CHECK(table.find(at(0)) == 0);
}

// Few slots, so that probes run into each other and around the end of the table; then many, so that it grows.
TEST_CASE("the live blocks are those enlisted and not delisted, whatever the order") {
  for (std::size_t const most : {7u, 1000u}) {
    CAPTURE(most);
    std::mt19937 random(static_cast<unsigned>(most));
    block_table table;
    std::map<std::uintptr_t, block_id> live;
    for (int step = 0; step < 20'000; ++step) {
      std::uintptr_t const address = at(random() % (2 * most));
      if (auto const found = live.find(address); found != live.end()) {
        block_id const id = found->second;
        table.delist(id);
        table.drop(id);
        live.erase(found);
      } else if (live.size() < most) {
        table.reserve(1);
        block_id const id = table.add(address, 1);
        table.enlist(id);
        live.emplace(address, id);
      }
      REQUIRE(table.live() == live.size());
      if (most < 100 || step % 100 == 0) {
        REQUIRE(table.valid());
        for (std::uint64_t unit = 0; unit < 2 * most; ++unit) {
          auto const found = live.find(at(unit));
          REQUIRE(table.find(at(unit)) == (found == live.end() ? 0 : found->second));
        }
      }
    }
  }
}
