// needs: tsan
#include <weir/sources/shifted_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

using namespace weir;

namespace {
// Addresses that nobody dereferences: 256 above a multiple of 2 MiB.
void* base_at(std::size_t n) { return reinterpret_cast<void*>(((n + 1) << 21) + 256); }
auto const nothing_to_give = [](void*) {};
}  // namespace

TEST_CASE("up to 256 B a block is where it was taken, of the size asked for") {
  detail::shifted_blocks blocks;
  std::size_t asked = 0;
  auto const take = [&](std::size_t n) {
    asked = n;
    return base_at(0);
  };
  CHECK(blocks.allocate(1000, 256, take, nothing_to_give) == base_at(0));
  CHECK(asked == 1000);
  CHECK(blocks.base_of(base_at(0), 256) == base_at(0));
}

TEST_CASE("a larger alignment moves the block up inside what was asked for, and its base is found again") {
  detail::shifted_blocks blocks;
  for (std::size_t alignment = 512; alignment <= max_alignment; alignment *= 2) {
    std::size_t asked = 0;
    auto const take = [&](std::size_t n) {
      asked = n;
      return base_at(0);
    };
    void* const p = blocks.allocate(1000, alignment, take, nothing_to_give);
    auto const moved = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_at(0));
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    CHECK(moved + 1000 <= asked);
    CHECK(blocks.base_of(p, alignment) == base_at(0));
    CHECK(blocks.base_of(p, alignment) == p);  // forgotten
  }
}

TEST_CASE("a block that happens to be aligned is not remembered") {
  detail::shifted_blocks blocks;
  void* const aligned = reinterpret_cast<void*>(std::uintptr_t{1} << 21);
  CHECK(blocks.allocate(
            1000, 4096, [&](std::size_t) { return aligned; }, nothing_to_give) == aligned);
  CHECK(blocks.base_of(aligned, 4096) == aligned);
}

TEST_CASE("sizes that no object has are not asked for") {
  detail::shifted_blocks blocks;
  auto const must_not = [](std::size_t) -> void* {
    FAIL("asked");
    return nullptr;
  };
  for (std::size_t const alignment : {std::size_t{1}, max_alignment})
    for (std::size_t const bytes : {detail::largest_request + 1, ~std::size_t{0}})
      CHECK(blocks.allocate(bytes, alignment, must_not, nothing_to_give) == nullptr);
  std::size_t asked = 0;
  auto const take = [&](std::size_t n) -> void* {
    asked = n;
    return nullptr;
  };
  CHECK(blocks.allocate(detail::largest_request, max_alignment, take, nothing_to_give) == nullptr);
  CHECK(asked > detail::largest_request);  // no wrap: the largest object with the largest alignment still fits a size
}

TEST_CASE("blocks are moved and found by many threads at once") {
  detail::shifted_blocks blocks;
  auto const work = [&](std::size_t thread) {
    for (std::size_t round = 0; round < 200; ++round) {
      std::vector<void*> moved;
      for (std::size_t i = 0; i < 8; ++i)
        moved.push_back(blocks.allocate(
            100, 4096, [&](std::size_t) { return base_at(thread * 8 + i); }, nothing_to_give));
      for (std::size_t i = 0; i < 8; ++i)
        if (blocks.base_of(moved[i], 4096) != base_at(thread * 8 + i)) FAIL_CHECK("a base was lost");
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  for (auto& thread : threads) thread.join();
}
