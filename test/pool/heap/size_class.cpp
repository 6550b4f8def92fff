#include <weir/pool/heap/size_class.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <vector>

using namespace weir::detail;

namespace {

constexpr units most = std::numeric_limits<units>::max();

/// All sizes where a class may begin or end, and one unit to either side.
std::vector<units> boundaries() {
  std::vector<units> sizes;
  for (unsigned log = 0; log < 32; ++log)
    for (unsigned step = 0; step <= 2 * size_class::per_row; ++step) {
      auto const middle = (std::uint64_t{1} << log) + ((std::uint64_t{step} << log) >> (size_class::row_bits + 1));
      for (std::uint64_t size : {middle - 1, middle, middle + 1})
        if (size >= 1 && size <= most) sizes.push_back(static_cast<units>(size));
    }
  return sizes;
}

}  // namespace

static_assert(size_class::of(1) == size_class::at(0, 1));
static_assert(size_class::of(31) == size_class::at(0, 31));
static_assert(size_class::of(32) == size_class::at(1, 0));
static_assert(size_class::of(63) == size_class::at(1, 31));
static_assert(size_class::of(64) == size_class::at(2, 0) && size_class::of(65) == size_class::at(2, 0));
static_assert(size_class::of(66) == size_class::at(2, 1));
static_assert(size_class::of(most) == size_class::at(size_class::rows - 1, size_class::per_row - 1));

TEST_CASE("every size lies between its class's least size and the next class's") {
  for (units const size : boundaries()) {
    size_class const own = size_class::of(size);
    REQUIRE(own.row() < size_class::rows);
    REQUIRE(own.column() < size_class::per_row);
    REQUIRE(own.least() <= size);
    REQUIRE(size_class::of(own.least()) == own);
    if (own.least() > 1) REQUIRE(size_class::of(own.least() - 1).number + 1 == own.number);
  }
}

TEST_CASE("a larger size is never in an earlier class") {
  for (units const size : boundaries())
    if (size != most) REQUIRE(size_class::of(size).number <= size_class::of(size + 1).number);
}

TEST_CASE("sizes of one class differ by at most a 32nd") {
  for (units const size : boundaries()) {
    auto const least = size_class::of(size).least();
    REQUIRE((size - least) * std::uint64_t{32} <= least);
  }
}
