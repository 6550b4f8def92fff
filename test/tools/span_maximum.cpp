#include <weir/tools/span_maximum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

using weir::detail::span_maximum;

TEST_CASE("a value holds from where it was added until its end, that one excluded") {
  span_maximum m({10, 20, 30, 10});
  CHECK(m.over(0, 100) == 0);
  m.add(10, 20, 5);
  CHECK(m.over(10, 20) == 5);
  CHECK(m.over(0, 10) == 0);
  CHECK(m.over(20, 30) == 0);
  m.add(20, 30, 7);
  CHECK(m.over(10, 20) == 5);
  CHECK(m.over(10, 30) == 7);
  m.add(10, 30, 6);
  CHECK(m.over(10, 20) == 6);
  CHECK(m.over(20, 30) == 7);
  CHECK(m.over(20, 20) == 0);
}

TEST_CASE("without a place there is nothing") { CHECK(span_maximum({}).over(0, ~std::uint64_t{0}) == 0); }

TEST_CASE("of many values the largest in a span is what a look at all of them finds") {
  struct held {
    std::uint64_t from, until, value;
  };
  std::mt19937 random(1);
  for (unsigned places = 2; places < 40; ++places) {
    std::vector<std::uint64_t> all(places);
    for (unsigned i = 0; i < places; ++i) all[i] = std::uint64_t{i} * 3;
    span_maximum m(all);
    std::vector<held> values;
    for (int i = 0; i < 60; ++i) {
      std::uint64_t const a = random() % places, b = random() % places;
      auto const [first, last] = std::minmax(a, b);
      if (first != last && random() % 2 == 0) {
        values.push_back({first * 3, last * 3, 1 + random() % 1000});
        m.add(first * 3, last * 3, values.back().value);
      }
      std::uint64_t most = 0;
      for (held const& v : values)
        if (v.from < last * 3 && first * 3 < v.until && first != last) most = std::max(most, v.value);
      REQUIRE(m.over(first * 3, last * 3) == most);
    }
  }
}
