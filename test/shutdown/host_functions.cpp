// weir inside host functions (cudaLaunchHostFunc), where CUDA refuses every call: an error or success, never a
// deadlock.
#include <weir/weir.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <functional>
#include <string>

using namespace weir;
using weir::test::fresh_world;

namespace {

/// Runs `work` as a host function of `stream`, on a thread that the mode chooses.
void in_host_function(cudaStream_t stream, std::function<void()>& work) {
  REQUIRE(cudaLaunchHostFunc(
              stream, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, &work) == cudaSuccess);
}

constexpr sim::mode modes[] = {sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct,
                               sim::mode::threads};

}  // namespace

TEST_CASE("what needs a call of CUDA throws what CUDA says, and changes nothing") {
  for (sim::mode const mode : modes) {
    fresh_world const world(mode);
    auto memory = make(async{} | pool{} | limit{.max_bytes = 1_GiB});
    cudaStream_t destroyable = nullptr;
    REQUIRE(cudaStreamCreate(&destroyable) == cudaSuccess);
    std::string said;
    std::function<void()> work = [&] {
      try {
        static_cast<void>(memory.allocate(destroyable, 1000));
      } catch (cuda_error const& failure) {
        said = failure.what();
      }
    };
    in_host_function(destroyable, work);
    REQUIRE(cudaStreamSynchronize(destroyable) == cudaSuccess);
    CHECK(said.find("cudaErrorNotPermitted") != std::string::npos);
    CHECK(memory.used() == 0);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    memory.deallocate(destroyable, memory.allocate(destroyable, 1000), 1000);
    REQUIRE(cudaStreamDestroy(destroyable) == cudaSuccess);
  }
}

TEST_CASE("what a pool can do without CUDA works there: a persistent stream's memory comes and goes") {
  for (sim::mode const mode : modes) {
    fresh_world const world(mode);
    auto memory = make(async{} | pool{.initial_bytes = 2_MiB});
    weir::stream const lasting;
    memory.deallocate(lasting, memory.allocate(lasting, 1000), 1000);
    void* p = nullptr;
    std::function<void()> work = [&] {
      p = memory.allocate(lasting, 1000);
      memory.deallocate(lasting, p, 1000);
    };
    in_host_function(lasting.get(), work);
    lasting.synchronize();
    CHECK(p != nullptr);
    CHECK(memory.numbers().allocated.current == 0);
  }
}

TEST_CASE("a free that needs CUDA keeps the memory rather than give it to anyone too early") {
  for (sim::mode const mode : modes) {
    fresh_world const world(mode);
    auto memory = make(device{} | pool{});
    auto bare = make(pinned{});
    cudaStream_t destroyable = nullptr;
    REQUIRE(cudaStreamCreate(&destroyable) == cudaSuccess);
    void* const p = memory.allocate(destroyable, 1000);
    void* const q = bare.allocate(destroyable, 1000);
    std::function<void()> work = [&] {
      memory.deallocate(destroyable, p, 1000);
      bare.deallocate(destroyable, q, 1000);
    };
    in_host_function(destroyable, work);
    REQUIRE(cudaStreamSynchronize(destroyable) == cudaSuccess);
    CHECK(memory.allocate(destroyable, 1000) != p);
    bare.deallocate(destroyable, q, 1000);  // no misuse: it is still the caller's
    REQUIRE(cudaStreamDestroy(destroyable) == cudaSuccess);
  }
}

TEST_CASE("a pool that waits for a stream does not hold up the host function that it waits for") {
  for (sim::mode const mode : modes) {
    fresh_world const world(mode);
    auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
    weir::stream const lasting;
    cudaStream_t destroyable = nullptr;
    REQUIRE(cudaStreamCreate(&destroyable) == cudaSuccess);
    memory.deallocate(lasting, memory.allocate(lasting, 1000), 1000);
    bool ran = false;
    std::function<void()> work = [&] {
      memory.deallocate(lasting, memory.allocate(lasting, 1000), 1000);
      static_cast<void>(memory.numbers());
      ran = true;
    };
    void* const p = memory.allocate(destroyable, 1000);
    in_host_function(destroyable, work);
    memory.deallocate(destroyable, p, 1000);
    memory.synchronize();
    CHECK(ran);
    REQUIRE(cudaStreamDestroy(destroyable) == cudaSuccess);
  }
}

TEST_CASE("a host function may use the pool that the program uses at the same time") {
  constexpr int times = 20;
  for (sim::mode const mode : modes)
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      fresh_world const world(mode);
      sim::set_seed(seed);
      sim::set_depth(3, 200);
      auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
      weir::stream const lasting;
      cudaStream_t destroyable = nullptr;
      REQUIRE(cudaStreamCreate(&destroyable) == cudaSuccess);
      memory.deallocate(lasting, memory.allocate(lasting, 1000), 1000);
      int ran = 0;
      std::function<void()> work = [&] {
        ++ran;
        try {
          memory.deallocate(lasting, memory.allocate(lasting, 1000), 1000);
        } catch (cuda_error const&) {
          // The program's streams may have taken all that needs no call.
        }
      };
      for (int i = 0; i < times; ++i) {
        in_host_function(lasting.get(), work);
        memory.deallocate(destroyable, memory.allocate(destroyable, 1000), 1000);
        memory.deallocate(cudaStreamLegacy, memory.allocate(cudaStreamLegacy, 3000), 3000);
      }
      lasting.synchronize();
      CHECK(ran == times);
      CHECK(memory.numbers().allocated.current == 0);
      REQUIRE(cudaStreamDestroy(destroyable) == cudaSuccess);
    }
}
