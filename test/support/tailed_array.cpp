#include <weir/support/tailed_array.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using weir::detail::tailed_array;

namespace {

struct numbered {
  std::uint32_t number = 7;

  std::uint32_t* behind() { return reinterpret_cast<std::uint32_t*>(this + 1); }
};

constexpr std::size_t bytes_of(std::size_t numbers) { return numbers * sizeof(std::uint32_t); }

}  // namespace

TEST_CASE("an array grows in elements and in what is behind each; what is there stays, what is new is fresh") {
  tailed_array<numbered> array;
  CHECK(array.size() == 0);
  CHECK(array.bytes() == 0);
  array.grow(1, 0);
  CHECK(array[0].number == 7);
  array[0].number = 10;
  array.grow(0, bytes_of(3));
  CHECK(array.size() == 1);
  CHECK(array[0].number == 10);
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(array[0].behind()[i] == 0);
    array[0].behind()[i] = 100 + i;
  }
  array.grow(4, 0);
  array[3].number = 13;
  array[3].behind()[2] = 302;
  array.grow(2, bytes_of(50));
  CHECK(array.size() == 4);
  for (std::uint32_t i = 0; i < 3; ++i) CHECK(array[0].behind()[i] == 100 + i);
  CHECK(array[0].number == 10);
  CHECK(array[1].number == 7);
  CHECK(array[3].number == 13);
  CHECK(array[3].behind()[2] == 302);
  for (std::uint32_t i = 3; i < 50; ++i) CHECK(array[3].behind()[i] == 0);
  array[2].behind()[49] = 5;
  CHECK(array[3].number == 13);
}

TEST_CASE("an array takes memory for what it has, and for nothing where it has as much") {
  tailed_array<numbered> array;
  array.grow(3, bytes_of(9));
  std::size_t const bytes = array.bytes();
  CHECK(bytes >= 3 * (sizeof(numbered) + bytes_of(9)));
  CHECK(bytes <= 3 * (sizeof(numbered) + bytes_of(9) + 3 * sizeof(void*)));
  numbered* const first = &array[0];
  array.grow(3, bytes_of(9));
  array.grow(1, 0);
  CHECK(&array[0] == first);
  CHECK(array.bytes() == bytes);
}
