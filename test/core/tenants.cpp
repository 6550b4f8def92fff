#include <weir/core/tenants.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/test_source.hpp"

using namespace weir;

namespace {

struct budget {
  std::size_t used() const { return 0; }
  std::size_t max_bytes() const { return 0; }
  std::size_t peak() const { return 0; }
  std::uint64_t refused() const { return 0; }
};

struct program final : tenant {
  program(std::string called, std::size_t held, std::size_t live, std::size_t min = 0, std::size_t low = 0)
      : what(std::move(called)), has{live, held} {
    min_bytes = min;
    low_bytes = low;
  }
  tenant_usage usage() noexcept override { return has; }
  std::size_t give_idle(std::size_t bytes) noexcept override {
    std::size_t const idle = has.held - has.live, gone = bytes < idle ? bytes : idle;
    has.held -= gone;
    asked.push_back(bytes);
    return gone;
  }
  bool is_under(limit_ref const& limit) noexcept override { return charged_to != nullptr && *charged_to == limit; }
  std::string name() const override { return what; }

  std::string what;
  tenant_usage has;
  std::vector<std::size_t> asked;
  limit_ref const* charged_to = nullptr;
};

}  // namespace

TEST_CASE("together they hold the sum, and the most that was live is remembered") {
  tenants all(0);
  program a("a", 100, 60), b("b", 50, 50);
  all.join(a);
  CHECK_FALSE(all.is_shared());
  all.join(b);
  CHECK(all.is_shared());
  CHECK(all.joint(60, 10).live == 120);
  CHECK(all.joint(60, 10).held == 150);
  a.has.live = 0;
  CHECK(all.joint(60, 0).live == 120);
  CHECK(all.joint(300, 0).live == 300);
  all.leave(b);  // and what it had live with it
  CHECK(all.joint(0, 0).live == 0);
  CHECK_FALSE(all.is_shared());
  CHECK(all.joint(0, 0).held == 100);
}

TEST_CASE("others give back what they do not use: those above their low mark first, nobody below its minimum") {
  tenants all(1000);
  program me("me", 0, 0), low("low", 100, 0, 0, 100), high("high", 100, 20, 0, 40), kept("kept", 100, 0, 70);
  for (program* p : {&me, &low, &high, &kept}) all.join(*p);
  CHECK(all.reclaim(me, 50) == 50);
  CHECK(low.has.held == 100);
  CHECK(high.has.held + kept.has.held == 150);
  CHECK(all.reclaim(me, 1000) == 40 + 100 + 20);  // what was left of 60 and 30, then what is below the low marks
  CHECK(low.has.held == 0);
  CHECK(high.has.held == 20);
  CHECK(kept.has.held == 70);
  CHECK(me.asked.empty());
  CHECK(all.reclaim(me, 1) == 0);
}

TEST_CASE("only those under a limit are asked where that is short") {
  tenants all(0);
  budget first, second;
  limit_ref const team(first), others(second);
  program me("me", 0, 0), in("in", 50, 20), out("out", 50, 0), elsewhere("elsewhere", 50, 0);
  in.charged_to = &team;
  elsewhere.charged_to = &others;
  for (program* p : {&me, &in, &out, &elsewhere}) all.join(*p);
  CHECK(all.reclaim(me, 40, &team) == 30);
  CHECK(in.has.held == 20);
  CHECK(out.asked.empty());
  CHECK(elsewhere.asked.empty());
}

TEST_CASE("a tenant above its minimum takes only what no promise needs") {
  tenants all(100);
  program a("a", 0, 0, 40), b("b", 0, 0);
  all.join(a);
  all.join(b);
  bool mapped = false;
  auto const map = [&] { return mapped = true; };
  b.has.held = 60;  // what is on its way included
  CHECK(all.take(b, map));
  b.has.held = 61;
  mapped = false;
  CHECK_FALSE(all.take(b, map));
  CHECK_FALSE(mapped);
  a.has.held = 40;
  CHECK(all.take(a, map));
  a.has.held = 41;
  CHECK_FALSE(all.take(a, map));
  CHECK_FALSE(all.take(b, [] { return false; }));
}

TEST_CASE("what is taken without a tenant counts as held, and takes only what no promise needs") {
  tenants all(100);
  program a("a", 0, 0, 40), b("b", 0, 0);
  auto const map = [] { return true; };
  CHECK(all.take_outside(70, map));
  all.give_outside(70);
  all.join(a);
  all.join(b);
  CHECK(all.spares(60));
  CHECK_FALSE(all.spares(61));
  CHECK_FALSE(all.take_outside(61, map));
  CHECK_FALSE(all.take_outside(30, [] { return false; }));
  CHECK_THROWS_AS(all.take_outside(30, []() -> bool { throw std::logic_error("no"); }), std::logic_error);
  CHECK(all.take_outside(30, map));  // of those before it nothing is left
  b.has.held = 30;
  CHECK(all.take(b, map));
  b.has.held = 31;
  CHECK_FALSE(all.take(b, map));
  a.has.held = 40;
  CHECK(all.take(a, map));
  all.give_outside(30);
  CHECK(all.take(b, map));
}

TEST_CASE("of two that ask for what one of them may have, one is let in") {
  tenants all(100);
  program a("a", 0, 0, 40), b("b", 50, 0), c("c", 90, 0);
  for (program* p : {&a, &b, &c}) all.join(*p);
  auto const ask = [](program& p, std::size_t own = 0) { p.has.asked = p.has.held - own; };
  ask(b);
  ask(c);
  tenants::claim of_b(&b), of_c(&c);
  CHECK_FALSE(all.take(c, of_c, 90, [] { return true; }));  // too much, whatever b has
  CHECK(all.take(b, of_b, 50, [&] {
    CHECK(b.let_in() == 50);
    b.has.asked = 0;
    c.has = {0, 11, 11};
    CHECK_FALSE(all.take(c, of_c, 11, [] { return true; }));
    c.has = {0, 10, 10};
    CHECK(all.take(c, of_c, 10, [] { return true; }));
    return true;
  }));
  CHECK(c.let_in() == 10);
  CHECK_FALSE(all.take(c, of_c, 0, [] { return false; }));
  CHECK_FALSE(all.take_outside(60, [] { return true; }));  // beside b's
}

TEST_CASE("what a tenant moves stays its own, and what it could not have is let go") {
  tenants all(100);
  program a("a", 0, 0, 40), b("b", 50, 0), c("c", 20, 0);
  for (program* p : {&a, &b, &c}) all.join(*p);
  c.has.asked = 20;
  {
    tenants::claim moving(&b, 50);
    CHECK(b.let_in() == 50);
    CHECK_FALSE(all.take(c, [] { return true; }));
    CHECK_FALSE(all.take(b, moving, 10, [] { return false; }));
    CHECK_THROWS_AS(all.take(b, moving, 10, []() -> bool { throw std::logic_error("no"); }), std::logic_error);
    CHECK(b.let_in() == 50);
  }
  CHECK(b.let_in() == 0);
  tenants::claim of_nobody(nullptr, 5);
}

TEST_CASE("what is lacking is what is held and promised beyond the capacity, but for who is promised it") {
  tenants all(100);
  program a("a", 20, 20, 40), b("b", 70, 0), c("c", 0, 0, 20);
  all.join(a);
  CHECK(all.lacking(a) == 0);
  all.join(b);
  CHECK(all.lacking(b) == 10);  // 40 are promised to a
  CHECK(all.lacking(a) == 0);
  all.join(c);
  CHECK(all.lacking(b) == 30);
  CHECK(all.lacking(a) == 0);
  a.has.held = 40;
  CHECK(all.lacking(a) == 10);
  a.has.held = 41;
  CHECK(all.lacking(a) == 31);
  tenants endless(0);
  program d("d", 1000, 0);
  endless.join(d);
  CHECK(endless.lacking(d) == 0);  // nobody knows
}

TEST_CASE("what no tenant asks for gets what is missing of what they do not use") {
  tenants all(100);
  program a("a", 60, 10), b("b", 30, 30);
  all.join(a);
  all.join(b);
  CHECK(all.reclaim_outside(30) == 20);  // 10 are nobody's
  CHECK(a.has.held == 40);
  CHECK(all.reclaim_outside(30) == 30);  // if that was not enough, the resource has less than it may have
  CHECK(a.has.held == 10);
  CHECK(b.has.held == 30);
}

TEST_CASE("what a tenant leaves behind counts as held for good") {
  tenants all(100);
  program a("a", 0, 0, 40), b("b", 0, 0), gone("gone", 30, 30);
  for (program* p : {&a, &b, &gone}) all.join(*p);
  all.leave(gone, 30);
  b.has.held = 30;
  CHECK(all.take(b, [] { return true; }));
  b.has.held = 31;
  CHECK_FALSE(all.take(b, [] { return true; }));
}

TEST_CASE("while a tenant takes memory, the others can be asked") {
  tenants all(100);
  program a("a", 10, 5, 40), b("b", 20, 20);
  all.join(a);
  all.join(b);
  std::size_t held = 0;
  CHECK(all.take(b, [&] {  // as a reclaimer below does, whose program uses another pool
    held = all.joint(0, 0).held;
    return all.reclaim(a, 5) == 0;
  }));
  CHECK(held == 30);
}

TEST_CASE("what cannot be promised is refused, with the numbers") {
  tenants none(0), some(100);
  program a("a", 0, 0, 60), b("b", 0, 0, 41), c("c", 0, 0, 40);
  CHECK_THROWS_WITH_AS(none.join(a), doctest::Contains("min_bytes is 60 B"), std::invalid_argument);
  some.join(a);
  CHECK_THROWS_WITH_AS(some.join(b), doctest::Contains("more than the shared memory's 100 B"), std::invalid_argument);
  CHECK_NOTHROW(some.join(c));
}

TEST_CASE("the report has a line for each, where there are several") {
  tenants all(100);
  program a("search", 50, 20, 30), b("train", 10, 10);
  all.join(a);
  report promised;
  all.describe(promised);
  CHECK(promised.lines().find("search: holds 50 B") != std::string::npos);  // others may be refused for it
  a.min_bytes = 0;
  report alone;
  all.describe(alone);
  CHECK(alone.lines().empty());
  a.min_bytes = 30;
  all.join(b);
  report both;
  all.describe(both);
  CHECK(both.lines().find("search: holds 50 B, 20 B of it in use, at least 30 B") != std::string::npos);
  CHECK(both.lines().find("train: holds 10 B, 10 B of it in use") != std::string::npos);
  CHECK(both.chain().empty());  // they are no layers of the stack
  CHECK(both.lines().find("without a pool") == std::string::npos);
  all.take_outside(7, [] { return true; });
  report with_blocks;
  all.describe(with_blocks);
  CHECK(with_blocks.lines().find("blocks without a pool: hold 7 B") != std::string::npos);
}
