// The pool's promise with real kernels: memory that one stream still writes to is not another's yet.
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "kernels.cuh"

namespace {

using namespace weir::literals;
using weir::detail::check;
using weir::test::blocks, weir::test::threads, weir::test::write_late, weir::test::count_others;

/// Two streams hand one block to and fro; each writes slowly, lets go at once, and the next checks what it wrote
/// itself.
template <class Memory>
void hand_over(Memory& memory, std::size_t bytes) {
  weir::stream const streams[2];
  std::size_t const n = bytes / sizeof(int);
  auto* const others = static_cast<unsigned long long*>(memory.allocate(weir::host_order, 8, 8));
  check(cudaMemset(others, 0, 8), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  for (int turn = 0; turn < 20; ++turn) {
    auto const& stream = streams[turn % 2];
    auto* const p = static_cast<int*>(memory.allocate(stream, bytes, 256));
    // Even turns are slow, so that an odd turn that did not wait would be done long before.
    write_late<<<blocks, threads, 0, stream.get()>>>(p, n, turn, turn % 2 == 0 ? 20'000'000 : 0);
    count_others<<<blocks, threads, 0, stream.get()>>>(p, n, turn, others);
    if (turn % 2 == 1) {  // the slow one's writes, had they come after ours, would be found now
      write_late<<<1, 1, 0, stream.get()>>>(p, 0, 0, 40'000'000);
      count_others<<<blocks, threads, 0, stream.get()>>>(p, n, turn, others);
    }
    check(cudaGetLastError(), "kernel launch");
    memory.deallocate(stream, p, bytes, 256);
  }
  unsigned long long found = 0;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(&found, others, 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
  memory.deallocate(weir::host_order, others, 8, 8);
  CHECK(found == 0);
}

}  // namespace

TEST_CASE("a block passes between streams in order, when the pool has room to grow") {
  auto memory = weir::make(weir::async{} | weir::pool{.initial_bytes = 64_MiB});
  hand_over(memory, 48_MiB);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("a block passes between streams in order, when the pool must wait for it") {
  auto memory = weir::make(weir::async{} | weir::pool{.initial_bytes = 64_MiB, .max_bytes = 64_MiB});
  hand_over(memory, 48_MiB);
  CHECK(memory.numbers().reserved.peak <= 64_MiB);
}

TEST_CASE("a block passes between streams in order, when one stream is made to wait for the other") {
  auto memory = weir::make(
      weir::device{} | weir::pool{.initial_bytes = 64_MiB, .max_bytes = 64_MiB, .pending = weir::when_pending::wait});
  hand_over(memory, 48_MiB);
  CHECK(memory.numbers().waits > 0);
}

TEST_CASE("a stream reuses its own memory at once") {
  auto memory = weir::make(weir::device{} | weir::pool{.initial_bytes = 64_MiB});
  weir::stream const stream;
  void* const first = memory.allocate(stream, 48_MiB);
  write_late<<<blocks, threads, 0, stream.get()>>>(static_cast<int*>(first), 48_MiB / sizeof(int), 1, 20'000'000);
  memory.deallocate(stream, first, 48_MiB);
  void* const second = memory.allocate(stream, 48_MiB);
  CHECK(second == first);
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);  // without waiting
  memory.deallocate(stream, second, 48_MiB);
  stream.synchronize();
}
