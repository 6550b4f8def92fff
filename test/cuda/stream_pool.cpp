// needs: tsan
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/stream_pool.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <map>
#include <set>
#include <stdexcept>
#include <support/sim_fixture.hpp>
#include <thread>
#include <type_traits>
#include <vector>

using namespace weir;

static_assert(!std::is_copy_constructible_v<stream_pool> && !std::is_move_constructible_v<stream_pool>);

TEST_CASE("it hands out each of its streams, one after the other") {
  test::fresh_world const world;
  stream_pool streams(3);
  CHECK(streams.size() == 3);
  CHECK(stream_pool().size() == 16);
  for (int turn = 0; turn < 3; ++turn)
    for (std::size_t i = 0; i < 3; ++i) CHECK(&streams.get() == &streams[i]);
  std::set<cudaStream_t> handles;
  for (std::size_t i = 0; i < 3; ++i) handles.insert(streams[i].get());
  CHECK(handles.size() == 3);
}

TEST_CASE("its streams are of the device that was current, and of the kind that was asked for") {
  test::fresh_world const world;
  device_guard const on_device(1);
  stream_pool const streams(2, stream::kind::blocking);
  CHECK(streams.device() == 1);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(streams[i].device() == 1);
    unsigned flags = 7;
    CHECK(cudaStreamGetFlags(streams[i].get(), &flags) == cudaSuccess);
    CHECK(flags == cudaStreamDefault);
  }
}

TEST_CASE("threads that take turns get each stream as often as any other") {
  test::fresh_world const world;
  stream_pool streams(4);
  constexpr int threads = 4, turns = 1'000;
  // TSan reports a race only while it remembers both sides: few turns, which are counted when all are done.
  std::vector taken(threads, std::vector<stream const*>(turns));
  std::latch begun(threads);  // else one is done before the next begins
  {
    std::vector<std::jthread> all;
    for (auto& mine : taken)
      all.emplace_back([&] {
        begun.arrive_and_wait();
        for (stream const*& each : mine) each = &streams.get();
      });
  }
  std::map<stream const*, int> together;
  for (auto const& mine : taken)
    for (stream const* const each : mine) ++together[each];
  CHECK(together.size() == 4);
  for (auto const& [which, times] : together) CHECK(times == threads * turns / 4);
}

TEST_CASE("a pool of memory knows them without a CUDA call") {
  test::fresh_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1 << 20});
  stream_pool streams(1);
  memory.deallocate(streams[0], memory.allocate(streams[0], 1000), 1000);  // the first cuts the segment
  sim::reset_counters();
  for (int i = 0; i < 4; ++i) {
    stream_ref const order = streams.get();
    memory.deallocate(order, memory.allocate(order, 1000), 1000);
  }
  CHECK(sim::calls() == 0);
}

TEST_CASE("none is no pool, and where CUDA makes too few nothing is lost") {
  test::fresh_world const world;
  CHECK_THROWS_AS(stream_pool(0), std::invalid_argument);
  CHECK_THROWS_WITH_AS(stream_pool(static_cast<std::size_t>(-1)),
                       doctest::Contains("count is 18446744073709551615; it must be at least 1"),
                       std::invalid_argument);
  { stream_pool const all(40); }  // kept for the next
  std::size_t const handles = sim::live_handles();
  sim::fail_call("cudaStreamCreateWithFlags", 3, cudaErrorUnknown);
  CHECK_THROWS_AS(stream_pool(100), cuda_error);
  CHECK(sim::live_handles() >= handles);
  std::size_t const made = sim::live_handles();
  { stream_pool const again(40); }
  CHECK(sim::live_handles() == made);  // those that were made before the failure are used
}
