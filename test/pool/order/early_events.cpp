#include <weir/pool/order/early_events.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using weir::detail::early_events;

namespace {

constexpr std::size_t much = std::size_t{1} << 30;

/// Whether events are due once so many frees were made, and so much is left for everyone.
bool are_due(early_events const& early, std::uint64_t frees, std::size_t done_bytes) {
  return early.are_planned() && early.are_due(frees, done_bytes);
}

}  // namespace

TEST_CASE("where all work was done when a search asked, no event is recorded early") {
  early_events early;
  early.plan(1000, much, 2);
  early.plan(2000, much, 2);
  CHECK_FALSE(early.are_planned());
}

TEST_CASE("events are due when half as many frees were made as between the last two searches, and once") {
  early_events early;
  early.saw_pending();
  early.plan(1000, much, 2);
  early.plan(3000, much, 2);
  CHECK_FALSE(are_due(early, 3999, much));
  CHECK(are_due(early, 4000, much));
  early.recorded(much);
  CHECK_FALSE(are_due(early, 10'000, much));
}

TEST_CASE("a short time between two searches does not make the next one seem to be short") {
  early_events early;
  early.saw_pending();
  early.plan(8000, much, 2);
  early.plan(8001, much, 2);
  CHECK_FALSE(are_due(early, 8001 + 1999, much));
  CHECK(are_due(early, 8001 + 2000, much));
}

TEST_CASE("they are due when half of what everyone may have was used, and half of the rest") {
  early_events early;
  early.saw_pending();
  early.plan(1'000'000, much, 2);
  CHECK_FALSE(are_due(early, 1'000'001, much / 2));
  CHECK(are_due(early, 1'000'001, much / 2 - 1));
  early.recorded(much / 2 - 1);
  CHECK_FALSE(are_due(early, 1'000'002, much / 4));
  CHECK(are_due(early, 1'000'002, much / 4 - 1));
  SUBCASE("but not again where more than that was used at once") {
    early.recorded(much / 100);
    CHECK_FALSE(early.are_planned());
  }
}

TEST_CASE("few frees and little memory are not worth an event for each of many lists") {
  early_events early;
  early.saw_pending();
  early.plan(100, 1000, 60);
  CHECK_FALSE(early.are_planned());
  early.plan(100, much, 60);
  CHECK(early.are_planned());
  early.plan(10'000, 1000, 60);
  CHECK(early.are_planned());
}
