#include <weir/support/first_index.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>

using weir::detail::first_index;

TEST_CASE("the first index from which on it holds is found, and few are asked") {
  for (std::size_t const count : {0u, 1u, 2u, 3u, 8u, 1000u})
    for (std::size_t first = 0; first <= count; ++first) {
      CAPTURE(count);
      CAPTURE(first);
      std::size_t asked = 0, beyond = 0;
      std::size_t const found = first_index(count, [&](std::size_t i) {
        ++asked;
        beyond += i >= count;
        return i >= first;
      });
      CHECK(found == first);
      CHECK(beyond == 0);
      CHECK((std::size_t{1} << asked) <= 2 * count + 1);
    }
}
