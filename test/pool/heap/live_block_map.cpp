#include <weir/pool/heap/live_block_map.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

using namespace weir::detail;

namespace {

/// A table, and the addresses by number, as the pool's records are.
struct addressed {
  live_block_map table;
  std::vector<std::uintptr_t> addresses{0};

  auto address_of() const {
    return [this](block_id id) { return addresses[id]; };
  }
  block_id add(std::uintptr_t address) {
    auto const id = static_cast<block_id>(addresses.size());
    addresses.push_back(address);
    if (table.is_full()) table.grow(address_of());
    table.insert(address, id);
    return id;
  }
  void remove(block_id id) { table.erase(addresses[id], id); }
  block_id find(std::uintptr_t address) { return table.find(address, address_of()); }
};

}  // namespace

TEST_CASE("what is in is found, what is not is not") {
  addressed a;
  CHECK(a.find(0) == 0);
  CHECK(a.find(256) == 0);
  block_id const one = a.add(0x7f00'0000'0000u);
  CHECK(a.find(0x7f00'0000'0000u) == one);
  CHECK(a.find(0x7f00'0000'0001u) == 0);  // the hash is the same, the address is not
  CHECK(a.find(0x7f00'0000'0100u) == 0);
  a.remove(one);
  CHECK(a.find(0x7f00'0000'0000u) == 0);
  CHECK(a.table.size() == 0);
}

TEST_CASE("an erase need not come right after its own find") {
  addressed a;
  block_id const one = a.add(0x1000), two = a.add(0x2000);
  CHECK(a.find(0x2000) == two);
  a.remove(one);
  CHECK(a.find(0x1000) == 0);
  CHECK(a.find(0x2000) == two);
  a.add(0x1000);
  a.remove(two);
  CHECK(a.find(0x2000) == 0);
  CHECK(a.find(0x1000) == 3);
}

TEST_CASE("there is room for what is promised, and then the table is full") {
  addressed a;
  a.add(unit_bytes);
  a.table.grow(a.address_of());
  std::size_t const room = a.table.room();
  REQUIRE(room > 0);
  for (std::size_t i = 0; i < room; ++i) {
    CHECK_FALSE(a.table.is_full());
    CHECK(a.table.room() == room - i);
    a.table.insert((2 + i) * unit_bytes, 1);
  }
  CHECK(a.table.is_full());
  CHECK(a.table.room() == 0);
}

// Numbers of entries below, at and above what the first buckets hold, so that full ones pass entries on, also around
// the end of the table, and take them back.
TEST_CASE("the entries are those inserted and not erased, whatever the order") {
  for (std::size_t const most : {11u, 12u, 13u, 50u, 3000u}) {
    CAPTURE(most);
    std::mt19937 random(static_cast<unsigned>(most));
    addressed a;
    std::map<std::uintptr_t, block_id> model;
    for (int step = 0; step < 20'000; ++step) {
      std::uintptr_t const address = (random() % (2 * most)) * unit_bytes;
      if (auto const found = model.find(address); found != model.end()) {
        a.remove(found->second);
        model.erase(found);
      } else if (model.size() < most) {
        model[address] = a.add(address);
      }
      REQUIRE(a.table.size() == model.size());
      if (most > 100 && step % 500 != 0) continue;
      for (std::size_t unit = 0; unit < 2 * most; ++unit) {
        auto const found = model.find(unit * unit_bytes);
        REQUIRE(a.find(unit * unit_bytes) == (found == model.end() ? 0 : found->second));
      }
    }
  }
}
