#include <weir/sources/async.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

using namespace weir;
using weir::test::destroyable_stream;
using weir::test::fresh_world;

namespace {
static_assert(recipe<async> && resource<async_resource>);
static_assert(device_accessible<async_resource> && !host_accessible<async_resource> && host_ordered<async_resource>);

template <class T>
T attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  T value{};
  REQUIRE(cudaMemPoolGetAttribute(pool, which, &value) == cudaSuccess);
  return value;
}

std::string last_misuse;
}  // namespace

TEST_CASE("the pool of its own has the settings that were asked for") {
  fresh_world const world;
  auto memory = make(async{.release_threshold = 4_MiB,
                           .reuse_follow_event_dependencies = false,
                           .reuse_allow_opportunistic = true,
                           .reuse_allow_internal_dependencies = false});
  CHECK(attribute<std::uint64_t>(memory.pool(), cudaMemPoolAttrReleaseThreshold) == 4_MiB);
  CHECK(attribute<int>(memory.pool(), cudaMemPoolReuseFollowEventDependencies) == 0);
  CHECK(attribute<int>(memory.pool(), cudaMemPoolReuseAllowOpportunistic) == 1);
  CHECK(attribute<int>(memory.pool(), cudaMemPoolReuseAllowInternalDependencies) == 0);
}

TEST_CASE("by default the pool keeps all it ever took") {
  fresh_world const world;
  auto memory = make(async{});
  CHECK(attribute<std::uint64_t>(memory.pool(), cudaMemPoolAttrReleaseThreshold) == ~std::uint64_t{0});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(attribute<std::uint64_t>(memory.pool(), cudaMemPoolAttrReservedMemCurrent) >= 1_MiB);
  memory.trim();
  CHECK(attribute<std::uint64_t>(memory.pool(), cudaMemPoolAttrReservedMemCurrent) == 0);
}

TEST_CASE("a pool for other processes keeps its memory until its end, and is one of the source's own") {
  fresh_world const world;
  auto memory = make(async{.handle_type = memory_handle::posix_fd});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  CHECK(memory.trim() == 0);
  CHECK(memory.numbers().reserved.current == 1_MiB);
  CHECK(async{.handle_type = memory_handle::posix_fd, .use_default_pool = true}.problem().find(
            "so is an option for a pool of its own") != std::string::npos);
  CHECK(async{.handle_type = memory_handle{7}}.problem() == "async: handle_type is 7; it must be none or posix_fd");
}

TEST_CASE("peers use what it gives only if they are asked in, whatever else they may use") {
  fresh_world const world;
  sim::check_access(true);
  auto alone = make(async{}), shared = make(async{.peers = true}), far_shared = make(async{.device = 1, .peers = true});
  auto const touch_on = [](int device, auto& memory) {
    device_guard const there(device);
    weir::stream const stream;
    void* const p = memory.allocate(host_order, 1000);
    sim::touch(stream.get(), p, 1000, sim::access::write);
    stream.synchronize();
    memory.deallocate(host_order, p, 1000);
  };
  CHECK_NOTHROW(touch_on(1, shared));
  CHECK_NOTHROW(touch_on(0, far_shared));
  CHECK_THROWS_AS(touch_on(1, alone), std::invalid_argument);
  CHECK(sim::calls("cudaDeviceEnablePeerAccess") == 0);
}

TEST_CASE("devices that cannot reach it are not let in, and that is no error") {
  fresh_world const world;
  sim::set_peers(false);
  auto memory = make(async{.peers = true});
  CHECK(sim::calls("cudaMemPoolSetAccess") == 0);
}

TEST_CASE("each CUDA call on the way to a source with peers may fail, and nothing stays") {
  fresh_world const world;
  std::size_t const handles = sim::live_handles();
  for (std::uint64_t k = 1;; ++k) {
    sim::fail_call(k, cudaErrorUnknown);
    try {
      auto const memory = make(async{.peers = true});
      CHECK(k > 8);
      break;
    } catch (cuda_error const&) {
      CHECK(sim::live_handles() == handles);
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      CHECK(current_device() == 0);
    }
  }
  sim::clear_failure();
}

TEST_CASE("initial bytes are in the pool from the start, and used by nobody") {
  fresh_world const world;
  auto memory = make(async{.initial_bytes = 8_MiB});
  CHECK(attribute<std::uint64_t>(memory.pool(), cudaMemPoolAttrReservedMemCurrent) >= 8_MiB);
  CHECK(attribute<std::uint64_t>(memory.pool(), cudaMemPoolAttrUsedMemCurrent) == 0);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("initial bytes that are not to be had are out of memory, and nothing is left behind") {
  fresh_world const world;
  sim::set_capacity(0, 4_MiB);
  CHECK_THROWS_AS(static_cast<void>(make(async{.initial_bytes = 8_MiB})), out_of_memory);
  CHECK(sim::calls("cudaMemPoolDestroy") == sim::calls("cudaMemPoolCreate"));
  CHECK(sim::calls("cudaStreamDestroy") == sim::calls("cudaStreamCreateWithFlags"));
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("max_bytes bounds the pool, and the refusal says so") {
  fresh_world const world;
  auto memory = make(async{.max_bytes = 4_MiB});
  void* const p = memory.allocate(host_order, 3_MiB);
  try {
    memory.allocate(host_order, 2_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    std::string const text = error.what();
    CHECK(error.refused_by() == std::string("async"));
    CHECK(text.find("chain: async(0)") != std::string::npos);
    CHECK(text.find("at most 4.00 MiB") != std::string::npos);
    CHECK(text.find("free of 16.00 GiB") != std::string::npos);
  }
  memory.deallocate(host_order, p, 3_MiB);
}

TEST_CASE("the default pool is used as it is and outlives the resource") {
  fresh_world const world;
  cudaMemPool_t expected = nullptr;
  REQUIRE(cudaDeviceGetDefaultMemPool(&expected, 1) == cudaSuccess);
  auto const threshold = attribute<std::uint64_t>(expected, cudaMemPoolAttrReleaseThreshold);
  {
    auto memory = make(async{.device = 1, .use_default_pool = true});
    CHECK(memory.pool() == expected);
    CHECK(memory.device() == 1);
  }
  CHECK(attribute<std::uint64_t>(expected, cudaMemPoolAttrReleaseThreshold) == threshold);
  CHECK(sim::calls("cudaMemPoolDestroy") == 0);
}

TEST_CASE("a pool that was made elsewhere is used as it is and outlives the resource") {
  fresh_world const world;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 1};
  properties.maxSize = 4_MiB;
  cudaMemPool_t theirs = nullptr;
  REQUIRE(cudaMemPoolCreate(&theirs, &properties) == cudaSuccess);
  std::size_t const handles = sim::live_handles();
  {
    auto memory = make(async{.device = 1, .pool = theirs});
    CHECK(memory.pool() == theirs);
    CHECK(memory.device() == 1);
    CHECK(memory.max_bytes() == 0);
    void* const p = memory.allocate(host_order, 1_MiB);
    CHECK(sim::live_bytes(1) == 1_MiB);
    CHECK(memory.numbers().allocated.current == 1_MiB);
    CHECK_THROWS_AS(memory.allocate(host_order, 4_MiB), out_of_memory);
    memory.deallocate(host_order, p, 1_MiB);
  }
  CHECK(sim::live_handles() == handles);
  std::uint64_t threshold = 77;
  REQUIRE(cudaMemPoolGetAttribute(theirs, cudaMemPoolAttrReleaseThreshold, &threshold) == cudaSuccess);
  CHECK(threshold == 0);
  CHECK(cudaMemPoolDestroy(theirs) == cudaSuccess);
}

TEST_CASE("a pool from elsewhere takes no option for one of its own") {
  auto* const pool = reinterpret_cast<cudaMemPool_t>(0x100);
  std::string const said =
      "async: pool is set, and so is an option for a pool of its own; the pool is whose it was, "
      "change it by cudaMemPoolSetAttribute";
  CHECK(async{.max_bytes = 1, .pool = pool}.problem() == said);
  CHECK(async{.reuse_allow_opportunistic = false, .pool = pool}.problem() == said);
  CHECK(async{.use_default_pool = true, .pool = pool}.problem() ==
        "async: use_default_pool is set, and so is pool; it has one of them");
  CHECK(async{.device = 1, .pool = pool}.valid());
}

TEST_CASE("on a stream nothing waits") {
  fresh_world const world;
  auto memory = make(async{});
  destroyable_stream const s;
  sim::reset_counters();
  void* const p = memory.allocate(s.get(), 1000);
  memory.deallocate(s.get(), p, 1000);
  CHECK(sim::calls() == 2);
  CHECK(sim::calls("cudaMallocFromPoolAsync") == 1);
  CHECK(sim::calls("cudaFreeAsync") == 1);
}

TEST_CASE("in host order memory is ready on return, whatever the default stream is doing") {
  fresh_world const world;
  sim::set_mode(sim::mode::lazy);
  auto memory = make(async{});
  bool done = false;
  REQUIRE(cudaLaunchHostFunc(
              cudaStreamLegacy, [](void* f) { *static_cast<bool*>(f) = true; }, &done) == cudaSuccess);
  sim::reset_counters();
  void* const p = memory.allocate(host_order, 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 1);
  CHECK(!done);  // the wait was for the resource's own stream alone
  memory.deallocate(host_order, p, 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 1);
}

TEST_CASE("if the wait in host order fails the memory goes back") {
  fresh_world const world;
  auto memory = make(async{});
  sim::fail_call(3, cudaErrorUnknown);  // after the allocation, and a call that keeps the wait from breaking captures
  CHECK_THROWS_AS(memory.allocate(host_order, 1000), cuda_error);
  CHECK(sim::live_allocations() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("memory whose stream was destroyed is freed all the same") {
  fresh_world const world;
  sim::set_mode(sim::mode::lazy);
  auto memory = make(async{.device = 1});
  device_guard const on_device(1);
  cudaStream_t dead = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&dead, cudaStreamNonBlocking) == cudaSuccess);
  void* const p = memory.allocate(dead, 1000, 4096);
  REQUIRE(cudaStreamDestroy(dead) == cudaSuccess);
  device_guard const elsewhere(0);
  sim::reset_counters();
  memory.deallocate(dead, p, 1000, 4096);
  CHECK(sim::live_allocations() == 0);
  CHECK(sim::calls("cudaDeviceSynchronize") == 1);
  CHECK(current_device() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a free that CUDA refuses on another device's stream comes after that stream's work") {
  fresh_world const world;
  sim::set_mode(sim::mode::lazy);
  auto memory = make(async{});
  device_guard const elsewhere(1);
  weir::stream const far;
  void* const p = memory.allocate(far, 1000);
  sim::touch(far.get(), p, 1000, sim::access::write);
  sim::fail_call(1, cudaErrorUnknown);
  memory.deallocate(far, p, 1000);
  CHECK(cudaStreamQuery(far.get()) == cudaSuccess);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("a pointer that is not from here is misuse, and the message says which") {
  fresh_world const world;
  auto memory = make(async{});
  last_misuse.clear();
  auto const before = set_misuse_handler(+[](char const* what) noexcept { last_misuse = what; });
  alignas(256) static char foreign[256];
  memory.deallocate(host_order, foreign, 256);
  CHECK(last_misuse.find("async: deallocate of 0x") != std::string::npos);
  CHECK(last_misuse.find("256 B") != std::string::npos);
  void* const p = memory.allocate(host_order, 64);
  memory.deallocate(host_order, p, 64);
  last_misuse.clear();
  memory.deallocate(host_order, p, 64);
  CHECK(!last_misuse.empty());
  set_misuse_handler(before);
}

TEST_CASE("at exit, when CUDA is unloading, a free is quiet") {
  fresh_world const world;
  auto memory = make(async{});
  void* const p = memory.allocate(host_order, 64);
  sim::fail_call(1, cudaErrorCudartUnloading);
  memory.deallocate(host_order, p, 64);
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
  memory.deallocate(host_order, p, 64);
}

TEST_CASE("a device without memory pools, and a number that is none, are refused with words") {
  fresh_world const world;
  auto const text_of = [](async const& options) -> std::string {
    try {
      static_cast<void>(make(options));
    } catch (std::invalid_argument const& error) {
      return error.what();
    }
    return {};
  };
  CHECK(text_of(async{.device = -2}).find("device is -2") != std::string::npos);
  CHECK_THROWS_WITH_AS(detail::require_ability("async", 0, cudaDevAttrIntegrated, "cannot"),
                       "weir: async: device 0 cannot", std::invalid_argument);
}

TEST_CASE("options that contradict each other are refused") {
  CHECK(async{}.valid());
  CHECK(async{.max_bytes = 2_MiB, .initial_bytes = 2_MiB}.valid());
  CHECK(async{.max_bytes = 1_MiB, .initial_bytes = 2_MiB}.problem().find("must not exceed max_bytes") !=
        std::string::npos);
  CHECK(async{.release_threshold = 1_MiB, .initial_bytes = 2_MiB}.problem().find("release_threshold") !=
        std::string::npos);
  CHECK(async{.device = 1, .use_default_pool = true}.valid());
  CHECK(!async{.max_bytes = 1_MiB, .use_default_pool = true}.valid());
  CHECK(!async{.initial_bytes = 1_MiB, .use_default_pool = true}.valid());
  CHECK(!async{.release_threshold = 0, .use_default_pool = true}.valid());
  CHECK(!async{.reuse_follow_event_dependencies = false, .use_default_pool = true}.valid());
  CHECK(!async{.reuse_allow_opportunistic = false, .use_default_pool = true}.valid());
  CHECK(!async{.reuse_allow_internal_dependencies = false, .use_default_pool = true}.valid());
  CHECK_THROWS_AS(static_cast<void>(make(async{.max_bytes = 1, .initial_bytes = 2})), std::invalid_argument);
}

TEST_CASE("what was freed in host order serves any request, also where CUDA may not wait for the free") {
  fresh_world const world;
  sim::set_mode(sim::mode::lazy);
  auto memory = make(async{.max_bytes = 32_MiB, .reuse_allow_internal_dependencies = false});
  weir::stream const stream;
  for (stream_ref const s : {stream_ref(host_order), stream_ref(stream)}) {
    for (std::size_t const bytes : {16_MiB, 8_MiB})
      memory.deallocate(host_order, memory.allocate(host_order, bytes), bytes);
    void* const p = memory.allocate(s, 30_MiB);
    stream.synchronize();
    memory.deallocate(host_order, p, 30_MiB);
  }
}

TEST_CASE("a request that only fits without the room to align it is told to ask for less") {
  fresh_world const world;
  auto memory = make(async{.max_bytes = 4_MiB});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  try {
    memory.allocate(host_order, 4_MiB, 2_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.hint()).starts_with("the request is larger than max_bytes of the source"));
  }
}
