#include <weir/sources/host.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <cstring>
#include <limits>
#include <string>

using namespace weir;

static_assert(recipe<host> && resource<host_resource>);
static_assert(!device_accessible<host_resource> && host_accessible<host_resource> && host_ordered<host_resource>);

TEST_CASE("in host order no CUDA call is made") {
  weir::test::fresh_world const world;
  auto memory = make(host{});
  void* const p = memory.allocate(host_order, 1000);
  std::memset(p, 1, 1000);
  memory.deallocate(host_order, p, 1000);
  CHECK_THROWS_AS(memory.allocate(host_order, std::numeric_limits<std::size_t>::max()), out_of_memory);
  CHECK(sim::calls() == 0);
}

TEST_CASE("on a machine without a GPU a stream has no work to wait for") {
  weir::test::fresh_world const world;
  auto memory = make(host{});
  for (cudaError_t const code : {cudaErrorInsufficientDriver, cudaErrorNoDevice, cudaErrorCudartUnloading}) {
    void* const p = memory.allocate(cudaStreamPerThread, 1000);
    sim::fail_call(1, code);
    memory.deallocate(cudaStreamPerThread, p, 1000);  // the leak checker would see it if it were kept
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("sizes beyond what an object can have are out of memory") {
  auto memory = make(host{});
  for (std::size_t const below : {std::size_t{0}, std::size_t{255}, std::size_t{4096}, 2_MiB}) {
    try {
      memory.allocate(host_order, std::numeric_limits<std::size_t>::max() - below);
      FAIL("nothing was thrown");
    } catch (out_of_memory const& error) {
      CHECK(error.refused_by() == std::string("host"));
      CHECK(std::string(error.hint()).starts_with("no machine has as much"));
    }
  }
}

TEST_CASE("what a budget above refuses is not laid on the host") {
  auto memory = make(host{} | limit{1000});
  try {
    memory.allocate(host_order, 2000);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(error.refused_by() == std::string("limit"));
    CHECK(std::string(error.what()).find("has no more") == std::string::npos);
  }
}
