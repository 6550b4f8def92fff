// Ten layers of a model in memory for four: the weights of those that wait their turn go to the host, and come back
// when they are used. No call here waits for a copy.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

using namespace weir::literals;

int main() try {
  auto host = weir::make(weir::pinned{} | weir::pool{});
  auto memory = weir::make(weir::device{} | weir::pool{.initial_bytes = 16_MiB, .max_bytes = 16_MiB} |
                           weir::spill{.to = weir::share(host)});
  weir::stream const stream;
  std::size_t const count = 1_MiB;  // weights of a layer, 4 MiB

  std::vector<weir::spillable<float>> layers;
  for (int i = 0; i < 10; ++i) {
    layers.emplace_back(memory, stream, count);
    auto const weights = layers.back().pin(stream);  // data() is valid on the stream while this lives
    cudaMemsetAsync(weights.data(), i, count * sizeof(float), stream.get());
  }

  std::vector<unsigned char> seen(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    auto const weights = layers[i].pin(stream);
    // A kernel would use them here. A plain allocation beside them spills what is not pinned, too.
    void* const scratch = memory.allocate(stream, 6_MiB);
    cudaMemcpyAsync(&seen[i], weights.data(), 1, cudaMemcpyDefault, stream.get());
    memory.deallocate(stream, scratch, 6_MiB);
  }
  stream.synchronize();

  auto const numbers = memory.numbers();
  std::printf("%zu handles: %s on the device, %s on the host; %llu spills, %llu returns, %s copied\n", numbers.handles,
              weir::format_bytes(numbers.device_bytes).c_str(), weir::format_bytes(numbers.host_bytes).c_str(),
              static_cast<unsigned long long>(numbers.spills), static_cast<unsigned long long>(numbers.returns),
              weir::format_bytes(numbers.moved_bytes).c_str());

  bool right = numbers.spills != 0;
  for (std::size_t i = 0; i < seen.size(); ++i) right = right && seen[i] == i;

  // What is pinned stays: a request that would need it is refused, and says so.
  auto const first = layers[0].pin(stream), second = layers[1].pin(stream);
  try {
    memory.deallocate(stream, memory.allocate(stream, 12_MiB), 12_MiB);
    right = false;
  } catch (weir::out_of_memory const& failure) {
    std::printf("%s\n", failure.what());
  }
  return right ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
