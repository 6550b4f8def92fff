// What CUDA's calls cost on this machine, and what an allocation does: weir's pool beside CUDA's own and, where they
// are there, RMM's and CUB's. No test: test/gpu/run prints its table, nanoseconds an operation, the least of some
// rounds.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <cub/util_allocator.cuh>

#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

using namespace weir::literals;
using weir::detail::check;

constexpr int rounds = 5;

/// Nanoseconds for each of `times` calls of `f`, once what the first calls set up is there.
template <class F>
double nanoseconds(int times, F f) {
  for (int i = 0; i < times / 10; ++i) f(i);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  auto const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) f(i);
  std::chrono::duration<double, std::nano> const taken = std::chrono::steady_clock::now() - begin;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return taken.count() / times;
}

/// Rows of figures, the least of some rounds. Each round measures every row, so that a slow second of the machine does
/// not fall on one row alone.
class table {
 public:
  using figures = std::vector<double>;

  void add(char const* name, std::function<figures()> measure) { rows_.push_back({name, std::move(measure), {}}); }
  void print() {
    for (int round = 0; round < rounds; ++round)
      for (row& each : rows_) {
        figures const now = each.measure();
        if (each.least.empty()) each.least = now;
        for (std::size_t i = 0; i < now.size(); ++i) each.least[i] = std::min(each.least[i], now[i]);
      }
    for (row const& each : rows_) {
      std::printf("%-40s", each.name);
      for (double const figure : each.least) std::printf(" %10.0f", figure);
      std::printf("\n");
    }
  }

 private:
  struct row {
    char const* name;
    std::function<figures()> measure;
    figures least;
  };
  std::vector<row> rows_;
};

class plain_stream {
 public:
  plain_stream() { check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~plain_stream() { cudaStreamDestroy(handle_); }
  plain_stream(plain_stream const&) = delete;
  plain_stream& operator=(plain_stream const&) = delete;
  cudaStream_t get() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

void calls() {
  plain_stream const stream, other;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  table calls;
  auto const row = [&](char const* what, int times, auto f) {
    calls.add(what, [=] { return table::figures{nanoseconds(times, f)}; });
  };
  row("cudaStreamGetId", 10'000, [&](int) {
    unsigned long long id = 0;
    cudaStreamGetId(stream.get(), &id);
  });
  row("cudaStreamIsCapturing", 10'000, [&](int) {
    cudaStreamCaptureStatus status{};
    cudaStreamIsCapturing(stream.get(), &status);
  });
  row("cudaStreamGetCaptureInfo", 10'000, [&](int) {
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    cudaStreamGetCaptureInfo(stream.get(), &status, &id);
  });
  row("cudaEventRecord", 500, [&](int) { cudaEventRecord(event, stream.get()); });
  row("cudaEventRecord, 20,000 in a row", 20'000, [&](int) { cudaEventRecord(event, stream.get()); });
  row("cudaEventQuery, done", 10'000, [&](int) { cudaEventQuery(event); });
  row("cudaStreamWaitEvent", 500, [&](int) { cudaStreamWaitEvent(other.get(), event, 0); });
  row("cudaThreadExchangeStreamCaptureMode, twice", 10'000, [](int) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaThreadExchangeStreamCaptureMode(&mode);
  });
  row("cudaGetDevice", 10'000, [](int) {
    int device = 0;
    cudaGetDevice(&device);
  });
  row("cudaMemGetInfo", 200, [](int) {
    std::size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
  });
  calls.print();
  cudaEventDestroy(event);
}

/// A pair of 1 MiB; a pair that goes to and fro between two streams; a free and an allocation among 1,000 live blocks
/// of random sizes up to 64 KiB, and up to 8 MiB.
template <class Allocate, class Deallocate>
table::figures figures_of(Allocate allocate, Deallocate deallocate, int times = 20'000) {
  auto const random = [&](std::size_t most) {
    constexpr std::size_t live = 1000;
    std::mt19937_64 draw(7);
    std::vector<std::size_t> sizes(live);
    std::vector<void*> blocks(live);
    for (std::size_t i = 0; i < live; ++i) blocks[i] = allocate(0, sizes[i] = 1 + draw() % most);
    double const each = nanoseconds(times, [&](int) {
      std::size_t const i = draw() % live;
      deallocate(0, blocks[i], sizes[i]);
      blocks[i] = allocate(0, sizes[i] = 1 + draw() % most);
    });
    for (std::size_t i = 0; i < live; ++i) deallocate(0, blocks[i], sizes[i]);
    return each;
  };
  auto const pair = [&](int stream) { deallocate(stream, allocate(stream, 1_MiB), 1_MiB); };
  double const pairs = nanoseconds(times, [&](int) { pair(0); });
  double const to_and_fro = nanoseconds(times, [&](int i) { pair(i % 2); });
  return {pairs, to_and_fro, random(64_KiB), random(8_MiB)};
}

/// Of memory that `make()` makes.
template <class Make, class Stream>
std::function<table::figures()> measured(Make make, Stream const (&streams)[2]) {
  return [=, &streams] {
    auto memory = make();
    return figures_of([&](int s, std::size_t n) { return memory.allocate(streams[s], n, 256); },
                      [&](int s, void* p, std::size_t n) { memory.deallocate(streams[s], p, n, 256); });
  };
}

void allocations() {
  weir::stream const known[2];
  plain_stream const plain[2];
  weir::stream_ref const unknown[2] = {plain[0].get(), plain[1].get()};
  auto const pool = [] { return weir::make(weir::async{} | weir::pool{}); };
  table rows;
  rows.add("weir pool, weir::stream", measured(pool, known));
  rows.add("weir pool, any stream", measured(pool, unknown));
  rows.add("weir pool, captures declared",
           measured([] { return weir::make(weir::async{} | weir::pool{.declared_captures = true}); }, unknown));
  rows.add("weir arena, weir::stream", measured([] { return weir::make(weir::async{} | weir::arena{}); }, known));
  auto const growable = [] { return weir::make(weir::virtual_memory{} | weir::pool{}); };
  try {
    growable();
    rows.add("weir growable, weir::stream", measured(growable, known));
  } catch (std::invalid_argument const& missing) {
    std::printf("left out: weir growable: %s\n", missing.what());
  }
#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
  cuda::stream_ref const rmm_streams[2] = {cuda::stream_ref(plain[0].get()), cuda::stream_ref(plain[1].get())};
  rmm::mr::cuda_memory_resource device;
  rows.add("RMM pool", measured([&] { return rmm::mr::pool_memory_resource(device, 1_GiB); }, rmm_streams));
  rows.add("RMM arena", measured([&] { return rmm::mr::arena_memory_resource(device, 16_GiB); }, rmm_streams));
  rows.add("RMM cudaMallocAsync", measured([] { return rmm::mr::cuda_async_memory_resource(); }, rmm_streams));
#endif
  rows.add("CUB CachingDeviceAllocator", [&] {
    cub::CachingDeviceAllocator caching(2, 9, 26);
    return figures_of(
        [&](int s, std::size_t n) {
          void* p = nullptr;
          check(caching.DeviceAllocate(&p, n, plain[s].get()), "DeviceAllocate");
          return p;
        },
        [&](int, void* p, std::size_t) { check(caching.DeviceFree(p), "DeviceFree"); });
  });
  cudaMemPool_t of_device = nullptr;
  check(cudaDeviceGetDefaultMemPool(&of_device, 0), "cudaDeviceGetDefaultMemPool");
  std::uint64_t keep = ~std::uint64_t{0};
  check(cudaMemPoolSetAttribute(of_device, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  rows.add("cudaMallocAsync, keeping all", [&] {
    return figures_of(
        [&](int s, std::size_t n) {
          void* p = nullptr;
          check(cudaMallocAsync(&p, n, plain[s].get()), "cudaMallocAsync");
          return p;
        },
        [&](int s, void* p, std::size_t) { check(cudaFreeAsync(p, plain[s].get()), "cudaFreeAsync"); }, 2000);
  });
  rows.add("cudaMalloc", [] {
    return figures_of(
        [](int, std::size_t n) {
          void* p = nullptr;
          check(cudaMalloc(&p, n), "cudaMalloc");
          return p;
        },
        [](int, void* p, std::size_t) { check(cudaFree(p), "cudaFree"); }, 200);
  });
  std::printf("%-40s %10s %10s %10s %10s\n", "", "pair", "2 streams", "<= 64 KiB", "<= 8 MiB");
  rows.print();
}

}  // namespace

int main() {
  int count = 0;
  if (cudaError_t const code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    std::printf("skipped: no GPU: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "none found");
    return 77;
  }
  calls();
  allocations();
}
