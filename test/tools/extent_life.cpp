#include <weir/tools/extent_life.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

using weir::detail::extent_follower;

namespace {

/// `address:bytes from-until` of each, by address.
std::string extents(extent_follower& followed) {
  std::string out;
  for (weir::extent_life const& e : followed.take())
    out += std::to_string(e.address) + ":" + std::to_string(e.bytes) + " " + std::to_string(e.from) + "-" +
           (e.until == weir::to_the_end ? "end" : std::to_string(e.until)) + " ";
  return out;
}

}  // namespace

TEST_CASE("a piece that goes leaves what is beside it") {
  extent_follower followed;
  followed.begin(1000, 300, 1);
  followed.end(1100, 100, 2);
  CHECK(extents(followed) == "1000:100 1-end 1100:100 1-2 1200:100 1-end ");
}

TEST_CASE("what goes and never came was there before, each part for itself") {
  extent_follower followed;
  followed.begin(1100, 100, 3);
  followed.end(1000, 300, 5);
  CHECK(extents(followed) == "1000:100 0-5 1100:100 3-5 1200:100 0-5 ");
}

TEST_CASE("what comes where something is ends that, whose own end was lost") {
  extent_follower followed;
  followed.begin(1000, 200, 1);
  followed.begin(1100, 200, 4);
  CHECK(extents(followed) == "1000:100 1-end 1100:100 1-4 1100:200 4-end ");
}

TEST_CASE("what is there at the end and never came was there all the time") {
  extent_follower followed;
  followed.begin(1100, 100, 2);
  followed.there_at_end(1000, 300);
  CHECK(extents(followed) == "1000:100 0-end 1100:100 2-end 1200:100 0-end ");
}

TEST_CASE("sizes that no memory has are nothing, and addresses do not wrap") {
  extent_follower followed;
  followed.begin(1000, 0, 1);
  followed.begin(1000, ~std::uint64_t{0}, 1);
  followed.begin(~std::uint64_t{0} - 10, 100, 2);
  CHECK(extents(followed) == "18446744073709551605:10 2-end ");
}
