// What tenants do together is tested in core/tenants.cpp, and with pools in growable_range.cpp.
#include <weir/pool/pool_tenant.hpp>

#include <doctest/doctest.h>
#include <support/test_growable.hpp>

#include <stdexcept>

using namespace weir;
using namespace weir::test;

namespace {

struct allocator {
  tenant_usage usage() const noexcept { return {1, 2}; }
  std::size_t give_idle(std::size_t bytes) noexcept { return bytes / 2; }
};

}  // namespace

TEST_CASE("a pool asks for what it is promised, answers for its allocator, and leaves") {
  shared_growable memory(4 * test_growable::chunk);
  allocator of;
  {
    detail::pool_tenant<allocator, shared_growable> t(of, memory,
                                                      pool{.min_bytes = 3_MiB, .low_bytes = 5_MiB, .name = "me"});
    t.join();
    CHECK(t.get()->usage().held == 2);
    CHECK(t.get()->give_idle(10) == 5);
    CHECK(t.get()->name() == "me");
    CHECK(t.get()->min_bytes == 4_MiB);  // in whole chunks
    CHECK(t.get()->low_bytes == 6_MiB);
    CHECK(memory.tenancy().joint(0, 0).live == 1);
    t.leave();
  }
  CHECK(memory.tenancy().joint(0, 0).held == 0);
}

TEST_CASE("a pool that is about to end counts, but gives nothing") {
  shared_growable memory(4 * test_growable::chunk);
  allocator of;
  detail::pool_tenant<allocator, shared_growable> t(of, memory, pool{});
  t.join();
  t.stop_giving();
  CHECK(t.get()->give_idle(10) == 0);
  CHECK(memory.tenancy().joint(0, 0).held == 2);
  t.leave(3);
  CHECK(memory.tenancy().joint(0, 0).held == 0);
}

TEST_CASE("a minimum whose whole chunks max_bytes has no room for is refused, with the numbers") {
  shared_growable memory(8 * test_growable::chunk);
  allocator of;
  using shared = detail::pool_tenant<allocator, shared_growable>;
  auto const join = [&](pool const& options) {
    shared t(of, memory, options);
    t.join();
    t.leave();
  };
  CHECK_THROWS_WITH_AS(join({.max_bytes = 3_MiB, .min_bytes = 3_MiB}),
                       doctest::Contains("min_bytes is 3.00 MiB, which is 4.00 MiB in whole chunks; max_bytes (3.00 "
                                         "MiB) has room for 2.00 MiB of them"),
                       std::invalid_argument);
  CHECK_NOTHROW(join({.max_bytes = 5_MiB, .min_bytes = 3_MiB}));
  CHECK_NOTHROW(join({.max_bytes = 3_MiB, .min_bytes = 2_MiB}));
  CHECK_NOTHROW(join({.max_bytes = 3_MiB}));
  CHECK_NOTHROW(join({.min_bytes = 3_MiB}));
}

TEST_CASE("on an upstream that has no tenants nothing can be promised") {
  test_growable memory;
  allocator of;
  using alone = detail::pool_tenant<allocator, test_growable>;
  alone nothing(of, memory, pool{});
  nothing.join();
  CHECK(nothing.get() == nullptr);
  CHECK_THROWS_WITH_AS(alone(of, memory, pool{.min_bytes = 1}).join(), doctest::Contains("share a growable upstream"),
                       std::invalid_argument);
}
