#include <weir/pool/order/early_events.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using weir::detail::early_events;

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

/// A pool that has 4 GiB free, all of it done, and two streams; each free is of a MiB.
struct pool_with_frees {
  early_events early;
  std::uint64_t frees = 1'000'000;
  std::size_t done = 4 * gib;

  void plan(std::size_t events = 2) { early.plan(frees, 4 * gib, done, events); }
  void free(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) early.freed(std::size_t{1} << 20);
    frees += count;
  }
  /// How many frees it takes until events are due, which are recorded then; 100,000 if they never are.
  std::size_t frees_until_due() {
    std::size_t count = 0;
    while (!early.are_due(frees, done) && count < 100'000) free(1), ++count;
    if (count < 100'000) early.recorded(frees, done);
    return count;
  }
};

}  // namespace

TEST_CASE("where all work was done when a search asked, no event is recorded early") {
  pool_with_frees pool;
  pool.plan();
  CHECK_FALSE(pool.early.may_be_due());
  CHECK(pool.frees_until_due() == 100'000);
}

TEST_CASE("events are due each time that a quarter of what is free was freed, while what is done is used") {
  pool_with_frees pool;
  pool.early.saw_pending();
  pool.plan();
  for (int i = 0; i < 5; ++i) {
    pool.done /= 2;
    CHECK(pool.frees_until_due() == 1024);
  }
  CHECK(pool.frees_until_due() == 1024);  // once more, though nobody did
}

TEST_CASE("they are due after twice as much each time that nobody used what is done, until somebody does") {
  pool_with_frees pool;
  pool.early.saw_pending();
  pool.plan();
  CHECK(pool.frees_until_due() == 1024);
  pool.done = pool.done / 8 * 7;  // a little
  CHECK(pool.frees_until_due() == 2048);
  CHECK(pool.frees_until_due() == 4096);
  pool.free(1500);
  CHECK_FALSE(pool.early.are_due(pool.frees, pool.done));
  pool.done /= 2;
  CHECK(pool.frees_until_due() == 1024);  // looked at again as many frees later
  CHECK(pool.frees_until_due() == 1024);
}

TEST_CASE("a search begins anew") {
  pool_with_frees pool;
  pool.early.saw_pending();
  pool.plan();
  pool.free(1000);
  pool.plan();
  CHECK(pool.frees_until_due() == 1024);
  SUBCASE("and where there are very many streams it ends them") {
    pool.early.plan_none();
    CHECK(pool.frees_until_due() == 100'000);
  }
}

TEST_CASE("few frees of little memory are not worth an event for each of many streams") {
  early_events early;
  early.saw_pending();
  early.plan(1000, 4096, 4096, 9);
  early.freed(4096);
  CHECK_FALSE(early.are_due(1000 + 159, 4096));
  CHECK(early.are_due(1000 + 160, 4096));  // 16 for each event and one more
  early.freed(std::size_t{80} << 20);
  CHECK(early.are_due(1001, 4096));
}
