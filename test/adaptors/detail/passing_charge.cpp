#include <weir/adaptors/detail/passing_charge.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/core/any_resource.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::limit_below;
using detail::own_charge;
using detail::paid_ahead;
using detail::passing_free;
using detail::passing_request;
using detail::reserve_account;

namespace {

/// What a budget has that stands on another one, of which it has reserved some.
struct budget_on_another {
  source_state state;
  decltype(make(source{&state} | limit{8_KiB})) under = make(source{&state} | limit{8_KiB});
  limit_below const below{under};
  reserve_account reserve;

  explicit budget_on_another(std::size_t reserved) : reserve(reserved) { below.reserve(reserved, 256, "a budget"); }
  own_charge arrived(std::size_t bytes) const { return {this, nullptr, bytes, bytes}; }
  /// What the one below is told of a request that passes now.
  std::size_t told(std::size_t bytes) const {
    paid_ahead const* const found = paid_ahead::find(below.layer(), nullptr, bytes);
    return found == nullptr ? 0 : found->bytes();
  }
};

}  // namespace

TEST_CASE("what the budget above paid ahead is not charged here, and no more of it than the charge") {
  int here = 0;
  CHECK(own_charge(&here, nullptr, 1024, 1024).bytes == 1024);
  CHECK_FALSE(own_charge(&here, nullptr, 1024, 1024).is_told);
  paid_ahead const note(&here, nullptr, 1024, 768);
  own_charge const own(&here, nullptr, 1024, 1024);
  CHECK(own.is_told);
  CHECK(own.ahead == 768);
  CHECK(own.bytes == 256);
  CHECK(own_charge(&here, nullptr, 1024, 512).ahead == 512);
  CHECK(own_charge(&here, nullptr, 1024, 512).bytes == 0);
}

TEST_CASE("the reserve pays of a request what it has, and the budget below is told so while it passes") {
  budget_on_another b(1_KiB);
  auto const own = b.arrived(4_KiB);
  {
    passing_request const passing(own, b.below, b.reserve);
    CHECK(b.told(4_KiB) == 1_KiB);
    CHECK(b.reserve.left() == 0);
    passing.served();
  }
  CHECK(b.told(4_KiB) == 0);
  CHECK(b.under.used() == 1_KiB);  // the rest is charged there by the request itself
  passing_free const passing(own, b.below, b.reserve);
  CHECK(b.told(4_KiB) == 1_KiB);
  passing.done();
  CHECK(b.reserve.left() == 1_KiB);
}

TEST_CASE("a request that fails gives the reserve back, and a free that fails leaves it as it was") {
  budget_on_another b(1_KiB);
  auto const own = b.arrived(512);
  passing_request(own, b.below, b.reserve).failed();
  CHECK(b.reserve.left() == 1_KiB);
  passing_request(own, b.below, b.reserve).served();
  CHECK(b.reserve.left() == 512);
  passing_free(own, b.below, b.reserve).failed();
  CHECK(b.reserve.left() == 512);
  CHECK(b.under.used() == 1_KiB);
}

TEST_CASE("what a capture uses again needs no reserve, and what it needed besides is credited below") {
  budget_on_another b(1_KiB);
  b.below.reserve(1_KiB, 256, "a budget");  // which the request charges on its way down
  auto const own = b.arrived(2_KiB);
  passing_request(own, b.below, b.reserve).served(2_KiB);
  CHECK(b.reserve.left() == 1_KiB);
  CHECK(b.under.used() == 1_KiB);
}

TEST_CASE("without a reserve the budget below is told nothing, unless this one was") {
  budget_on_another b(0);
  auto const own = b.arrived(1_KiB);
  passing_request(own, b.below, b.reserve).served();
  {
    passing_request const passing(own, b.below, b.reserve);
    CHECK(paid_ahead::find(b.below.layer(), nullptr, 1_KiB) == nullptr);
    passing.served();
  }
  paid_ahead const note(&b, nullptr, 1_KiB, 256);
  auto const told = b.arrived(1_KiB);
  passing_request const passing(told, b.below, b.reserve);
  CHECK(b.told(1_KiB) == 256);
  passing.served();
}
