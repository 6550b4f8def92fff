#include <weir/tools/address_pieces.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

using weir::detail::address_pieces;

namespace {

using piece = std::pair<std::uint64_t, std::uint64_t>;

std::vector<piece> all(address_pieces const& of) { return {of.begin(), of.end()}; }

}  // namespace

TEST_CASE("what touches or overlaps is one piece, and nothing is none") {
  address_pieces pieces;
  pieces.add(100, 200);
  pieces.add(300, 400);
  pieces.add(50, 50);
  CHECK(all(pieces) == std::vector<piece>{{100, 200}, {300, 400}});
  pieces.add(200, 250);
  CHECK(all(pieces) == std::vector<piece>{{100, 250}, {300, 400}});
  pieces.add(120, 350);
  CHECK(all(pieces) == std::vector<piece>{{100, 400}});
  pieces.remove(150, 160);
  CHECK(all(pieces) == std::vector<piece>{{100, 150}, {160, 400}});
}

TEST_CASE("after any number of changes it has the addresses that a plain set has") {
  constexpr std::size_t most = 64;
  std::mt19937 random(1);
  address_pieces pieces;
  std::array<bool, most> plain{};
  for (int step = 0; step < 20'000; ++step) {
    std::uint64_t const begin = random() % most, end = begin + 1 + random() % (most - begin);
    bool any = false, every = true;
    for (std::uint64_t at = begin; at != end; ++at) {
      any = any || plain[at];
      every = every && plain[at];
    }
    REQUIRE(pieces.overlaps(begin, end) == any);
    REQUIRE(pieces.contains(begin, end) == every);
    if (every)
      pieces.remove(begin, end);
    else
      pieces.add(begin, end);
    for (std::uint64_t at = begin; at != end; ++at) plain[at] = !every;
    std::array<bool, most> found{};
    std::uint64_t last = ~std::uint64_t{0};
    for (auto const& [from, to] : all(pieces)) {
      REQUIRE(from != last);  // else both were one piece
      for (std::uint64_t at = from; at != to; ++at) found[at] = true;
      last = to;
    }
    REQUIRE((found == plain));
  }
}
