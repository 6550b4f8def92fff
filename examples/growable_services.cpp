// Two services whose pools grow in place on one set of chunks, each under a budget of its own, both under the device's.
// What one does not use the other has. For a batch that needs more than that, the chat model is parked: its memory goes
// to the training, and comes back with its contents, at the same addresses, when somebody asks the model again.
#include <weir/adaptors/limit.hpp>
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

/// Trains on a batch; false if there is no memory for it.
template <class Memory>
bool train(Memory& memory, weir::stream const& stream, std::size_t bytes) try {
  void* const batch = memory.allocate(stream, bytes);
  cudaMemsetAsync(batch, 1, bytes, stream.get());  // or kernels
  memory.deallocate(stream, batch, bytes);
  stream.synchronize();  // only memory whose work is done goes to another pool
  std::printf("trained on %s\n", weir::format_bytes(bytes).c_str());
  return true;
} catch (weir::out_of_memory const& failure) {
  std::printf("%s refused by %s\n", weir::format_bytes(bytes).c_str(), failure.refused_by());
  return false;
}

bool serve() {
  auto host = weir::make(weir::pinned{});
  auto device = weir::make(weir::virtual_memory{} | weir::limit{.max_bytes = 64_MiB, .name = "device"});
  auto chat =
      weir::make(weir::share(device) | weir::limit{.max_bytes = 24_MiB, .name = "chat"} | weir::pool{.name = "chat"});
  auto training = weir::make(weir::share(device) | weir::limit{.max_bytes = 56_MiB, .name = "training"} |
                             weir::pool{.name = "training"});
  weir::stream const stream;

  auto* const weights = static_cast<unsigned char*>(chat.allocate(stream, 20_MiB));
  cudaMemsetAsync(weights, 42, 20_MiB, stream.get());
  bool const small = train(training, stream, 40_MiB);     // 60 of the device's 64 MiB
  bool const over_own = train(training, stream, 60_MiB);  // more than its own 56 MiB
  bool const over_all = train(training, stream, 48_MiB);  // less, but with the weights more than the device's 64 MiB

  stream.synchronize();          // all work on the weights is done
  chat.park(weir::share(host));  // nobody chats at night
  bool const charged_nothing = chat.upstream().used() == 0;
  bool const at_night = train(training, stream, 48_MiB);
  chat.unpark();  // takes what the training holds and does not use

  unsigned char last = 0;
  cudaMemcpyAsync(&last, weights + 20_MiB - 1, 1, cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  std::printf("unparked: chat holds %s, training %s, the weights end with %d\n",
              weir::format_bytes(chat.numbers().reserved.current).c_str(),
              weir::format_bytes(training.numbers().reserved.current).c_str(), last);
  chat.deallocate(stream, weights, 20_MiB);
  bool const in_bounds =
      device.peak() <= 64_MiB && chat.upstream().peak() <= 24_MiB && training.upstream().peak() <= 56_MiB;
  return small && !over_own && !over_all && charged_nothing && at_night && last == 42 && in_bounds;
}

}  // namespace

int main() try {
  try {
    static_cast<void>(weir::make(weir::virtual_memory{}));
  } catch (std::invalid_argument const& cannot) {  // a virtual GPU, for one
    std::printf("This device has no memory that is mapped in chunks. %s\n", cannot.what());
    return 0;
  }
  return serve() ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
