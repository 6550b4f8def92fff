#include <weir/sources/system.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

using namespace weir;
using namespace weir::test;

namespace {

static_assert(resource<system_resource> && recipe<weir::system>);
static_assert(device_accessible<system_resource> && host_accessible<system_resource> && host_ordered<system_resource>);

/// A fresh simulated runtime whose devices reach the memory of malloc.
struct shared_world {
  explicit shared_world(sim::mode how = sim::mode::immediate) {
    sim::reset();
    sim::set_mode(how);
    sim::set_pageable_access(true);
  }
  ~shared_world() { sim::reset(); }
  shared_world(shared_world const&) = delete;
  shared_world& operator=(shared_world const&) = delete;
};

/// The device that all of [first, last) prefers, as pages.
int preferred(std::uintptr_t first, std::uintptr_t last) {
  int answer = 77;
  REQUIRE(cudaMemRangeGetAttribute(&answer, sizeof answer, cudaMemRangeAttributePreferredLocation,
                                   reinterpret_cast<void*>(first), last - first) == cudaSuccess);
  return answer;
}

constexpr std::size_t page = 4096;

}  // namespace

TEST_CASE("a device that does not reach memory of malloc is refused with words") {
  sim::reset();
  CHECK_THROWS_WITH_AS(static_cast<void>(make(weir::system{})),
                       "weir: system: device 0 does not reach memory of malloc (cudaDevAttrPageableMemoryAccess is 0); "
                       "use managed",
                       std::invalid_argument);
}

TEST_CASE("the host and a kernel reach the same memory") {
  shared_world const world;
  auto memory = make(weir::system{.device = 1});
  CHECK(memory.device() == 1);
  auto* const p = static_cast<unsigned char*>(memory.allocate(host_order, 1000));
  std::memset(p, 1, 1000);
  REQUIRE(cudaMemsetAsync(p, 2, 500, cudaStreamPerThread) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  CHECK(p[499] == 2);
  CHECK(p[500] == 1);
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("a free on a stream does not wait, and comes behind the stream's work") {
  shared_world const world(sim::mode::lazy);
  auto memory = make(weir::system{});
  destroyable_stream const s;
  void* const p = memory.allocate(s, 1000);
  REQUIRE(cudaMemsetAsync(p, 2, 1000, s.get()) == cudaSuccess);
  sim::reset_counters();
  memory.deallocate(s, p, 1000);
  CHECK(sim::calls("cudaLaunchHostFunc") == 1);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  CHECK(cudaStreamQuery(s.get()) == cudaErrorNotReady);
  s.finish();  // the memset, then the free
}

TEST_CASE("in host order a free calls no CUDA") {
  shared_world const world;
  auto memory = make(weir::system{});
  sim::reset_counters();
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls() == 0);
}

TEST_CASE("a free that CUDA does not queue waits for the stream") {
  shared_world const world(sim::mode::lazy);
  auto memory = make(weir::system{});
  destroyable_stream const s;
  void* const p = memory.allocate(s, 1000);
  REQUIRE(cudaMemsetAsync(p, 2, 1000, s.get()) == cudaSuccess);
  sim::fail_call("cudaLaunchHostFunc", 1, cudaErrorUnknown);
  memory.deallocate(s, p, 1000);
  CHECK(cudaStreamQuery(s.get()) == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("no capture is broken, and its graph frees nothing") {
  for (auto const mode : all_capture_modes) {
    shared_world const world;
    auto memory = make(weir::system{.headroom_bytes = 1_MiB});
    destroyable_stream const s;
    begin_capture(s, mode);
    auto* const p = static_cast<char*>(memory.allocate(s, 10 * page));
    write(s, p, 10 * page);
    memory.deallocate(s, p, 10 * page);
    {
      captured_graph const graph(s);
      graph.launch(s);
      graph.launch(s);
      s.finish();
    }
    CHECK(sim::captures_invalidated() == 0);
    memory.deallocate(host_order, p, 10 * page);  // what was kept for the graph
  }
}

TEST_CASE("headroom: what would leave the device less is advised to stay on the host") {
  shared_world const world;
  sim::set_capacity(0, 64 * page);
  auto memory = make(weir::system{.headroom_bytes = 60 * page});
  void* const p = memory.allocate(host_order, 10 * page, page);
  auto const first = reinterpret_cast<std::uintptr_t>(p);
  CHECK(preferred(first, first + 4 * page) == 0);
  CHECK(preferred(first + 4 * page, first + 10 * page) == cudaCpuDeviceId);
  memory.deallocate(host_order, p, 10 * page, page);

  void* in_use = nullptr;
  REQUIRE(cudaMalloc(&in_use, 10 * page) == cudaSuccess);
  void* const q = memory.allocate(host_order, 10 * page, page);
  auto const all = reinterpret_cast<std::uintptr_t>(q);
  CHECK(preferred(all, all + 10 * page) == cudaCpuDeviceId);
  memory.deallocate(host_order, q, 10 * page, page);
  CHECK(cudaFree(in_use) == cudaSuccess);
}

TEST_CASE("headroom is of the device named, and only whole pages are advised") {
  shared_world const world;
  sim::set_capacity(0, page);
  auto memory = make(weir::system{.device = 1, .headroom_bytes = 1});
  void* const p = memory.allocate(host_order, 3 * page + 100, page);
  auto const first = reinterpret_cast<std::uintptr_t>(p);
  CHECK(preferred(first, first + 3 * page) == 1);
  CHECK(preferred(first + 3 * page, first + 3 * page + 100) == cudaInvalidDeviceId);
  CHECK(current_device() == 0);
  memory.deallocate(host_order, p, 3 * page + 100, page);
}

TEST_CASE("without headroom nothing is asked or advised, and hints that CUDA refuses are no errors") {
  shared_world const world;
  sim::reset_counters();
  auto plain = make(weir::system{});
  plain.deallocate(host_order, plain.allocate(host_order, 10 * page), 10 * page);
  CHECK(sim::calls("cudaMemAdvise") == 0);
  CHECK(sim::calls("cudaMemGetInfo") == 0);
  auto memory = make(weir::system{.headroom_bytes = 1});
  for (char const* const call : {"cudaMemGetInfo", "cudaMemAdvise", "cudaGetDevice"}) {
    sim::fail_call(call, 1, cudaErrorUnknown);
    memory.deallocate(host_order, memory.allocate(host_order, 10 * page), 10 * page);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("what a budget above refuses is not laid on the system") {
  shared_world const world;
  auto memory = make(weir::system{} | limit{1000});
  try {
    memory.allocate(host_order, 2000);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(error.refused_by() == std::string("limit"));
    CHECK(std::string(error.what()).find("has no more") == std::string::npos);
  }
}
