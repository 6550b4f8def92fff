#include <weir/adaptors/detail/captured_charges.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using weir::detail::captured_charges;

namespace {

/// How many bytes are credited; while they are, the sum still has them.
template <class Holds>
std::size_t released(captured_charges& charges, Holds holds) {
  std::size_t const before = charges.total();
  std::size_t credited = 0;
  charges.release(holds, [&](std::size_t bytes) {
    CHECK(charges.total() == before);
    credited += bytes;
  });
  CHECK(charges.total() == before - credited);
  return credited;
}

}  // namespace

TEST_CASE("each capture has a sum of its own") {
  captured_charges charges;
  charges.reserve();
  charges.keep(7, 1000);
  charges.reserve();
  charges.keep(8, 500);
  charges.keep(7, 24);
  CHECK(charges.total() == 1524);
  CHECK(charges.take(7, 24) == 24);
  CHECK(charges.take(8, 600) == 500);  // no more than is there
  CHECK(charges.take(9, 1) == 0);
  CHECK_FALSE(charges.take_all(7, 1001));
  CHECK(charges.total() == 1000);
  CHECK(charges.take_all(7, 1000));
  CHECK(charges.total() == 0);
}

TEST_CASE("what is released is taken off, what is held stays") {
  captured_charges charges;
  for (std::uint64_t capture = 7; capture < 10; ++capture) {
    charges.reserve();
    charges.keep(capture, capture * 100);
  }
  CHECK(released(charges, [](std::uint64_t capture) { return capture == 8; }) == 1600);
  CHECK(charges.total() == 800);
  CHECK(charges.take(8, 1000) == 800);
}

TEST_CASE("captures without a place share one, which nobody takes from until nothing is held") {
  captured_charges charges;
  std::uint64_t const first = 1000;
  for (std::uint64_t i = 0; i < captured_charges::places; ++i) charges.keep(first + i, 1);  // no room is made
  CHECK(charges.take(first + captured_charges::places - 1, 1) == 1);
  for (std::uint64_t i = 0; i + 1 < captured_charges::places; ++i) CHECK(charges.take(first + i, 1) == 1);
  charges.keep(7, 1000);
  charges.keep(8, 500);
  CHECK(charges.take(7, 1000) == 0);
  CHECK_FALSE(charges.take_all(8, 1));
  CHECK(released(charges, [](std::uint64_t capture) { return capture == 0; }) == 0);
  CHECK(released(charges, [](std::uint64_t) { return false; }) == 1500);
}

TEST_CASE("it is time to look what is held once there are twice as many as were") {
  captured_charges charges;
  std::uint64_t capture = 0;
  auto const keep_until_time = [&] {
    for (std::uint64_t const before = capture;;) {
      if (charges.reserve()) return capture - before;
      charges.keep(++capture, 1);
    }
  };
  CHECK(keep_until_time() <= captured_charges::places + 1);
  CHECK(released(charges, [](std::uint64_t) { return true; }) == 0);
  CHECK(keep_until_time() >= captured_charges::places);
  CHECK(released(charges, [](std::uint64_t) { return false; }) == capture);
  CHECK(keep_until_time() <= captured_charges::places + 2);
}
