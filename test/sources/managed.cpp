#include <weir/sources/managed.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>

using namespace weir;

static_assert(recipe<managed> && resource<managed_resource>);
static_assert(device_accessible<managed_resource> && host_accessible<managed_resource> &&
              host_ordered<managed_resource>);

TEST_CASE("the host and a kernel reach the same memory") {
  sim::reset();
  auto memory = make(managed{});
  void* const p = memory.allocate(host_order, 1000);
  std::memset(p, 1, 1000);
  REQUIRE(cudaMemsetAsync(p, 2, 500, cudaStreamPerThread) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  CHECK(static_cast<unsigned char*>(p)[499] == 2);
  CHECK(static_cast<unsigned char*>(p)[500] == 1);
  memory.deallocate(host_order, p, 1000);
  CHECK(sim::calls("cudaMallocManaged") == 1);
  CHECK(sim::calls("cudaFree") == 1);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("memory freed on a stream is not given back before the stream's work is done") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  auto memory = make(managed{});
  bool done = false;
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  REQUIRE(cudaLaunchHostFunc(
              cudaStreamPerThread, [](void* f) { *static_cast<bool*>(f) = true; }, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
  sim::reset();
}

TEST_CASE("in host order nothing waits") {
  sim::reset();
  auto memory = make(managed{});
  sim::reset_counters();
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
}

TEST_CASE("large alignments are honoured, and the memory goes back to where it was from") {
  sim::reset();
  auto memory = make(managed{});
  for (std::size_t alignment = 512; alignment <= max_alignment; alignment *= 2) {
    void* const p = memory.allocate(host_order, 100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    memory.deallocate(host_order, p, 100, alignment);
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("out of memory names the layer and leaves no last error") {
  sim::reset();
  sim::set_host_capacity(1_MiB);
  auto memory = make(managed{});
  try {
    memory.allocate(host_order, 2_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.what()).find("refused by managed; chain: managed(0)\n  managed") != std::string::npos);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  sim::reset();
}

TEST_CASE("a device that is not there is refused with words") {
  sim::reset();
  CHECK_THROWS_AS(static_cast<void>(make(managed{.device = 2})), std::invalid_argument);
  CHECK(!managed{.device = -2}.valid());
  CHECK(make(managed{.device = 1}).device() == 1);
}
