#include <weir/pool/heap/slot_class.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>

using namespace weir::detail;

TEST_CASE("a request's class is the smallest that holds it, and at most an eighth of a slot is left") {
  for (units size = 1; size <= slot_class::most_units; ++size) {
    CAPTURE(size);
    unsigned const found = slot_class::of(size);
    REQUIRE(found < slot_class::count);
    units const holds = slot_class::size(found);
    REQUIRE(holds >= size);
    if (found != 0) REQUIRE(slot_class::size(found - 1) < size);
    REQUIRE((holds - size) * 8 <= holds);
    REQUIRE(slot_class::rounded(size) == holds);
    REQUIRE(slot_class::of(holds) == found);
  }
}

TEST_CASE("sizes of up to 4 KiB waste less than a unit") {
  for (units size = 1; size <= 16; ++size) CHECK(slot_class::rounded(size) == size);
  CHECK(slot_class::rounded(17) == 18);
}

TEST_CASE("a small request takes its class, any other whole units, and one that wraps nothing") {
  constexpr std::size_t mib = std::size_t{1} << 20;
  for (units size = 1; size <= slot_class::most_units; ++size)
    for (std::size_t const less : {0u, 1u, 255u})
      REQUIRE(slot_class::block_bytes(size * std::size_t{256} - less, 256) ==
              slot_class::rounded(size) * std::size_t{256});
  CHECK(slot_class::block_bytes(1, 1) == 256);
  CHECK(slot_class::block_bytes(17 * 256, 256) == 18 * 256);
  CHECK(slot_class::block_bytes(17 * 256, 512) == 17 * 256);  // no slot is aligned to that
  CHECK(slot_class::block_bytes(mib, 256) == mib);
  CHECK(slot_class::block_bytes(mib - 1, 256) == mib);
  CHECK(slot_class::block_bytes(mib + 1, 256) == mib + 256);
  CHECK(slot_class::block_bytes(0, 256) == 0);
  CHECK(slot_class::block_bytes(~std::size_t{0}, 256) == 0);
}
