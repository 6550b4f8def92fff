#include <weir/sources/managed.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

using namespace weir;

static_assert(recipe<managed> && resource<managed_resource>);
static_assert(device_accessible<managed_resource> && host_accessible<managed_resource> &&
              host_ordered<managed_resource>);

TEST_CASE("a block costs one call, and its end another") {
  weir::test::fresh_world const world;
  auto memory = make(managed{});
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls("cudaMallocManaged") == 1);
  CHECK(sim::calls("cudaFree") == 1);
}
