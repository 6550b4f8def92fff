// needs: tsan
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/containers/vector.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>

#include <core/recorder.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::literals;

namespace {

static_assert(!std::is_copy_constructible_v<per_device_scope> && !std::is_move_constructible_v<per_device_scope>);

/// What devices have without a scope lasts as long as the process, so each test has devices of its own, and none puts
/// the runtime back.
struct devices {
  devices() { sim::set_device_count(8); }
  ~devices() { cudaSetDevice(0); }
};

any_resource pool_of(int which) { return any_resource(device{.device = which} | pool{}); }

}  // namespace

TEST_CASE("without a scope it is an async source of the device, made once, when it is first asked for") {
  devices const all;
  any_resource const first = current_memory(1);
  CHECK(report_of(first).chain() == "async(1)");
  CHECK(device_of(first) == 1);
  CHECK(current_memory(1) == first);
  sim::reset_counters();
  cudaSetDevice(1);
  CHECK(current_memory() == first);
  CHECK(current_memory(-1) == first);
  CHECK(sim::calls("cudaMemPoolCreate") == 0);
  CHECK(current_memory(0) != first);
  void* const p = first.allocate(host_order, 100);
  first.deallocate(host_order, p, 100);
}

TEST_CASE("a scope sets the memory of its device alone, and takes it back") {
  devices const all;
  any_resource const a = pool_of(2), b = pool_of(2), c = pool_of(3);
  {
    per_device_scope const outer(a);
    CHECK(current_memory(2) == a);
    {
      per_device_scope const inner(2, b), other(c);
      CHECK(current_memory(2) == b);
      CHECK(current_memory(3) == c);
    }
    CHECK(current_memory(2) == a);
    CHECK(current_memory(3) != c);
  }
  CHECK(current_memory(2) != a);
}

TEST_CASE("memory that says no device becomes that of the device that is named, or current") {
  devices const all;
  fresh_record const record;
  any_resource const unsaid{recorder<>{}};
  cudaSetDevice(2);
  {
    per_device_scope const current(unsaid);
    CHECK(current_memory(2) == unsaid);
  }
  per_device_scope const named(3, unsaid);
  CHECK(current_memory(3) == unsaid);
  CHECK(current_memory(2) != unsaid);
}

TEST_CASE("scopes end in any order") {
  devices const all;
  any_resource const a = pool_of(4), b = pool_of(4), c = pool_of(4), d = pool_of(5);
  std::optional<per_device_scope> first(std::in_place, a), second(std::in_place, b), fifth(std::in_place, d);
  std::optional<per_device_scope> third(std::in_place, c);
  second.reset();
  CHECK(current_memory(4) == c);
  third.reset();
  CHECK(current_memory(4) == a);
  second.emplace(b);
  first.reset();
  CHECK(current_memory(4) == b);
  CHECK(current_memory(5) == d);
  second.reset();
  fifth.reset();
  CHECK(current_memory(4) != a);
  CHECK(current_memory(4) != b);
}

TEST_CASE("what was current stays good for those who have it, when the scope has ended") {
  devices const all;
  fresh_record const record;
  {
    std::optional<per_device_scope> scope(std::in_place, 5, any_resource(recorder<>{}));
    any_resource const kept = current_memory(5);
    built.clear();
    scope.reset();
    CHECK(built.empty());
    CHECK(kept.allocate(host_order, 10) != nullptr);
  }
  CHECK(built == std::vector<std::string>{"~recorder"});

  stream const s;
  std::optional<vector<int>> v;
  {
    per_device_scope const scope(0, any_resource(device{.device = 0} | pool{} | limit{1_MiB}));
    v.emplace(100, s, current_memory(0));
    CHECK_THROWS_AS(v->resize(1_MiB), out_of_memory);
  }
  v->resize(1000);
}

TEST_CASE("a device that is not there, or is not the memory's, is an error that says so") {
  devices const all;
  any_resource const memory = pool_of(0);
  CHECK_THROWS_WITH_AS(static_cast<void>(current_memory(8)),
                       "weir: current_memory: there is no device 8; this process sees 8, numbered from 0",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(current_memory(-2)),
                       "weir: current_memory: device is -2; it must be at least -1, which is the current device",
                       std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(per_device_scope(8, memory)), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(per_device_scope(-2, memory)), std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(per_device_scope(1, memory)),
                       "weir: per_device_scope: memory of device 0 cannot be the current memory of device 1",
                       std::invalid_argument);
}

TEST_CASE("a handle that was moved from is refused at once, and changes nothing") {
  devices const all;
  any_resource const before = current_memory(0);
  any_resource gone = pool_of(0);
  any_resource const kept = std::move(gone);
  char const* const words = "weir: per_device_scope: this any_resource was moved from; assign a stack to it first";
  CHECK_THROWS_WITH_AS(static_cast<void>(per_device_scope(gone)), words, std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(per_device_scope(0, gone)), words, std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(per_device_scope(any_resource(share(gone)))), words, std::invalid_argument);
  CHECK(current_memory(0) == before);
  gone = kept;
  per_device_scope const scope(gone);
  CHECK(current_memory(0) == kept);
}

TEST_CASE("if a source cannot be made, that is not remembered") {
  devices const all;
  for (std::uint64_t k = 1;; ++k) {
    REQUIRE(k < 100);
    sim::fail_call(k, cudaErrorUnknown);
    try {
      any_resource const made = current_memory(6);
      CHECK(device_of(made) == 6);
      CHECK(k > 5);
      break;
    } catch (cuda_error const&) {
    }
  }
  sim::clear_failure();
}

TEST_CASE("threads that ask first all get the same; scopes of threads do not disturb each other's end") {
  devices const all;
  std::vector<std::optional<any_resource>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : seen) threads.emplace_back([&] { mine = current_memory(7); });
  }
  for (auto const& each : seen) CHECK(each == seen[0]);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([] {
        any_resource const mine = pool_of(7);
        for (int turn = 0; turn < 200; ++turn) {
          per_device_scope const scope(mine);
          any_resource const now = current_memory(7);
          now.deallocate(host_order, now.allocate(host_order, 64), 64);
        }
      });
  }
  CHECK(current_memory(7) == *seen[0]);
}
