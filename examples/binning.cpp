// A server with many small requests of all sizes and a few large ones: small ones are served from bins of blocks alike,
// medium ones from a pool with a limit of its own, and the large ones straight from the device.
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <cstdio>

using namespace weir::literals;

int main() {
  weir::bin const small(4_KiB);  // blocks of 4 KiB
  weir::bin const medium(64_KiB, weir::fixed_size{.block_bytes = 64_KiB, .blocks_per_chunk = 32});
  weir::bin const large(8_MiB, [](auto up) { return up | weir::pool{} | weir::limit{.max_bytes = 32_MiB}; });
  auto memory = weir::make(weir::device{} | weir::binning{.bins = {small, medium, large}});
  weir::stream const stream;

  bool right = true;
  for (std::size_t const bytes : {1_KiB, 5_KiB, 64_KiB, 100_KiB, 8_MiB, 20_MiB}) {
    void* const p = memory.allocate(stream, bytes);
    std::size_t const bin = memory.bin_of(bytes);
    if (bin < memory.bin_count())
      std::printf("%10s: the bin for up to %s\n", weir::format_bytes(bytes).c_str(),
                  weir::format_bytes(memory.bin_bytes(bin)).c_str());
    else
      std::printf("%10s: the device itself\n", weir::format_bytes(bytes).c_str());
    right = right && (bin == memory.bin_count() || bytes <= memory.bin_bytes(bin));
    memory.deallocate(stream, p, bytes);
  }
  std::printf("the bins hold %s\n", weir::format_bytes(memory.reserved()).c_str());

  memory.synchronize();
  memory.trim();
  return right && memory.reserved() == 0 ? 0 : 1;
}
