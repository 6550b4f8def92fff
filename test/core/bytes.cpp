#include <weir/core/bytes.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace weir;

TEST_CASE("literals are powers of 1024") {
  static_assert(1_KiB == 1024);
  static_assert(3_MiB == 3 * 1024 * 1024);
  static_assert(2_GiB == std::size_t{2} * 1024 * 1024 * 1024);
  CHECK(1024_KiB == 1_MiB);
}

TEST_CASE("byte counts are printed in the largest unit that keeps them above one") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1) == "1 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1_KiB) == "1.00 KiB");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(3_GiB / 2) == "1.50 GiB");
  CHECK(format_bytes(std::numeric_limits<std::size_t>::max()) == "16.00 EiB");
}

TEST_CASE("a count just below a unit is never printed as 1024 of the smaller one") {
  CHECK(format_bytes(1_MiB - 1) == "1.00 MiB");
  CHECK(format_bytes(1_GiB - 1) == "1.00 GiB");
  CHECK(format_bytes(1_MiB - 6) == "1023.99 KiB");
}

TEST_CASE("rounding up gives the next multiple, and 0 where there is none") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  static_assert(round_up_or_zero(0, 256) == 0);
  static_assert(round_up_or_zero(1, 256) == 256);
  static_assert(round_up_or_zero(256, 256) == 256);
  static_assert(round_up_or_zero(257, 256) == 512);
  static_assert(round_up_or_zero(5, 1) == 5);
  CHECK(round_up_or_zero(most, 1) == most);
  CHECK(round_up_or_zero(most - 255, 256) == most - 255);
  CHECK(round_up_or_zero(most - 254, 256) == 0);
  CHECK(round_up_or_zero(most, 256) == 0);
  CHECK(round_up_or_zero(most, max_alignment) == 0);
}

TEST_CASE("valid alignments are the powers of two up to 2 MiB") {
  for (std::size_t alignment = 1; alignment <= 2_MiB; alignment *= 2) CHECK(is_valid_alignment(alignment));
  for (std::size_t const bad : {std::size_t{0}, std::size_t{3}, std::size_t{255}, std::size_t{257}, 4_MiB,
                                std::numeric_limits<std::size_t>::max()})
    CHECK_FALSE(is_valid_alignment(bad));
}

TEST_CASE("a larger alignment needs room to move in, counted without wrapping") {
  CHECK(padded_or_zero(1000, 1) == 1000);
  CHECK(padded_or_zero(1000, 256) == 1000);
  CHECK(padded_or_zero(1000, 512) == 1256);
  CHECK(padded_or_zero(256, 2_MiB) == 2_MiB);
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(padded_or_zero(most - 256, 512) == most);
  CHECK(padded_or_zero(most - 255, 512) == 0);
  for (std::size_t const none : {std::size_t{0}, std::size_t{300}, 4_MiB, most})
    CHECK(padded_or_zero(1000, none) == 1000);
}
