// Memory from somebody else's allocator: two functions make it a source, and all of weir stands on it. Here the other
// one is a library with a C interface that works in stream order, and a table of the host's that knows no streams.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/callback.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

using namespace weir::literals;

namespace {

/// As a library offers it: null where there is no memory. It aligns to 256, as CUDA does.
extern "C" void* their_malloc(std::size_t bytes, cudaStream_t stream) {
  void* p = nullptr;
  if (cudaMallocAsync(&p, bytes, stream) == cudaSuccess) return p;
  static_cast<void>(cudaGetLastError());  // weir leaves no error behind, and neither may what it calls
  return nullptr;
}
extern "C" void their_free(void* p, cudaStream_t stream) { cudaFreeAsync(p, stream); }

}  // namespace

int main() {
  auto device = weir::make(
      weir::callback{
          .allocate = [](weir::stream_ref stream, std::size_t bytes, std::size_t alignment) -> void* {
            if (alignment > 256) throw std::bad_alloc();  // more than they can do: refused, not ignored
            return their_malloc(bytes, stream.get());
          },
          .deallocate = [](weir::stream_ref stream, void* p, std::size_t, std::size_t) { their_free(p, stream.get()); },
          .name = "theirs"} |
      weir::pool{.growth_bytes = 8_MiB} | weir::statistics{});
  weir::stream const stream;
  void* const p = device.allocate(stream, 3_MiB);
  cudaMemsetAsync(p, 0, 3_MiB, stream.get());
  device.deallocate(stream, p, 3_MiB);
  stream.synchronize();
  std::printf("%s\n", weir::report_of(device).lines().c_str());

  std::size_t live = 0;
  {
    // Functions that know no streams: a free waits for the stream's work, and then they are called.
    auto host = weir::make(weir::host_callback{
        .allocate = [&live](weir::stream_ref, std::size_t bytes, std::size_t alignment) -> void* {
          void* const block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
          live += block != nullptr;
          return block;
        },
        .deallocate =
            [&live](weir::stream_ref, void* block, std::size_t, std::size_t) {
              --live;
              std::free(block);
            }});
    void* const table = host.allocate(weir::host_order, 1000);
    std::printf("%zu block of the host's is live\n", live);
    host.deallocate(weir::host_order, table, 1000);
  }
  bool const right = live == 0 && device.numbers().requested.peak == 3 << 20 &&
                     weir::report_of(device).chain() == "statistics > pool > theirs: callback";
  return right ? 0 : 1;
}
