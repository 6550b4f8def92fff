// Memory that several streams use: two of them read what a third has made, and it goes back to the pool at once, though
// all are still at work. Nobody waits for anybody, and the memory is used again when the last of them is done.

#include <weir/weir.hpp>

#include <cassert>
#include <cstdio>
#include <vector>

using namespace weir::literals;

int main() {
  auto device = weir::make(weir::async{} | weir::pool{.initial_bytes = 64_MiB} | weir::statistics{});
  auto pinned = weir::make(weir::pinned{} | weir::pool{});
  weir::stream const compute, check, download;
  weir::event ready;

  void* const batch = device.allocate(compute, 8_MiB);
  void* const scratch = device.allocate(check, 8_MiB);
  void* const result = pinned.allocate(download, 8_MiB);
  cudaMemsetAsync(batch, 1, 8_MiB, compute.get());
  ready.record(compute);
  ready.hold_back(check);
  ready.hold_back(download);
  cudaMemcpyAsync(scratch, batch, 8_MiB, cudaMemcpyDeviceToDevice, check.get());
  cudaMemcpyAsync(result, batch, 8_MiB, cudaMemcpyDeviceToHost, download.get());

  // `compute` does not come after the two: `deallocate` would let it write into what they read.
  device.deallocate_after(compute, batch, 8_MiB, {check, download});
  void* const next = device.allocate(compute, 8_MiB);  // other memory, unless both are done already
  cudaMemsetAsync(next, 2, 8_MiB, compute.get());

  download.synchronize();
  unsigned char const* const bytes = static_cast<unsigned char const*>(result);
  assert(bytes[0] == 1 && bytes[8_MiB - 1] == 1);
  std::printf("the batch arrived: %d; in use: %s\n", bytes[0],
              weir::format_bytes(static_cast<std::size_t>(device.numbers().requested.current)).c_str());

  device.deallocate(compute, next, 8_MiB);
  device.deallocate(check, scratch, 8_MiB);
  pinned.deallocate(download, result, 8_MiB);
  weir::synchronize(device);
  assert(weir::numbers(device)[1].pending == 0);
  return 0;
}
