// needs: tsan
#include <weir/adaptors/detail/live_sizes.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

using weir::detail::live_sizes;

namespace {

void add(live_sizes& sizes, std::uintptr_t p) {
  sizes.take_place();
  sizes.insert(p, p + 1);
}
/// Whether it was there, with the size that `add` gave it.
bool drop(live_sizes& sizes, std::uintptr_t p) {
  std::size_t const bytes = sizes.remove(p);
  if (bytes == 0) return false;
  sizes.leave_place();
  return bytes == p + 1;
}

}  // namespace

TEST_CASE("a size is in the table from its insertion to its removal") {
  live_sizes sizes;
  CHECK(sizes.remove(256) == 0);
  add(sizes, 256);
  add(sizes, 512);
  CHECK(sizes.size() == 2);
  CHECK(drop(sizes, 256));
  CHECK_FALSE(drop(sizes, 256));
  CHECK(drop(sizes, 512));
  CHECK(sizes.size() == 0);
}

TEST_CASE("what was removed can be put back into its place, whatever others take") {
  live_sizes sizes;
  add(sizes, 256);
  CHECK(sizes.remove(256) == 257);
  for (std::uint64_t i = 2; i < 100; ++i) add(sizes, i * 256);
  sizes.insert(256, 257);
  for (std::uint64_t i = 1; i < 100; ++i) CHECK(drop(sizes, i * 256));
  CHECK(sizes.size() == 0);
}

TEST_CASE("any addresses, in any order, as in std::set") {
  std::mt19937_64 random(1);
  for (std::uint64_t const step : {256u, 1u, 4096u, 1u << 21}) {
    live_sizes sizes;
    std::set<std::uint64_t> known;
    for (int i = 0; i < 20'000; ++i) {
      std::uint64_t const n = (1 + random() % 500) * step;
      if (random() % 2 == 0) {
        if (known.insert(n).second) add(sizes, n);
      } else if (drop(sizes, n) != (known.erase(n) == 1)) {
        FAIL("step " << i << ": " << n << " is in one and not in the other");
      }
      if (sizes.size() != known.size()) FAIL("step " << i);
    }
    for (std::uint64_t const n : known) CHECK(drop(sizes, n));
    CHECK(sizes.size() == 0);
  }
}

TEST_CASE("threads with addresses of their own do not disturb each other") {
  live_sizes sizes;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&sizes, t] {
      for (int round = 0; round < 50; ++round) {
        for (std::uint64_t i = 1; i <= 50; ++i) add(sizes, (i * 4 + t) * 256);
        for (std::uint64_t i = 1; i <= 50; ++i) drop(sizes, (i * 4 + t) * 256);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(sizes.size() == 0);
}
