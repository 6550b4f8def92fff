// Every source keeps the laws, and what else is the same for all that have it: each in one place, for all of them.
#include <conformance/resource_laws.hpp>
#include <support/sim_fixture.hpp>

#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/sources.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

using namespace weir;
using laws::check_resource;
using weir::test::fresh_world;
using weir::test::lazy_world;

namespace {

/// What a source calls itself in reports: `device` of `device(0)`.
template <class Source>
std::string name_of(Source const& source) {
  auto const memory = make(source);
  std::string const chain = report_of(memory).chain();
  return chain.substr(0, chain.find('('));
}

/// Functions that take the memory of another source, made anew for each resource.
template <class Callback, class Below>
auto calling(Below const& source, callback_order order) {
  return [=] {
    using owner = basic_any_resource<device_accessible<made_by<Callback>>, host_accessible<made_by<Callback>>>;
    owner const below{source};
    return Callback{
        .allocate = [below](stream_ref s, std::size_t n, std::size_t a) { return below.allocate(s, n, a); },
        .deallocate = [below](stream_ref s, void* p, std::size_t n, std::size_t a) { below.deallocate(s, p, n, a); },
        .order = order}();
  };
}

}  // namespace

TEST_CASE("async on a pool of its own keeps the laws") { check_resource(async{}); }
TEST_CASE("async on the default pool keeps the laws") { check_resource(async{.use_default_pool = true}); }
TEST_CASE("async on the device's current pool keeps the laws") {
  check_resource([] {
    cudaMemPool_t current = nullptr;
    detail::check(cudaDeviceGetMemPool(&current, 0), "cudaDeviceGetMemPool");
    return make(async{.pool = current});
  });
}
// One policy stays on: without it, memory whose free is still queued on one stream is out of every other's reach.
TEST_CASE("async with nearly every option set keeps the laws") {
  check_resource(async{.device = 1,
                       .release_threshold = 8 * laws::mib,
                       .max_bytes = 48 * laws::mib,
                       .initial_bytes = laws::mib,
                       .reuse_follow_event_dependencies = false,
                       .reuse_allow_opportunistic = false});
}
TEST_CASE("device keeps the laws") { check_resource(device{}); }
TEST_CASE("device on another device than the current one keeps the laws") { check_resource(device{.device = 1}); }
TEST_CASE("managed keeps the laws") { check_resource(managed{}); }
TEST_CASE("pinned keeps the laws") { check_resource(pinned{}); }
#if CUDART_VERSION >= 13000
TEST_CASE("async_managed keeps the laws") { check_resource(async_managed{}); }
TEST_CASE("async_managed with every option set keeps the laws") {
  check_resource(async_managed{.device = 1, .release_threshold = laws::mib, .max_bytes = 48 * laws::mib});
}
TEST_CASE("async_pinned keeps the laws") { check_resource(async_pinned{}); }
#endif
TEST_CASE("system keeps the laws") {
  for (std::size_t const headroom : {std::size_t{0}, 4 * laws::mib})
    check_resource([=] {
      sim::set_pageable_access(true);
      return make(weir::system{.headroom_bytes = headroom});
    });
}
TEST_CASE("host keeps the laws") { check_resource(host{}); }
TEST_CASE("virtual_memory keeps the laws") { check_resource(virtual_memory{}, 512 * laws::mib); }
TEST_CASE("virtual_memory with every option set keeps the laws") {
  check_resource(virtual_memory{.device = 1,
                                .chunk_bytes = 4 * laws::mib,
                                .range_bytes = 1024 * laws::mib,
                                .max_bytes = 1000 * laws::mib,
                                .peers = true,
                                .movable = false,
                                .scrub = true},
                 1024 * laws::mib);
}
TEST_CASE("functions in stream order keep the laws") {
  check_resource(calling<callback>(async{}, callback_order::stream));
}
TEST_CASE("functions that know no streams keep the laws") {
  check_resource(calling<callback>(device{}, callback_order::host));
  check_resource(calling<host_device_callback>(pinned{}, callback_order::host));
}
TEST_CASE("functions for memory of the host keep the laws") {
  check_resource(calling<host_callback>(host{}, callback_order::host));
}

TEST_CASE_TEMPLATE("memory is of the device named, or of the one current at make, and the current one stays", Source,
                   async, device, virtual_memory) {
  fresh_world const world;
  auto named = make(Source{.device = 1});
  auto current = make(Source{});
  device_guard const on_other(1);
  void* const p = named.allocate(host_order, 2_MiB);
  void* const q = current.allocate(host_order, 4_MiB);
  CHECK(sim::live_bytes(0) == 4_MiB);
  CHECK(sim::live_bytes(1) == 2_MiB);
  CHECK(current_device() == 1);
  named.deallocate(host_order, p, 2_MiB);
  current.deallocate(host_order, q, 4_MiB);
  trim(named);
  trim(current);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_TEMPLATE("a device that is not there is refused with words", Source, async, device, managed, pinned,
                   virtual_memory) {
  fresh_world const world;
  std::string const name = name_of(Source{});
  CHECK_THROWS_WITH_AS(static_cast<void>(make(Source{.device = 2})),
                       ("weir: " + name + ": there is no device 2; this process sees 2, numbered from 0").c_str(),
                       std::invalid_argument);
  CHECK(Source{.device = -2}.problem() == name + ": device is -2; it must be at least -1, which is the current device");
  CHECK(make(Source{.device = 1}).device() == 1);
  device_guard const on_other(1);
  CHECK(make(Source{}).device() == 1);
}

TEST_CASE_TEMPLATE("the host and a kernel reach the same memory", Source, managed, pinned) {
  fresh_world const world;
  auto memory = make(Source{});
  void* const p = memory.allocate(host_order, 1000);
  std::memset(p, 1, 1000);
  REQUIRE(cudaMemsetAsync(p, 2, 500, cudaStreamPerThread) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  CHECK(static_cast<unsigned char*>(p)[499] == 2);
  CHECK(static_cast<unsigned char*>(p)[500] == 1);
  memory.deallocate(host_order, p, 1000);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_TEMPLATE("memory freed on a stream is not given back before the stream's work is done", Source, device,
                   managed, pinned, host, virtual_memory) {
  lazy_world const world;
  auto memory = make(Source{});
  bool done = false;
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  auto const finish = [](void* flag) { *static_cast<bool*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(cudaStreamPerThread, finish, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
  trim(memory);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_TEMPLATE("in host order nothing waits", Source, device, managed, pinned, host, virtual_memory) {
  fresh_world const world;
  auto memory = make(Source{});
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
}

TEST_CASE_TEMPLATE("every alignment up to 2 MiB is honoured, small ones as 256 B", Source, async, device, managed,
                   pinned, host, virtual_memory) {
  fresh_world const world;
  auto memory = make(Source{});
  for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2) {
    void* const p = memory.allocate(host_order, 100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % (alignment < 256 ? 256 : alignment) == 0);
    memory.deallocate(host_order, p, 100, alignment);
  }
  trim(memory);
  CHECK(sim::live_allocations() == 0);
  CHECK_THROWS_AS(memory.allocate(host_order, 10, 48), std::invalid_argument);
}

TEST_CASE_TEMPLATE("out of memory names the source and leaves no last error", Source, async, device, managed, pinned,
                   virtual_memory) {
  fresh_world const world;
  sim::set_capacity(0, 4_MiB);
  sim::set_host_capacity(4_MiB);
  std::string const name = name_of(Source{});
  auto memory = make(Source{});
  void* const held = memory.allocate(host_order, 3_MiB);
  try {
    memory.allocate(host_order, 3_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    std::string const words = "refused by " + name + "; chain: " + name + "(0)\n  " + name;
    CHECK(std::string(error.what()).find(words) != std::string::npos);
    CHECK(std::string(error.hint()).find("free something") != std::string::npos);
  }
  memory.deallocate(host_order, held, 3_MiB);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE_TEMPLATE("nothing is nullptr", Source, async, device, managed, pinned, host, virtual_memory) {
  fresh_world const world;
  auto memory = make(Source{});
  sim::reset_counters();
  CHECK(memory.allocate(host_order, 0) == nullptr);
  memory.deallocate(host_order, nullptr, 0);
  CHECK(sim::calls() == 0);
}
