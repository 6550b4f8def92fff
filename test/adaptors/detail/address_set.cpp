// needs: tsan
#include <weir/adaptors/detail/address_set.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

using weir::detail::address_set;

namespace {

void add(address_set& set, std::uintptr_t p) {
  set.take_place();
  set.insert(p);
}
bool drop(address_set& set, std::uintptr_t p) {
  bool const was_there = set.remove(p);
  if (was_there) set.leave_place();
  return was_there;
}

}  // namespace

TEST_CASE("an address is in the set from its insertion to its removal") {
  address_set set;
  CHECK_FALSE(set.remove(256));
  add(set, 256);
  add(set, 512);
  CHECK(set.size() == 2);
  CHECK(drop(set, 256));
  CHECK_FALSE(drop(set, 256));
  CHECK(drop(set, 512));
  CHECK(set.size() == 0);
}

TEST_CASE("what was removed can be put back into its place, whatever others take") {
  address_set set;
  add(set, 256);
  CHECK(set.remove(256));
  for (std::uint64_t i = 2; i < 100; ++i) add(set, i * 256);
  set.insert(256);
  for (std::uint64_t i = 1; i < 100; ++i) CHECK(drop(set, i * 256));
  CHECK(set.size() == 0);
}

TEST_CASE("any addresses, in any order, as in std::set") {
  std::mt19937_64 random(1);
  for (std::uint64_t const step : {256u, 1u, 4096u, 1u << 21}) {
    address_set set;
    std::set<std::uint64_t> known;
    for (int i = 0; i < 20'000; ++i) {
      std::uint64_t const n = (1 + random() % 500) * step;
      if (random() % 2 == 0) {
        if (known.insert(n).second) add(set, n);
      } else if (drop(set, n) != (known.erase(n) == 1)) {
        FAIL("step " << i << ": " << n << " is in one and not in the other");
      }
      if (set.size() != known.size()) FAIL("step " << i);
    }
    for (std::uint64_t const n : known) CHECK(drop(set, n));
    CHECK(set.size() == 0);
  }
}

TEST_CASE("threads with addresses of their own do not disturb each other") {
  address_set set;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&set, t] {
      for (int round = 0; round < 50; ++round) {
        for (std::uint64_t i = 1; i <= 50; ++i) add(set, (i * 4 + t) * 256);
        for (std::uint64_t i = 1; i <= 50; ++i) drop(set, (i * 4 + t) * 256);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(set.size() == 0);
}
