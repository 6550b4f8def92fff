// A table in managed memory that is written on the device first: it is brought there when it is allocated, so that the
// first kernel does not stop at each of its pages. The pool below keeps the memory; its segments are advised once.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/managed.hpp>

#include <cstdio>

using namespace weir::literals;

int main() {
  auto memory =
      weir::make(weir::managed{} | weir::prefetch{.preferred_location = true} | weir::pool{} | weir::prefetch{});
  weir::stream const stream;

  constexpr std::size_t size = 8_MiB;
  auto* const table = static_cast<unsigned char*>(memory.allocate(stream, size));
  bool right = cudaMemsetAsync(table, 1, size, stream.get()) == cudaSuccess;  // stands for the first kernel
  stream.synchronize();
  unsigned long sum = 0;
  for (std::size_t i = 0; i < size; i += 4096) sum += table[i];  // the host reads the same addresses
  right = right && sum == size / 4096;

  // Hints are never errors: a device that cannot take them says so here.
  weir::prefetch_numbers const blocks = memory.hints();
  std::printf("sum %lu; %llu prefetch of a block, refused %llu\n", sum, static_cast<unsigned long long>(blocks.hints),
              static_cast<unsigned long long>(blocks.refused));
  memory.deallocate(stream, table, size);
  stream.synchronize();
  return right && blocks.hints == 1 ? 0 : 1;
}
