#include <weir/support/address_map.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>

using weir::detail::address_map;

TEST_CASE("the entry of an address, or the last one before it, is found") {
  address_map<char> map;
  CHECK(map.find(0) == nullptr);
  CHECK(map.find_last_up_to(~std::uintptr_t{0}) == nullptr);
  map.insert(20, 'b');
  map.insert(10, 'a');
  map.insert(30, 'c');
  CHECK(map.find_last_up_to(9) == nullptr);
  CHECK_EQ(map.find_last_up_to(10)->value, 'a');
  CHECK_EQ(map.find_last_up_to(29)->value, 'b');
  CHECK_EQ(map.find_last_up_to(~std::uintptr_t{0})->value, 'c');
  CHECK_EQ(map.find(20)->value, 'b');
  CHECK(map.find(21) == nullptr);
  map.erase(21);
  CHECK_EQ(map.size(), 3);
  map.erase(20);
  CHECK_EQ(map.size(), 2);
  CHECK_EQ(map.find_last_up_to(29)->value, 'a');
}

TEST_CASE("whatever comes and goes, it knows what std::map knows") {
  std::mt19937 random(7);
  address_map<unsigned> map;
  std::map<std::uintptr_t, unsigned> known;
  for (unsigned i = 0; i < 5000; ++i) {
    std::uintptr_t const address = random() % 200;
    if (known.count(address) != 0) {
      map.erase(address);
      known.erase(address);
    } else {
      map.insert(address, i);
      known.emplace(address, i);
    }
    REQUIRE_EQ(map.size(), known.size());
    std::uintptr_t const asked = random() % 210;
    auto const* const found = map.find_last_up_to(asked);
    auto const after = known.upper_bound(asked);
    REQUIRE_EQ(found == nullptr, after == known.begin());
    if (found == nullptr) continue;
    REQUIRE_EQ(found->address, std::prev(after)->first);
    REQUIRE_EQ(found->value, std::prev(after)->second);
  }
}
