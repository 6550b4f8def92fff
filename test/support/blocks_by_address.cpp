#include <weir/support/blocks_by_address.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>

using weir::detail::blocks_by_address;

namespace {

template <class T>
void insert(blocks_by_address<T>& table, std::uintptr_t address, T value) {
  table.promise();
  table.insert(address, value);
}

}  // namespace

TEST_CASE("an address has the value that was last inserted with it") {
  blocks_by_address<int> table;
  CHECK(table.host_bytes() == 0);
  CHECK(table.find(256) == nullptr);
  insert(table, 256, 1);
  insert(table, 512, 2);
  CHECK(*table.find(256) == 1);
  insert(table, 256, 3);
  CHECK(*table.find(256) == 3);
  CHECK(table.size() == 2);
  CHECK(table.find(768) == nullptr);
  CHECK(table.find(0) == nullptr);
}

TEST_CASE("a value that is inserted in room is taken with its address") {
  blocks_by_address<int> table;
  auto const taken = [&](std::uintptr_t address) {
    int value = 0;
    bool const was_there = table.take(address, value);
    CHECK(was_there == (value != 0));
    return value;
  };
  auto const add = [&](std::uintptr_t address, int value) {
    table.make_room();
    std::size_t const before = table.size();
    bool const was_free = table.insert_at_home(address, value);
    CHECK(table.size() == before + (was_free ? 1 : 0));
    if (!was_free) table.insert_in_room(address, value);
    return was_free;
  };
  CHECK_FALSE(table.has_room());
  CHECK(add(256, 1));
  CHECK(*table.find(256) == 1);
  CHECK_FALSE(add(256, 3));  // by itself
  CHECK(*table.find(256) == 3);
  CHECK(table.size() == 1);
  CHECK(table.has_room());
  CHECK(taken(512) == 0);
  CHECK(taken(256) == 3);
  CHECK(table.find(256) == nullptr);
  CHECK(table.size() == 0);
  CHECK(add(256, 5));
  // Squares: some share the place that is looked at first, which numbers one after the other do not.
  auto const address_of = [](int i) { return 256 * static_cast<std::uintptr_t>(i) * static_cast<std::uintptr_t>(i); };
  int not_free = 0;
  for (int i = 2; i < 1000; ++i) not_free += add(address_of(i), i) ? 0 : 1;
  CHECK(not_free > 0);
  for (int i = 2; i < 1000; ++i) REQUIRE(*table.find(address_of(i)) == i);
  for (int i = 999; i > 1; --i) REQUIRE(taken(address_of(i)) == i);
  CHECK(table.size() == 1);
  CHECK(*table.find(256) == 5);
}

TEST_CASE("what is erased is gone, and what collided with it is still found") {
  // As a map behaves, over far more addresses than places at first, which are near each other as a pool's are.
  blocks_by_address<std::uint64_t> table;
  std::map<std::uintptr_t, std::uint64_t> expected;
  std::mt19937_64 random(7);
  for (int step = 0; step < 20'000; ++step) {
    std::uintptr_t const address = 256 * (1 + random() % 3000);
    bool const is_there = expected.count(address) != 0;
    REQUIRE((table.find(address) != nullptr) == is_there);
    if (is_there) {
      REQUIRE(*table.find(address) == expected[address]);
      table.erase(address);
      expected.erase(address);
    } else {
      std::uint64_t const value = random();
      insert(table, address, value);
      expected[address] = value;
    }
    REQUIRE(table.size() == expected.size());
  }
  std::map<std::uintptr_t, std::uint64_t> all;
  table.for_each([&](std::uintptr_t address, std::uint64_t value) { all[address] = value; });
  CHECK(all == expected);
  for (auto const& [address, value] : expected) table.erase(address);
  CHECK(table.size() == 0);
}

TEST_CASE("what was erased can be inserted again without memory, until one place is left to end a search at") {
  blocks_by_address<int> table;
  CHECK_FALSE(table.insert_again(256, 1));
  std::uintptr_t address = 0;
  for (int i = 0; i < 12; ++i) insert(table, address += 256, i);  // the most before it grows
  std::size_t const bytes = table.host_bytes();
  int again = 0;
  while (table.insert_again(address += 256, 100)) ++again;
  CHECK(again == 3);
  CHECK(table.host_bytes() == bytes);
  CHECK(table.find(address) == nullptr);
  CHECK(*table.find(address - 256) == 100);
  insert(table, address, 5);
  CHECK(table.host_bytes() == 2 * bytes);
  CHECK(table.size() == 16);
}

TEST_CASE("a new value takes no place that was promised") {
  blocks_by_address<int> table;
  for (int i = 0; i < 12; ++i) table.promise();  // the most before it grows
  std::size_t const bytes = table.host_bytes();
  CHECK_FALSE(table.has_room());
  table.make_room();
  CHECK(table.host_bytes() == 2 * bytes);
}

TEST_CASE("what was promised is there, whoever inserts meanwhile") {
  blocks_by_address<int> table;
  std::uintptr_t address = 0;
  for (int i = 0; i < 12; ++i) table.promise();  // the most before it grows
  std::size_t const bytes = table.host_bytes();
  while (table.insert_again(address += 256, 100)) {
  }
  CHECK(table.size() == 3);  // a sixteenth place ends a search
  for (int i = 0; i < 12; ++i) table.insert(address += 256, i);
  CHECK(table.host_bytes() == bytes);
  CHECK(table.size() == 15);
  CHECK(*table.find(address) == 11);
}

TEST_CASE("a promise that is forgotten takes no place") {
  blocks_by_address<int> table;
  table.promise();
  std::size_t const bytes = table.host_bytes();
  for (int i = 0; i < 100; ++i) {
    table.forget_promise();
    table.promise();
  }
  CHECK(table.host_bytes() == bytes);
  CHECK(table.size() == 0);
}

TEST_CASE("clear forgets all, but for what was promised") {
  blocks_by_address<int> table;
  for (std::uintptr_t address = 256; address <= 256 * 10; address += 256) insert(table, address, 1);
  table.promise(2);
  std::size_t const bytes = table.host_bytes();
  table.clear();
  CHECK(table.size() == 0);
  CHECK(table.find(256) == nullptr);
  table.insert(256, 7);
  table.insert(512, 8);
  CHECK(table.host_bytes() == bytes);
  *table.find(256) += 1;
  CHECK(*table.find(256) == 8);
}
