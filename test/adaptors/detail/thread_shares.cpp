// needs: tsan
#include <weir/adaptors/detail/thread_shares.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "support/turns.hpp"

using namespace weir::detail;
using weir::test::turns;

namespace {

using bytes = amounts<1>;

/// An account as its owner has it, without the lock that threads in turns do not need.
struct account {
  thread_shares<1> shares;
  bytes own, most, added;

  explicit account(std::int64_t bound) : most{{bound}} {}
  bool add(std::int64_t n) { return shares.add({{n}}) || shares.add_and_lend(own, most, {{n}}, added); }
  bool take_off(std::int64_t n) { return shares.take_off({{n}}) || shares.take_off_and_lend(own, most, {{n}}, added); }
  std::int64_t in_use() {
    shares.settle(own, added);
    return own.of[0];
  }
};

}  // namespace

TEST_CASE("a thread that has a share needs nobody for what it gave back") {
  account a(1000);
  REQUIRE(a.add(100));
  REQUIRE(a.take_off(100));
  CHECK(a.shares.add({{100}}));
  CHECK_FALSE(a.shares.add({{1}}));
  CHECK(a.shares.covers({{100}}));
  CHECK_FALSE(a.shares.covers({{101}}));
  CHECK(a.in_use() == 100);
}

TEST_CASE("nothing is refused while a share has room for it") {
  account a(100);
  turns threads(3);
  for (std::size_t const i : {0U, 1U}) threads.on(i, [&] { REQUIRE(a.add(50)); });
  for (std::size_t const i : {0U, 1U}) threads.on(i, [&] { REQUIRE(a.take_off(50)); });
  threads.on(2, [&] { CHECK(a.add(100)); });
  threads.on(0, [&] { CHECK_FALSE(a.add(1)); });
  CHECK(a.in_use() == 100);
}

TEST_CASE("what a thread had that has ended is there for others") {
  account a(100);
  std::thread([&] {
    REQUIRE(a.add(100));
    REQUIRE(a.take_off(60));
  }).join();
  CHECK(a.add(60));
  CHECK_FALSE(a.add(1));
  CHECK(a.take_off(100));
  CHECK(a.in_use() == 0);
}

TEST_CASE("a thread may take off what others added, and no more") {
  account a(100);
  turns threads(2);
  threads.on(0, [&] { REQUIRE(a.add(30)); });
  threads.on(1, [&] { REQUIRE(a.add(40)); });
  CHECK(a.take_off(70));
  CHECK_FALSE(a.take_off(1));
  CHECK(a.in_use() == 0);
}

TEST_CASE("what would be more than may be in use is the account's, and nothing is lent for a while then") {
  account a(100);
  turns threads(1);
  threads.on(0, [&] { REQUIRE(a.add(70)); });
  CHECK_FALSE(a.add(40));
  CHECK(a.own == bytes{{70}});
  CHECK(a.added == bytes{{70}});
  for (int i = 0; i < 64; ++i) REQUIRE_FALSE(a.add(1));
  CHECK(a.add(1));
}

TEST_CASE("what can hardly be counted is not lent where more is in use than may be") {
  account a(50);
  a.own = {{100}};
  CHECK_FALSE(a.add(std::numeric_limits<std::int64_t>::max()));
  CHECK(a.in_use() == 100);
}

TEST_CASE("what is given back is not lent while more is in use than may be") {
  account a(100);
  REQUIRE(a.add(100));
  REQUIRE(a.in_use() == 100);
  a.most = {{50}};
  REQUIRE(a.take_off(30));
  CHECK_FALSE(a.shares.add({{1}}));
  CHECK_FALSE(a.shares.take_off({{1}}));  // or it would make room
  CHECK(a.in_use() == 70);
}

TEST_CASE("a share grows with its thread's needs, and leaves most of the room to others") {
  account a(1 << 20);
  for (int i = 0; i < 100; ++i) REQUIRE(a.add(1));
  int alone = 0;
  while (a.shares.add({{1}})) ++alone;
  CHECK(alone > 0);
  CHECK(alone <= 128);
}

TEST_CASE("all that was ever added is told, of all threads") {
  account a(1000);
  turns threads(2);
  for (std::size_t const i : {0U, 1U, 0U}) {
    threads.on(i, [&] {
      REQUIRE(a.add(10));
      REQUIRE(a.take_off(10));
    });
  }
  CHECK(a.in_use() == 0);
  CHECK(a.added == bytes{{30}});
}

TEST_CASE("more threads than shares have some together") {
  account a(1000);
  turns threads(80);
  for (std::size_t i = 0; i < 80; ++i) threads.on(i, [&] { REQUIRE(a.add(2)); });
  for (std::size_t i = 0; i < 80; ++i) threads.on(i, [&] { REQUIRE(a.take_off(1)); });
  CHECK(a.in_use() == 80);
}
