// Device memory in chunks that are mapped where they are needed: a pool that serves what fits in no free piece, two
// pools on one set of chunks, and a pool whose memory goes to others for a while and comes back with its contents.
#include <weir/adaptors/pool.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>

using namespace weir::literals;

namespace {

// Five blocks fill 10 MiB. Three of them are freed, no two of these side by side, and 6 MiB are asked for.
bool grows_in_place() {
  auto memory = weir::make(weir::virtual_memory{.max_bytes = 10_MiB} | weir::pool{});
  weir::stream const stream;
  void* blocks[5];
  for (void*& p : blocks) p = memory.allocate(stream, 2_MiB);
  for (int i : {0, 2, 4}) memory.deallocate(stream, blocks[i], 2_MiB);

  void* const large = memory.allocate(stream, 6_MiB);  // in one piece: idle chunks are now behind other addresses
  cudaMemsetAsync(large, 0, 6_MiB, stream.get());
  weir::pool_numbers const n = memory.numbers();
  std::printf("grows in place: %s held for %s, %s moved\n", weir::format_bytes(n.reserved.current).c_str(),
              weir::format_bytes(n.requested.current).c_str(), weir::format_bytes(n.moved).c_str());

  memory.deallocate(stream, large, 6_MiB);
  for (int i : {1, 3}) memory.deallocate(stream, blocks[i], 2_MiB);
  return n.reserved.peak == 10_MiB && n.moved >= 4_MiB;
}

// One set of chunks for two pools; `search` is promised 8 MiB of it.
bool shares_chunks() {
  auto pages = weir::make(weir::virtual_memory{.max_bytes = 32_MiB});
  auto search = weir::make(weir::share(pages) | weir::pool{.min_bytes = 8_MiB, .name = "search"});
  auto training = weir::make(weir::share(pages) | weir::pool{.name = "training"});
  weir::stream const stream;

  void* const batch = training.allocate(stream, 24_MiB);  // all that is not promised to search
  bool refused = false;
  try {
    training.allocate(stream, 2_MiB);
  } catch (weir::out_of_memory const& failure) {
    refused = true;
    std::printf("\n%s\n", failure.what());
  }
  void* const index = search.allocate(stream, 8_MiB);

  training.deallocate(stream, batch, 24_MiB);
  stream.synchronize();                                  // only memory whose work is done goes to another pool
  void* const larger = search.allocate(stream, 20_MiB);  // of what training does not use any more
  std::printf("shared: search holds %s, training %s\n\n", weir::format_bytes(search.numbers().reserved.current).c_str(),
              weir::format_bytes(training.numbers().reserved.current).c_str());
  bool const right = refused && search.numbers().reserved.current == 28_MiB;

  search.deallocate(stream, larger, 20_MiB);
  search.deallocate(stream, index, 8_MiB);
  return right;
}

// A model that nobody asks for leaves the device to others, and is there again when somebody does.
bool parks() {
  auto host = weir::make(weir::pinned{});
  auto pages = weir::make(weir::virtual_memory{});
  auto model = weir::make(weir::share(pages) | weir::pool{});
  weir::stream const stream;
  auto* const weights = static_cast<unsigned char*>(model.allocate(stream, 6_MiB));
  cudaMemsetAsync(weights, 42, 6_MiB, stream.get());

  stream.synchronize();           // park does not know what still uses live memory; its caller does
  model.park(weir::share(host));  // model.park(weir::drop_contents) would keep the addresses alone
  std::size_t const left = pages.numbers().reserved.current;
  std::printf("parked: %s on the device, %s to come back\n", weir::format_bytes(left).c_str(),
              weir::format_bytes(model.numbers().parked).c_str());

  model.unpark();
  unsigned char ends[2] = {};
  cudaMemcpyAsync(&ends[0], weights, 1, cudaMemcpyDeviceToHost, stream.get());
  cudaMemcpyAsync(&ends[1], weights + 6_MiB - 1, 1, cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  std::printf("unparked: %s on the device, the weights begin with %d and end with %d\n",
              weir::format_bytes(pages.numbers().reserved.current).c_str(), ends[0], ends[1]);

  model.deallocate(stream, weights, 6_MiB);
  return left == 0 && ends[0] == 42 && ends[1] == 42;
}

}  // namespace

int main() try {
  try {
    static_cast<void>(weir::make(weir::virtual_memory{}));
  } catch (std::invalid_argument const& cannot) {  // a virtual GPU, for one
    std::printf("This device has no memory that is mapped in chunks. %s\n", cannot.what());
    return 0;
  }
  bool const grew = grows_in_place(), shared = shares_chunks(), parked = parks();
  return grew && shared && parked ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
