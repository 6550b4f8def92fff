// Stacks in a forked child: it may end in any way, and nothing of its parent's calls CUDA or hangs there.
#include <weir/weir.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

using namespace weir;

namespace {

/// Runs `work` in a child, which ends by `_exit`, or as any program does; true if it ended well and in time.
template <class Work>
bool child_ends_well(bool normally, Work work) {
  std::fflush(nullptr);  // or the child prints it again
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    std::uint64_t const before = sim::calls();
    work();
    int const status = sim::calls() == before ? 0 : 1;
    if (normally) std::exit(status);
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

template <class F>
void with_stack(F const& recipe) {
  std::unique_ptr<made_by<F>> memory(new made_by<F>(recipe()));
  weir::stream const lasting;
  cudaStream_t mortal = nullptr;
  REQUIRE(cudaStreamCreate(&mortal) == cudaSuccess);
  void* const live = memory->allocate(mortal, 1000);
  void* const on_lasting = memory->allocate(lasting, 1000);
  memory->deallocate(mortal, memory->allocate(mortal, 4096), 4096);

  CHECK(child_ends_well(false, [] {}));
  CHECK(child_ends_well(true, [] {}));
  CHECK(child_ends_well(true, [&] { memory.reset(); }));
  CHECK(child_ends_well(true, [&] {
    memory->deallocate(mortal, live, 1000);
    memory->deallocate(lasting, on_lasting, 1000);
    memory.reset();
  }));
  CHECK(child_ends_well(false, [&] {
    try {
      static_cast<void>(memory->allocate(mortal, 1000));
      ::_exit(2);
    } catch (cuda_error const& failure) {
      if (failure.code() != cudaErrorCudartUnloading) ::_exit(3);
    }
  }));

  // The parent goes on as if nothing had been.
  memory->deallocate(mortal, live, 1000);
  memory->deallocate(lasting, on_lasting, 1000);
  memory.reset();
  CHECK(sim::live_allocations() == 0);
  cudaStreamDestroy(mortal);
}

}  // namespace

TEST_CASE("a child touches no CUDA through its parent's stacks, whatever it does with them") {
  sim::reset();
  with_stack(device{});
  with_stack(async{});
  with_stack(pinned{});
  with_stack(async{} | pool{} | limit{.max_bytes = 1_GiB} | statistics{} | logging{.path = "/dev/null"});
  with_stack(device{} | arena{});
  with_stack(device{} | fixed_size{.block_bytes = 8192});
  with_stack(async{} | pool{} | binning::powers_of_two(8, 12));
  with_stack(host{} | pool{});
}

TEST_CASE("events and streams of the parent end quietly in a child") {
  sim::reset();
  auto event = std::make_unique<weir::event>();
  auto stream = std::make_unique<weir::stream>();
  CHECK(child_ends_well(true, [&] {
    event.reset();
    stream.reset();
  }));
}

TEST_CASE("a child that was not its parent's to spoil may have stacks of its own") {
  sim::reset();
  std::fflush(nullptr);
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    {
      auto memory = make(async{} | pool{});
      void* const p = memory.allocate(cudaStreamLegacy, 1000);
      memory.deallocate(cudaStreamLegacy, p, 1000);
    }
    ::_exit(sim::live_allocations() == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a child ends, though other threads of its parent were inside the stack when it was made") {
  sim::reset();
  auto const recipe = device{} | pool{};
  std::unique_ptr<made_by<decltype(recipe)>> memory(new made_by<decltype(recipe)>(recipe()));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) memory->deallocate(cudaStreamLegacy, memory->allocate(cudaStreamLegacy, 1000), 1000);
    });
  int ended_well = 0;
  for (int i = 0; i < 40; ++i)
    ended_well += child_ends_well(i % 2 == 0, [&] {
      bool const says = memory->numbers().reserved.current != 0 || memory->snapshot().segments != 0;
      if (says || memory->trim() != 0 || memory->release_captured() != 0) ::_exit(4);
      memory->synchronize();
      memory.reset();
    });
  stop = true;
  for (auto& t : threads) t.join();
  CHECK(ended_well == 40);
}
