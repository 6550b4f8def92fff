#include <weir/core/limit_ref.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

using namespace weir;

namespace {

/// A budget of the user's own.
struct budget {
  std::size_t charged = 0;
  std::size_t used() const { return charged; }
  std::size_t max_bytes() const { return 100; }
  std::size_t peak() const { return charged + 1; }
  std::uint64_t refused() const { return charged + 2; }
};
struct no_peak {
  std::size_t used() const { return 0; }
  std::size_t max_bytes() const { return 0; }
  std::uint64_t refused() const { return 0; }
};
static_assert(detail::budget<budget>);
static_assert(!detail::budget<no_peak>);

}  // namespace

TEST_CASE("a budget that can be changed is, another says so") {
  struct changeable : budget {
    void set_max_bytes(std::size_t bytes) { set_to = bytes; }
    std::size_t set_to = 0;
  } one;
  limit_ref(one).set_max_bytes(70);
  CHECK(one.set_to == 70);
  budget other;
  CHECK_THROWS_AS(limit_ref(other).set_max_bytes(70), std::logic_error);
}

TEST_CASE("a reference to a limit asks the layer each time") {
  budget layer;
  limit_ref const limit(layer);
  CHECK(limit.used() == 0);
  layer.charged = 7;
  CHECK(limit.used() == 7);
  CHECK(limit.max_bytes() == 100);
  CHECK(limit.peak() == 8);
  CHECK(limit.refused() == 9);
  CHECK(limit.reserve_left() == 0);
  struct with_reserve : budget {
    std::size_t reserve_left() const { return 5; }
  } reserving;
  CHECK(limit_ref(reserving).reserve_left() == 5);
}
