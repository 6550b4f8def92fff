// A job whose working set is usually small runs on device memory. Now and then it is not: what does not fit is served
// by managed memory, slower but right, and the numbers say how much that was.
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/managed.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

using namespace weir::literals;

int main() {
  auto memory = weir::make(weir::device{} | weir::pool{.initial_bytes = 32_MiB, .max_bytes = 32_MiB} |
                           weir::fallback{weir::managed{} | weir::pool{}});
  weir::stream const stream;

  bool right = true;
  for (std::size_t const blocks : {4u, 6u, 12u, 5u}) {
    std::vector<void*> working_set;
    for (std::size_t i = 0; i < blocks; ++i) {
      working_set.push_back(memory.allocate(stream, 4_MiB));
      cudaMemsetAsync(working_set.back(), 0, 4_MiB, stream.get());  // or a kernel: both kinds are for the device
    }
    weir::fallback_numbers const now = memory.numbers();
    std::printf("%2zu blocks of 4 MiB: %s in managed memory\n", blocks,
                weir::format_bytes(now.second_live_bytes).c_str());
    right = right && now.second_live_bytes == (blocks > 8 ? (blocks - 8) * 4_MiB : 0);
    for (void* const block : working_set) memory.deallocate(stream, block, 4_MiB);
  }
  stream.synchronize();
  std::printf("%s", weir::report_of(memory).lines().c_str());
  return right && memory.numbers().second_live == 0 ? 0 : 1;
}
