// A video filter keeps eight frames of one size in flight. Blocks of that size fit them without a byte between them,
// and after the first round no memory is asked for any more.
#include <weir/adaptors/fixed_size.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>

using namespace weir::literals;

int main() {
  constexpr std::size_t frame = std::size_t{1920} * 1080 * 3;  // 5.93 MiB
  auto memory = weir::make(weir::device{} | weir::fixed_size{.block_bytes = frame, .blocks_per_chunk = 8});
  weir::stream const stream;

  std::array<void*, 8> in_flight{};
  for (int number = 0; number < 100; ++number) {
    void*& slot = in_flight[static_cast<std::size_t>(number) % in_flight.size()];
    memory.deallocate(stream, slot, frame);  // after the stream's work on the frame that was here
    slot = memory.allocate(stream, frame);
    cudaMemsetAsync(slot, number, frame, stream.get());
  }
  for (void* slot : in_flight) memory.deallocate(stream, slot, frame);

  // Anything larger is a mistake, and is refused rather than served from two blocks.
  bool refused = false;
  try {
    memory.allocate(stream, frame + 1_KiB);
  } catch (weir::out_of_memory const& failure) {
    refused = true;
    std::printf("%s\n", failure.what());
  }

  auto const numbers = memory.numbers();
  std::printf("%llu frames from %llu chunk of %s; at most %s in use\n",
              static_cast<unsigned long long>(numbers.allocations), static_cast<unsigned long long>(numbers.growths),
              weir::format_bytes(numbers.reserved.current).c_str(), weir::format_bytes(numbers.allocated.peak).c_str());

  memory.synchronize();
  memory.trim();
  return refused && numbers.growths == 1 && memory.numbers().reserved.current == 0 ? 0 : 1;
}
