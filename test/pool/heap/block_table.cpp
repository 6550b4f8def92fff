#include <weir/pool/heap/block_table.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

using namespace weir::detail;

namespace {

std::uintptr_t at(std::uint64_t unit) { return 0x7000'0000'0000u + unit * unit_bytes; }

}  // namespace

TEST_CASE("a split block has a right neighbour, and merging gives it back") {
  block_table table;
  table.reserve(4);
  block_id const whole = table.add(at(0), 10);
  block_id const last = table.split(whole, 5);
  block_id const rest = table.split(whole, 1);
  for (block_id const id : {whole, rest, last}) table[id].set_free(shared);
  CHECK(table[whole].size == 4);
  CHECK(table[rest].address() == at(4));
  CHECK(table[rest].size == 1);
  CHECK(table[last].address() == at(5));
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

TEST_CASE("a record keeps what was asked for beside the address, whatever the sizes") {
  for (std::uint64_t const requested : {std::uint64_t{1}, std::uint64_t{0xffffffff}, std::uint64_t{max_block_bytes}})
    for (unsigned const alignment_log : {0u, 8u, 21u}) {
      block b(at(3), 7);
      b.set_live(requested, alignment_log);
      CHECK(b.state() == block_state::live);
      CHECK(b.address() == at(3));
      CHECK(b.requested() == requested);
      CHECK(b.alignment_log() == alignment_log);
      b.set_free(list_id{5});
      CHECK(b.is_free());
      CHECK(b.address() == at(3));
      CHECK(b.list == list_id{5});
    }
}

TEST_CASE("a border moves between two neighbours and nothing else changes") {
  block_table table;
  table.reserve(4);
  block_id const first = table.add(at(0), 10);
  block_id const third = table.split(first, 2);
  block_id const second = table.split(first, 3);
  for (block_id const id : {first, second, third}) table[id].set_free(shared);
  table.move_border(first, 4);
  CHECK(table[first].size == 1);
  table[second].set_free(shared);
  CHECK(table[second].address() == at(1));
  CHECK(table[second].size == 7);
  CHECK(table[third].address() == at(8));
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

TEST_CASE("room for many live blocks at once is room for each of them") {
  block_table table;
  table.reserve(1000, 1000);
  std::size_t const before = table.host_bytes();
  for (std::uint64_t i = 0; i < 1000; ++i) table.enlist(table.add(at(i), 1), 256, 8);
  CHECK(table.host_bytes() == before);
  CHECK(table.valid());
  for (std::uint64_t i = 0; i < 1000; ++i) REQUIRE(table.find(at(i)) != 0);
}

TEST_CASE("a block that is set aside is live and found, is not as anyone asked for it, and is used again as asked") {
  block_table table;
  table.reserve(2);
  block_id const id = table.add(at(0), 4), other = table.add(at(9), 4);
  table.enlist(id, 700, 3);
  table.enlist(other, 700, 3);
  table.set_taker(id, list_id{2});
  table.set_cached(id, 41);
  CHECK(table[id].is_cached());
  CHECK_FALSE(table[other].is_cached());
  CHECK(table[id].state() == block_state::live);
  CHECK(table[id].list == list_id{2});
  CHECK(table[id].requested() > max_block_bytes);
  CHECK(table.find(at(0)) == id);
  CHECK(table.valid());
  CHECK(table[id].list_next == 41);
  CHECK(table.reuse(id, 900, 8) == at(0));
  CHECK_FALSE(table[id].is_cached());
  CHECK(table[id].requested() == 900);
  CHECK(table[id].alignment_log() == 8);
  CHECK(table.find(at(0)) == id);
  CHECK(table.valid());
}

TEST_CASE("a live block is found as it was asked for, whether it is the latest or not") {
  block_table table;
  table.reserve(2);
  block_id const earlier = table.add(at(0), 4), latest = table.add(at(9), 4);
  table.enlist(earlier, 700, 8);
  table.enlist(latest, 700, 8);
  for (auto const& [id, address] : {std::pair{earlier, at(0)}, std::pair{latest, at(9)}}) {
    CHECK(table.find(address, 8) == id);
    CHECK(table.find(address, 7) == 0);
    CHECK(table.find(address + 1, 8) == 0);
    CHECK(table.find(address + 4, 7) == 0);
    CHECK(table.find_at_once(address, 8) == id);  // of so few, each is where it is looked for first
    CHECK(table.find_at_once(address, 7) == 0);
    CHECK(table.find_at_once(address + 1, 8) == 0);
    CHECK(table.find_at_once(address + 4, 7) == 0);
  }
  table.delist(latest);
  table[latest].set_free(shared);
  CHECK(table.find(at(9), 8) == 0);
  CHECK(table.find_at_once(at(9), 8) == 0);
  CHECK(table.find_at_once(0, 8) == 0);
  CHECK(table.find(at(0), 8) == earlier);
  CHECK(table.find(0, 8) == 0);
}

TEST_CASE("a free block whose neighbour in its list has any number is not set aside") {
  block b(at(0), 4);
  b.set_live(max_block_bytes, 0);
  CHECK_FALSE(b.is_cached());
  b.set_free(list_id{1});
  b.list_previous = ~block_id{0};
  CHECK_FALSE(b.is_cached());
}

TEST_CASE("an address that is not a live block's start is not found") {
  block_table table;
  table.reserve(2);
  block_id const a = table.add(at(0), 4);
  CHECK(table.find(at(0)) == 0);  // not live yet
  table.enlist(a, 700, 8);
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
        table.enlist(id, 256, 8);
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
