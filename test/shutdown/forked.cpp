// Stacks in a forked child: it may end in any way, and nothing of its parent's calls CUDA or hangs there.
#include <weir/adaptors/detail/charges.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/containers/vector.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/weir.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

using namespace weir;

/// In place of the C library's, whose lock another thread of the parent may have when a child is forked.
static std::atomic<int> local_times_asked{0};
extern "C" ::tm* localtime_r(::time_t const* time, ::tm* result) noexcept {
  ++local_times_asked;
  return ::gmtime_r(time, result);
}

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
  cudaStream_t destroyable = nullptr;
  REQUIRE(cudaStreamCreate(&destroyable) == cudaSuccess);
  void* const live = memory->allocate(destroyable, 1000);
  void* const on_lasting = memory->allocate(lasting, 1000);
  memory->deallocate(destroyable, memory->allocate(destroyable, 4096), 4096);

  CHECK(child_ends_well(false, [] {}));
  CHECK(child_ends_well(true, [] {}));
  CHECK(child_ends_well(true, [&] { memory.reset(); }));
  CHECK(child_ends_well(true, [&] {
    memory->deallocate(destroyable, live, 1000);
    memory->deallocate(lasting, on_lasting, 1000);
    memory.reset();
  }));
  CHECK(child_ends_well(false, [&] {
    if (weir::trim(*memory) != 0 || release_captured(*memory) != 0) ::_exit(2);
    synchronize(*memory);
    for (layer_numbers const& layer : numbers(*memory))
      if (layer.reserved.value_or(0) != 0) ::_exit(3);
  }));
  CHECK(child_ends_well(false, [&] {
    try {
      static_cast<void>(memory->allocate(destroyable, 1000));
      ::_exit(2);
    } catch (cuda_error const& failure) {
      if (failure.code() != cudaErrorCudartUnloading) ::_exit(3);
    }
  }));

  // The parent goes on as if nothing had been.
  memory->deallocate(destroyable, live, 1000);
  memory->deallocate(lasting, on_lasting, 1000);
  memory.reset();
  CHECK(sim::live_allocations() == 0);
  cudaStreamDestroy(destroyable);
}

}  // namespace

TEST_CASE("a child touches no CUDA through its parent's stacks, whatever it does with them") {
  sim::reset();
  with_stack(device{});
  with_stack(async{});
  with_stack(pinned{});
  with_stack(virtual_memory{});
  with_stack(virtual_memory{} | pool{});
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

TEST_CASE("threads of a child are told from those of its parent, though they have their places") {
  sim::reset();
  std::atomic<bool> stop{false}, ready{false};
  auto of_parent = make(device{} | pool{});
  auto const use_own_stream = [](auto& memory) {
    memory.deallocate(cudaStreamPerThread, memory.allocate(cudaStreamPerThread, 1000), 1000);
  };
  std::thread parent_s([&] {
    use_own_stream(of_parent);
    ready = true;
    while (!stop) std::this_thread::yield();
  });
  while (!ready) std::this_thread::yield();
  use_own_stream(of_parent);
  std::fflush(nullptr);
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    {
      auto memory = make(device{} | pool{});
      use_own_stream(memory);
      for (int i = 0; i < 4; ++i) std::thread([&] { use_own_stream(memory); }).join();  // on stacks of the parent's
      capture_scope const declared;
      use_own_stream(memory);
      memory.trim();
    }
    ::_exit(0);
  }
  stop = true;
  parent_s.join();
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a refusal in a child calls no CUDA either") {
  sim::reset();
  auto pools = make(device{} | pool{});
  auto blocks = make(device{} | fixed_size{.block_bytes = 4096});
  auto limited = make(device{} | limit{.max_bytes = 1_MiB});
  auto const refused = [](auto& memory, std::size_t bytes) {
    try {
      static_cast<void>(memory.allocate(cudaStreamLegacy, bytes));
      ::_exit(2);
    } catch (std::exception const&) {
    }
  };
  CHECK(child_ends_well(false, [&] { refused(pools, std::size_t{1} << 62); }));
  CHECK(child_ends_well(false, [&] { refused(blocks, 8192); }));
  CHECK(child_ends_well(false, [&] { refused(limited, 2_MiB); }));
  CHECK(child_ends_well(false, [&] {
    if (report_of(limited).lines().find("CUDA is asked no more") == std::string::npos) ::_exit(3);
  }));
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

TEST_CASE("a child may call the simulated runtime, whatever other threads of its parent were doing there") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      cudaStream_t stream = nullptr;
      cudaStreamCreate(&stream);
      void* p = nullptr;
      cudaMalloc(&p, 1'000'000);
      while (!stop) {
        int device = 0;
        cudaGetDevice(&device);
        cudaMemsetAsync(p, 1, 1'000'000, stream);
        cudaStreamSynchronize(stream);
      }
      cudaFree(p);
      cudaStreamDestroy(stream);
    });
  int ended_well = 0;
  for (; ended_well < 40; ++ended_well) {
    std::fflush(nullptr);
    ::pid_t const child = ::fork();
    if (child == 0) {
      ::alarm(10);
      void* p = nullptr;
      bool const good = cudaMalloc(&p, 1000) == cudaSuccess && cudaMemsetAsync(p, 1, 1000, nullptr) == cudaSuccess &&
                        cudaDeviceSynchronize() == cudaSuccess && cudaFree(p) == cudaSuccess;
      ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    if (status != 0) break;
  }
  stop = true;
  for (auto& t : threads) t.join();
  CHECK(ended_well == 40);
  sim::reset();
}

TEST_CASE("a child that frees through a log of its parent's does not ask for the local time") {
  sim::reset();
  auto memory = make(host{} | logging{.path = "/dev/null"});
  void* const p = memory.allocate(host_order, 8);
  // By a new thread, since each asks once a second at most.
  auto const free_it = [&] { std::thread([&] { memory.deallocate(host_order, p, 8); }).join(); };
  int const before = local_times_asked;
  CHECK(child_ends_well(false, [&] {
    free_it();
    if (local_times_asked != before) ::_exit(2);
  }));
  free_it();
  CHECK(local_times_asked == before + 1);
}

TEST_CASE("a child is given streams of its own, and none that its parent kept") {
  sim::reset();
  cudaStream_t of_parent = nullptr;
  {
    weir::stream const idle;
    of_parent = idle.get();
  }
  auto const* const kept_by_parent = &detail::stream_cache::instance();
  std::fflush(nullptr);
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    // With a lock of its own: a thread that is not here may have the parent's.
    if (&detail::stream_cache::instance() == kept_by_parent) ::_exit(2);
    auto made = std::make_unique<weir::stream>();
    cudaStream_t const own = made->get();
    made.reset();
    ::_exit(own != of_parent && weir::stream().get() == own ? 0 : 3);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(weir::stream().get() == of_parent);
}

TEST_CASE("a stream and an event of the parent's stay so when a child moves them") {
  sim::reset();
  auto stream = std::make_unique<weir::stream>();
  auto event = std::make_unique<weir::event>();
  CHECK(child_ends_well(true, [&] {
    { weir::stream const moved = std::move(*stream); }
    { weir::event const moved = std::move(*event); }
  }));
  std::fflush(nullptr);
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    cudaStream_t const of_parent = stream->get();
    { weir::stream const moved = std::move(*stream); }
    ::_exit(weir::stream().get() != of_parent ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("vectors and the current memory of devices end in a child without a word") {
  auto memory = make(async{.device = 1} | pool{});
  std::vector<vector<int>> all;
  weir::stream const lasting;
  all.emplace_back(1000, lasting, any_resource(async{} | pool{}));
  all.emplace_back(1000, cudaStreamLegacy, memory);
  all.emplace_back(1000, cudaStreamLegacy, any_resource(device{}));
  auto scope = std::make_unique<per_device_scope>(any_resource(async{} | pool{}));
  all.emplace_back(1000, lasting, current_memory(0));
  CHECK(child_ends_well(true, [] {}));
  CHECK(child_ends_well(true, [&] {
    all.clear();
    scope.reset();
  }));
  CHECK(child_ends_well(false, [&] {
    try {
      all.back().resize(100'000);
      ::_exit(2);
    } catch (cuda_error const& failure) {
      if (failure.code() != cudaErrorCudartUnloading) ::_exit(3);
    }
  }));
}

TEST_CASE("a child has the whole of a budget that its parent's threads shared") {
  weir::detail::charges budget;
  budget.set_bound(1000);
  budget.set_contended();
  std::atomic<bool> ready{false}, ends{false};
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i)
      if (budget.charge(700) == 0 || !budget.credit(300) || budget.charge(300) == 0 || !budget.credit(700)) return;
    if (budget.charge(200) != 0) ready = true;
    while (!ends) std::this_thread::yield();
  });
  while (!ready) std::this_thread::yield();
  CHECK(child_ends_well(false, [&] {
    if (budget.load() != 200 || budget.charge(801) != 0 || budget.charge(800) == 0) ::_exit(2);
    if (!budget.credit(1000) || budget.load() != 0) ::_exit(3);
  }));
  ends = true;
  other.join();
  CHECK(budget.load() == 200);
}
