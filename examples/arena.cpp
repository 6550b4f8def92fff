// Four threads allocate at once, each on a stream of its own, and hand results to the main thread, which frees them.
// Each has a pool to itself; nothing is lost when they end, and the next four go on with their memory.
#include <weir/adaptors/arena.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <barrier>
#include <cstdio>
#include <thread>
#include <vector>

using namespace weir::literals;

int main() {
  auto memory = weir::make(weir::device{} | weir::arena{.max_bytes = 256_MiB});
  weir::stream const collect;

  for (int generation = 0; generation < 3; ++generation) {
    std::vector<void*> results(4);
    std::barrier all_here(4);
    std::vector<std::thread> threads;
    threads.reserve(results.size());
    for (void*& result : results)
      threads.emplace_back([&memory, &result, &all_here] {
        weir::stream const stream;
        for (int step = 0; step < 1000; ++step) {
          void* const scratch = memory.allocate(stream, 1_MiB);
          memory.deallocate(stream, scratch, 1_MiB);
        }
        result = memory.allocate(stream, 2_MiB);
        all_here.arrive_and_wait();  // so that all four live at once
        stream.synchronize();
      });
    for (auto& thread : threads) thread.join();
    for (void* result : results) memory.deallocate(collect, result, 2_MiB);  // each goes home to its arena
  }

  // One large request may have what all of them held.
  void* const all = memory.allocate(collect, 256_MiB);
  memory.deallocate(collect, all, 256_MiB);

  auto const numbers = memory.numbers();
  std::printf("%llu allocations by 12 threads in %zu arenas; at most %s of %s held\n",
              static_cast<unsigned long long>(numbers.allocations), memory.arenas(),
              weir::format_bytes(numbers.reserved.peak).c_str(), weir::format_bytes(256_MiB).c_str());

  memory.synchronize();
  memory.trim();
  return memory.arenas() == 4 && numbers.reserved.peak <= 256_MiB && memory.numbers().reserved.current == 0 ? 0 : 1;
}
