#include <weir/sources/host.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>

using namespace weir;

static_assert(recipe<host> && resource<host_resource>);
static_assert(!device_accessible<host_resource> && host_accessible<host_resource> && host_ordered<host_resource>);

TEST_CASE("in host order no CUDA call is made") {
  sim::reset();
  auto memory = make(host{});
  void* const p = memory.allocate(host_order, 1000);
  std::memset(p, 1, 1000);
  memory.deallocate(host_order, p, 1000);
  CHECK_THROWS_AS(memory.allocate(host_order, std::numeric_limits<std::size_t>::max()), out_of_memory);
  CHECK(sim::calls() == 0);
}

TEST_CASE("memory freed on a stream is not given back before the stream's work is done") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  auto memory = make(host{});
  bool done = false;
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  REQUIRE(cudaLaunchHostFunc(
              cudaStreamPerThread, [](void* f) { *static_cast<bool*>(f) = true; }, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
  sim::reset();
}

TEST_CASE("on a machine without a GPU a stream has no work to wait for") {
  sim::reset();
  auto memory = make(host{});
  for (cudaError_t const code : {cudaErrorInsufficientDriver, cudaErrorNoDevice, cudaErrorCudartUnloading}) {
    void* const p = memory.allocate(cudaStreamPerThread, 1000);
    sim::fail_call(1, code);
    memory.deallocate(cudaStreamPerThread, p, 1000);  // the leak checker would see it if it were kept
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("every alignment up to 2 MiB is honoured, small ones as 256 B") {
  auto memory = make(host{});
  for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2) {
    void* const p = memory.allocate(host_order, 10, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % (alignment < 256 ? 256 : alignment) == 0);
    memory.deallocate(host_order, p, 10, alignment);
  }
  CHECK_THROWS_AS(memory.allocate(host_order, 10, 48), std::invalid_argument);
}

TEST_CASE("sizes beyond what an object can have are out of memory") {
  auto memory = make(host{});
  for (std::size_t const below : {std::size_t{0}, std::size_t{255}, std::size_t{4096}, 2_MiB}) {
    try {
      memory.allocate(host_order, std::numeric_limits<std::size_t>::max() - below);
      FAIL("nothing was thrown");
    } catch (out_of_memory const& error) {
      CHECK(error.refused_by() == std::string("host"));
    }
  }
}

TEST_CASE("nothing is nullptr") {
  auto memory = make(host{});
  CHECK(memory.allocate(host_order, 0) == nullptr);
  memory.deallocate(host_order, nullptr, 0);
}
