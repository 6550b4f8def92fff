// A pool, step by step: what is used again and when, what it holds, how it says no, and how memory goes back.
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <cstdio>

using namespace weir::literals;

int main() {
  auto memory = weir::make(weir::device{} | weir::pool{.initial_bytes = 32_MiB, .max_bytes = 64_MiB});
  auto const show = [&](char const* when) {
    weir::pool_numbers const n = memory.numbers();
    std::printf("%-12s %s reserved = %s allocated + %s free + %s pending\n", when,
                weir::format_bytes(n.reserved.current).c_str(), weir::format_bytes(n.allocated.current).c_str(),
                weir::format_bytes(n.free).c_str(), weir::format_bytes(n.pending).c_str());
  };
  weir::stream const compute, copy;
  show("at first:");

  void* const weights = memory.allocate(compute, 20_MiB);
  void* const batch = memory.allocate(compute, 8_MiB);
  cudaMemsetAsync(batch, 0, 8_MiB, compute.get());
  memory.deallocate(compute, batch, 8_MiB);            // does not wait: the memset may still be running
  void* const next = memory.allocate(compute, 8_MiB);  // the same bytes: what comes next on the stream comes after it
  void* const staging = memory.allocate(copy, 8_MiB);  // not there any more, so the pool grows
  show("working:");

  bool refused = false;
  try {
    memory.allocate(compute, 48_MiB);
  } catch (weir::out_of_memory const& failure) {
    refused = true;
    std::printf("\n%s\n\n", failure.what());
  }

  memory.deallocate(compute, next, 8_MiB);
  memory.deallocate(compute, weights, 20_MiB);
  memory.deallocate(copy, staging, 8_MiB);
  memory.synchronize();
  show("all freed:");
  memory.trim();
  show("trimmed:");
  return next == batch && refused && memory.numbers().reserved.current == 0 ? 0 : 1;
}
