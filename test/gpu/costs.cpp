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
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

using namespace weir::literals;
using weir::detail::check;

constexpr int rounds = 5;

/// Nanoseconds for each of `times` calls of `f`.
template <class F>
double nanoseconds(int times, F f) {
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < rounds; ++round) {
    auto const begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) f(i);
    std::chrono::duration<double, std::nano> const taken = std::chrono::steady_clock::now() - begin;
    least = std::min(least, taken.count() / times);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  return least;
}

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
  auto const row = [](char const* what, double number) { std::printf("%-44s %10.0f\n", what, number); };
  unsigned long long id = 0;
  cudaStreamCaptureStatus status{};
  row("cudaStreamGetId", nanoseconds(10'000, [&](int) { cudaStreamGetId(stream.get(), &id); }));
  row("cudaStreamIsCapturing", nanoseconds(10'000, [&](int) { cudaStreamIsCapturing(stream.get(), &status); }));
  row("cudaStreamGetCaptureInfo",
      nanoseconds(10'000, [&](int) { cudaStreamGetCaptureInfo(stream.get(), &status, &id); }));
  row("cudaEventRecord", nanoseconds(500, [&](int) { cudaEventRecord(event, stream.get()); }));
  row("cudaEventQuery, done", nanoseconds(10'000, [&](int) { cudaEventQuery(event); }));
  row("cudaStreamWaitEvent", nanoseconds(500, [&](int) { cudaStreamWaitEvent(other.get(), event, 0); }));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  row("cudaThreadExchangeStreamCaptureMode",
      nanoseconds(10'000, [&](int) { cudaThreadExchangeStreamCaptureMode(&mode); }));
  int device = 0;
  row("cudaGetDevice", nanoseconds(10'000, [&](int) { cudaGetDevice(&device); }));
  std::size_t free_bytes = 0, total = 0;
  row("cudaMemGetInfo", nanoseconds(200, [&](int) { cudaMemGetInfo(&free_bytes, &total); }));
  cudaEventDestroy(event);
}

/// A pair of 1 MiB; a pair that goes to and fro between two streams; a free and an allocation among 1,000 live blocks
/// of random sizes up to 64 KiB, and up to 8 MiB.
template <class Allocate, class Deallocate>
void row(char const* name, Allocate allocate, Deallocate deallocate, int times = 20'000) {
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
  std::printf("%-32s %10.0f %10.0f %10.0f %10.0f\n", name, pairs, to_and_fro, random(64_KiB), random(8_MiB));
  std::fflush(stdout);
}

template <class Memory, class Stream>
void row_of(char const* name, Memory&& memory, Stream const (&streams)[2]) {
  row(
      name, [&](int s, std::size_t n) { return memory.allocate(streams[s], n, 256); },
      [&](int s, void* p, std::size_t n) { memory.deallocate(streams[s], p, n, 256); });
}

void allocations() {
  std::printf("%-32s %10s %10s %10s %10s\n", "", "pair", "2 streams", "<= 64 KiB", "<= 8 MiB");
  weir::stream const known[2];
  plain_stream const plain[2];
  weir::stream_ref const unknown[2] = {plain[0].get(), plain[1].get()};
  row_of("weir pool, weir::stream", weir::make(weir::async{} | weir::pool{}), known);
  row_of("weir pool, any stream", weir::make(weir::async{} | weir::pool{}), unknown);
  row_of("weir pool, captures declared", weir::make(weir::async{} | weir::pool{.declared_captures = true}), unknown);
  row_of("weir arena, weir::stream", weir::make(weir::async{} | weir::arena{}), known);
  try {
    row_of("weir growable, weir::stream", weir::make(weir::virtual_memory{} | weir::pool{}), known);
  } catch (std::invalid_argument const& missing) {
    std::printf("left out: weir growable: %s\n", missing.what());
  }
#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
  cuda::stream_ref const rmm_streams[2] = {cuda::stream_ref(plain[0].get()), cuda::stream_ref(plain[1].get())};
  rmm::mr::cuda_memory_resource device;
  row_of("RMM pool", rmm::mr::pool_memory_resource(device, 1_GiB), rmm_streams);
  row_of("RMM arena", rmm::mr::arena_memory_resource(device, 16_GiB), rmm_streams);
  row_of("RMM cudaMallocAsync", rmm::mr::cuda_async_memory_resource(), rmm_streams);
#endif
  cub::CachingDeviceAllocator caching(2, 9, 26);
  row(
      "CUB CachingDeviceAllocator",
      [&](int s, std::size_t n) {
        void* p = nullptr;
        check(caching.DeviceAllocate(&p, n, plain[s].get()), "DeviceAllocate");
        return p;
      },
      [&](int, void* p, std::size_t) { check(caching.DeviceFree(p), "DeviceFree"); });
  auto const malloc_async = [&](int s, std::size_t n) {
    void* p = nullptr;
    check(cudaMallocAsync(&p, n, plain[s].get()), "cudaMallocAsync");
    return p;
  };
  auto const free_async = [&](int s, void* p, std::size_t) {
    check(cudaFreeAsync(p, plain[s].get()), "cudaFreeAsync");
  };
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
  std::uint64_t keep = ~std::uint64_t{0};
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  row("cudaMallocAsync, keeping all", malloc_async, free_async, 2000);
  row(
      "cudaMalloc",
      [](int, std::size_t n) {
        void* p = nullptr;
        check(cudaMalloc(&p, n), "cudaMalloc");
        return p;
      },
      [](int, void* p, std::size_t) { check(cudaFree(p), "cudaFree"); }, 200);
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
