#include <weir/sources/pinned.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

using namespace weir;

static_assert(recipe<pinned> && resource<pinned_resource>);
static_assert(device_accessible<pinned_resource> && host_accessible<pinned_resource> && host_ordered<pinned_resource>);

TEST_CASE("a block costs one call, and its end another") {
  weir::test::fresh_world const world;
  auto memory = make(pinned{});
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls("cudaHostAlloc") == 1);
  CHECK(sim::calls("cudaFreeHost") == 1);
}
