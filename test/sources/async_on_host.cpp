#include <weir/sources/async_on_host.hpp>

#include <weir/core/error.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#if CUDART_VERSION >= 13000

using namespace weir;
using weir::test::destroyable_stream;
using weir::test::fresh_world;
using weir::test::lazy_world;

namespace {

template <class R>
constexpr bool is_everyones = resource<R>&& device_accessible<R>&& host_accessible<R>&& host_ordered<R>;
static_assert(is_everyones<async_managed_resource> && is_everyones<async_pinned_resource>);
static_assert(recipe<async_managed> && recipe<async_pinned>);

cudaMemoryType type_of(void* p) {
  cudaPointerAttributes found{};
  REQUIRE(cudaPointerGetAttributes(&found, p) == cudaSuccess);
  return found.type;
}

}  // namespace

TEST_CASE_TEMPLATE("the host and a kernel of any device reach the same memory", Source, async_managed, async_pinned) {
  fresh_world const world;
  sim::check_access(true);
  auto memory = make(Source{.device = 1});
  CHECK(memory.device() == 1);
  void* const p = memory.allocate(host_order, 1000);
  std::memset(p, 1, 1000);
  destroyable_stream const s;
  sim::touch(s.get(), p, 1000, sim::access::read);
  REQUIRE(cudaMemsetAsync(p, 2, 500, s.get()) == cudaSuccess);
  s.finish();
  CHECK(static_cast<unsigned char*>(p)[499] == 2);
  CHECK(static_cast<unsigned char*>(p)[500] == 1);
  memory.deallocate(host_order, p, 1000);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("the memory is of the kind that its name says") {
  fresh_world const world;
  auto managed = make(async_managed{});
  auto pinned = make(async_pinned{});
  void* const p = managed.allocate(host_order, 1000);
  void* const q = pinned.allocate(host_order, 1000);
  CHECK(type_of(p) == cudaMemoryTypeManaged);
  CHECK(type_of(q) == cudaMemoryTypeHost);
  managed.deallocate(host_order, p, 1000);
  pinned.deallocate(host_order, q, 1000);
}

TEST_CASE_TEMPLATE("on a stream nothing waits, and freed memory stays in the pool", Source, async_managed,
                   async_pinned) {
  lazy_world const world;
  std::size_t const handles = sim::live_handles();
  {
    auto memory = make(Source{});
    destroyable_stream const s;
    sim::reset_counters();
    memory.deallocate(s, memory.allocate(s, 1000), 1000);
    CHECK(sim::calls("cudaStreamSynchronize") == 0);
    s.finish();
    CHECK(memory.numbers().reserved.current >= 1000);
  }
  CHECK(sim::live_handles() == handles);
}

TEST_CASE_TEMPLATE("errors name the source", Source, async_managed, async_pinned) {
  fresh_world const world;
  std::string const name = Source::layer_name;
  auto memory = make(Source{.max_bytes = 1_MiB});
  try {
    memory.allocate(host_order, 8_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.what()).find("refused by " + name + "; chain: " + name + "(0)") != std::string::npos);
    CHECK(std::string(error.hint()).starts_with("the request is larger than max_bytes of the source: "));
  }
  auto full = make(Source{});
  sim::fail_call("cudaMallocFromPoolAsync", 1, cudaErrorMemoryAllocation);
  try {
    full.allocate(host_order, 20_GiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.hint()).find("the host") != std::string::npos);  // more than the device has is no matter
  }
  CHECK_THROWS_WITH_AS(static_cast<void>(make(Source{.device = 2})),
                       ("weir: " + name + ": there is no device 2; this process sees 2, numbered from 0").c_str(),
                       std::invalid_argument);
  CHECK(Source{.device = -2}.problem() == name + ": device is -2; it must be at least -1, which is the current device");
  sim::fail_call("cudaMemPoolCreate", 1, cudaErrorNotSupported);
  std::string const kind = name == "async_managed" ? "managed" : "pinned";
  CHECK_THROWS_WITH_AS(
      static_cast<void>(make(Source{})),
      ("weir: " + name + ": device 0 has no pools of " + kind + " memory; use " + kind + " with a pool on it").c_str(),
      std::invalid_argument);
}

TEST_CASE_TEMPLATE("what a pool of the host's holds is not told as the device's", Source, async_managed, async_pinned) {
  fresh_world const world;
  auto memory = make(Source{});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  std::string const lines = report_of(memory).lines();
  CHECK(lines.find("CUDA's pool holds 1.00 MiB") != std::string::npos);
  CHECK(lines.find("held here") == std::string::npos);
}

TEST_CASE("pinned memory is every device's, whether devices reach each other or not") {
  fresh_world const world;
  sim::set_peers(false);
  auto memory = make(async_pinned{});
  void* const p = memory.allocate(host_order, 1000);
  CHECK(p != nullptr);
  memory.deallocate(host_order, p, 1000);
}

#endif
