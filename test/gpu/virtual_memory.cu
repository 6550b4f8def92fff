// The driver's virtual memory with real kernels: what is mapped can be used, aliases show the same bytes to work that
// is ordered, nothing moves under a kernel that runs, and what each call costs on this device.
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/event.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "kernels.cuh"

namespace {

using namespace weir::literals;
using weir::detail::check;
using weir::detail::driver;
using weir::test::blocks, weir::test::threads, weir::test::write_late, weir::test::count_others;

constexpr long long slow = 100'000'000;  // cycles: some tens of milliseconds

/// Counts, in a stream's order, elements that are not as they should be.
class counter {
 public:
  counter() {
    check(cudaMalloc(&others_, sizeof *others_), "cudaMalloc");
    check(cudaMemset(others_, 0, sizeof *others_), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~counter() { cudaFree(others_); }
  void expect(weir::stream const& stream, void const* p, std::size_t bytes, int value) {
    count_others<<<blocks, threads, 0, stream.get()>>>(static_cast<int const*>(p), bytes / sizeof(int), value, others_);
    check(cudaGetLastError(), "kernel launch");
  }
  unsigned long long others(weir::stream const& stream) const {
    unsigned long long count = 0;
    check(cudaMemcpyAsync(&count, others_, sizeof count, cudaMemcpyDeviceToHost, stream.get()), "cudaMemcpyAsync");
    stream.synchronize();
    return count;
  }

 private:
  unsigned long long* others_ = nullptr;
};

void write(weir::stream const& stream, void* p, std::size_t bytes, int value, long long cycles = 0) {
  write_late<<<blocks, threads, 0, stream.get()>>>(static_cast<int*>(p), bytes / sizeof(int), value, cycles);
}

bool is_busy(weir::stream const& stream) { return cudaStreamQuery(stream.get()) == cudaErrorNotReady; }

/// A source and a range of it. Where the device has no virtual memory, each test ends with the reason.
struct range_on_gpu {
  weir::virtual_memory_resource memory = weir::make(weir::virtual_memory{});
  weir::address_range const range = memory.reserve_range(4_GiB);
  ~range_on_gpu() { memory.release_range(range); }
  std::byte* at(std::size_t bytes) const { return static_cast<std::byte*>(range.begin) + bytes; }
};

/// The median of `times` calls of `f`, in microseconds.
template <class F>
double microseconds(int times, F f) {
  std::vector<double> each;
  for (int i = 0; i < times; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    f(i);
    each.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(each.begin(), each.begin() + times / 2, each.end());
  return each[static_cast<std::size_t>(times) / 2];
}

void say(char const* what, double number, char const* unit) { std::printf("%-56s %10.1f %s\n", what, number, unit); }

}  // namespace

TEST_CASE("mapped chunks can be used, and hold what was written across unmaps of others") {
  range_on_gpu gpu;
  weir::stream const stream;
  counter found;
  REQUIRE(gpu.memory.map(gpu.at(0), 64_MiB));
  write(stream, gpu.at(0), 64_MiB, 1);
  stream.synchronize();
  CHECK(gpu.memory.unmap(gpu.at(16_MiB), 16_MiB));
  REQUIRE(gpu.memory.map(gpu.at(64_MiB), 16_MiB));  // the same chunks at another place
  found.expect(stream, gpu.at(0), 16_MiB, 1);
  found.expect(stream, gpu.at(32_MiB), 48_MiB, 1);  // what was unmapped and mapped holds its bytes, too
  CHECK(found.others(stream) == 0);
  CHECK(gpu.memory.numbers().reserved.current == 64_MiB);
}

TEST_CASE("a chunk that is still written to can be shown elsewhere; work that is ordered after that sees it there") {
  range_on_gpu gpu;
  weir::stream const stream, other;
  counter found;
  REQUIRE(gpu.memory.map(gpu.at(0), 32_MiB));
  for (int turn = 0; turn < 10; ++turn) {
    int const value = 10 * turn;
    write(stream, gpu.at(0), 32_MiB, value + 1, slow / 4);
    REQUIRE(gpu.memory.alias(gpu.at(1_GiB), gpu.at(0), 32_MiB));
    found.expect(stream, gpu.at(1_GiB), 32_MiB, value + 1);  // the same stream
    write(stream, gpu.at(1_GiB), 32_MiB, value + 2);
    weir::event done;
    done.record(stream);
    done.hold_back(other);
    found.expect(other, gpu.at(0), 32_MiB, value + 2);  // another stream, and the first view
    found.expect(other, gpu.at(1_GiB), 32_MiB, value + 2);
    CHECK(found.others(other) == 0);
    CHECK(gpu.memory.unmap(gpu.at(1_GiB), 32_MiB));  // after the work on it, as a pool does
  }
}

TEST_CASE("a thread that has not called CUDA yet can map") {
  range_on_gpu gpu;
  std::thread([&] {
    CHECK(gpu.memory.map(gpu.at(0), 4_MiB));
    CHECK(gpu.memory.alias(gpu.at(8_MiB), gpu.at(0), 4_MiB));
    CHECK(gpu.memory.unmap(gpu.at(0), 4_MiB));
  }).join();
  weir::stream const stream;
  counter found;
  write(stream, gpu.at(8_MiB), 4_MiB, 5);
  found.expect(stream, gpu.at(8_MiB), 4_MiB, 5);
  CHECK(found.others(stream) == 0);
}

TEST_CASE("memory that is mapped counts as taken when it is created, and as free when it is trimmed") {
  range_on_gpu gpu;
  auto const free_bytes = [&] { return weir::memory_info(gpu.memory.device()).free_bytes; };
  std::size_t const before = free_bytes();
  REQUIRE(gpu.memory.map(gpu.at(0), 256_MiB));
  CHECK(free_bytes() + 200_MiB < before);  // others may use the device, too
  CHECK(gpu.memory.unmap(gpu.at(0), 256_MiB));
  CHECK(gpu.memory.trim() == 256_MiB);
  CHECK(free_bytes() + 200_MiB > before);
}

TEST_CASE("a graph replays on addresses whose neighbours come and go") {
  range_on_gpu gpu;
  weir::stream const stream;
  counter found;
  REQUIRE(gpu.memory.map(gpu.at(0), 8_MiB));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runs = nullptr;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  write(stream, gpu.at(0), 8_MiB, 3);
  CHECK(gpu.memory.map(gpu.at(32_MiB), 8_MiB));  // breaks no capture
  check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&runs, graph, 0), "cudaGraphInstantiate");
  CHECK(gpu.memory.unmap(gpu.at(32_MiB), 8_MiB));
  check(cudaGraphLaunch(runs, stream.get()), "cudaGraphLaunch");
  found.expect(stream, gpu.at(0), 8_MiB, 3);
  CHECK(found.others(stream) == 0);
  check(cudaGraphExecDestroy(runs), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("what each call costs here, and which of them wait for a kernel that runs") {
  constexpr int n = 200;
  range_on_gpu gpu;
  auto const& cu = driver();
  std::size_t const chunk = gpu.memory.chunk_bytes();
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = gpu.memory.device();
  CUmemAccessDesc const access{kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  auto const begin = reinterpret_cast<CUdeviceptr>(gpu.range.begin);
  auto const place = [&](int i) { return begin + static_cast<std::size_t>(i) * chunk; };
  std::vector<CUmemGenericAllocationHandle> handles(n);

  say("cuMemCreate of 2 MiB",
      microseconds(n, [&](int i) { check(cu.cuMemCreate(&handles[i], chunk, &kind, 0), "create"); }), "us");
  say("cuMemMap", microseconds(n, [&](int i) { check(cu.cuMemMap(place(i), chunk, 0, handles[i], 0), "map"); }), "us");
  say("cuMemSetAccess, a chunk a call",
      microseconds(n, [&](int i) { check(cu.cuMemSetAccess(place(i), chunk, &access, 1), "access"); }), "us");
  say("cuMemUnmap", microseconds(n, [&](int i) { check(cu.cuMemUnmap(place(i), chunk), "unmap"); }), "us");
  for (int i = 0; i < n; ++i) check(cu.cuMemMap(place(i), chunk, 0, handles[i], 0), "map");
  say("cuMemSetAccess, 200 chunks in one call",
      microseconds(1, [&](int) { check(cu.cuMemSetAccess(begin, n * chunk, &access, 1), "access"); }), "us");

  // Each call beside a kernel: did it wait for that?
  weir::stream const stream;
  auto const beside = [&](char const* what, auto call) {
    stream.synchronize();
    write(stream, gpu.at(0), 0, 0, slow);
    call();
    std::printf("%-56s %10s\n", what, is_busy(stream) ? "no" : "yes");
    stream.synchronize();
  };
  beside("cuMemCreate waits for a kernel that runs", [&] {
    CUmemGenericAllocationHandle more = 0;
    check(cu.cuMemCreate(&more, chunk, &kind, 0), "create");
    check(cu.cuMemRelease(more), "release");
  });
  beside("cuMemUnmap waits for a kernel that runs", [&] { check(cu.cuMemUnmap(place(0), chunk), "unmap"); });
  beside("cuMemMap waits for a kernel that runs",
         [&] { check(cu.cuMemMap(place(0), chunk, 0, handles[0], 0), "map"); });
  beside("cuMemSetAccess waits for a kernel that runs",
         [&] { check(cu.cuMemSetAccess(place(0), chunk, &access, 1), "access"); });

  for (int i = 0; i < n; ++i) check(cu.cuMemUnmap(place(i), chunk), "unmap");
  say("cuMemRelease", microseconds(n, [&](int i) { check(cu.cuMemRelease(handles[i]), "release"); }), "us");

  REQUIRE(gpu.memory.map(gpu.at(0), 64_MiB));
  say("virtual_memory: unmap and map 64 MiB",
      microseconds(20,
                   [&](int) {
                     gpu.memory.unmap(gpu.at(0), 64_MiB);
                     gpu.memory.map(gpu.at(0), 64_MiB);
                   }),
      "us");
  CHECK(gpu.memory.numbers().allocated.current == 64_MiB);
}
