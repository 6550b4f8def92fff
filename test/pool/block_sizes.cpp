#include <weir/pool/block_sizes.hpp>

#include <doctest/doctest.h>

#include <cstddef>

using namespace weir;
using detail::block_sizes;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr detail::units never = ~detail::units{0};

std::size_t block_of(block_sizes const& sizes, std::size_t bytes, std::size_t alignment = 256, std::size_t least = 0) {
  return sizes.of(bytes, alignment, least).size * detail::unit_bytes;
}

}  // namespace

TEST_CASE("what is said to be taken is what the block will have") {
  for (bool const keeps_small : {true, false}) {
    block_sizes const sizes(keeps_small, never);
    for (std::size_t bytes = 1; bytes < 4 * mib; bytes += 1 + bytes / 7)
      for (std::size_t const alignment : {std::size_t{1}, std::size_t{256}, std::size_t{4096}}) {
        CHECK(sizes.taken(bytes, alignment) == block_of(sizes, bytes, alignment));
        CHECK(sizes.taken(bytes, alignment) == block_sizes::block_bytes(keeps_small, bytes, alignment));
        CHECK(sizes.taken(bytes, alignment) >= bytes);
      }
  }
}

TEST_CASE("small requests share a few sizes, if they are kept at hand; larger ones have whole units") {
  block_sizes const small(true, never), exact(false, never);
  CHECK(small.has_slots());
  CHECK_FALSE(exact.has_slots());
  CHECK(block_of(exact, mib - 1000) == (mib - 1000 + 255) / 256 * 256);
  CHECK(block_of(small, mib - 1000) == mib);
  CHECK(block_of(small, mib + 1) == mib + 256);
  CHECK(small.may_be_small(small.of(mib, 256, 0)));
  CHECK_FALSE(small.may_be_small(small.of(mib + 1, 256, 0)));
  CHECK_FALSE(small.may_be_small(small.of(1000, 4096, 0)));  // no slot is aligned so
  CHECK_FALSE(exact.may_be_small(exact.of(1000, 256, 0)));
}

TEST_CASE("a block is as large as it was asked to be at least, to the unit") {
  block_sizes const sizes(true, never);
  REQUIRE(block_of(sizes, 5200) == 5632);  // as a small request
  CHECK(block_of(sizes, 100, 256, 5200) == 5376);
  CHECK(block_of(sizes, 5300, 256, 5200) == 5376);
}

TEST_CASE("blocks that are kept whole take the segment that is made for them") {
  block_sizes const sizes(true, static_cast<detail::units>(4 * mib / detail::unit_bytes));
  CHECK_FALSE(sizes.has_slots());
  CHECK(sizes.taken(4 * mib - 256, 256) == 4 * mib - 256);
  CHECK(sizes.taken(4 * mib, 256) == 4 * mib);
  CHECK(sizes.taken(4 * mib + 1, 256) == 6 * mib);
  CHECK(sizes.taken(100, 0) == 256);                                // will be refused: the alignment
  CHECK(sizes.taken(~std::size_t{255}, 256) == ~std::size_t{255});  // and the size
}
