// Four workers share a budget that two of their batches fill. Nobody is refused: who finds it full waits until another
// one has freed its batch. A request that can never fit is refused when its time is over.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

using namespace weir::literals;

int main() {
  auto device = weir::make(weir::device{} | weir::pool{} | weir::limit{64_MiB});
  auto patient = weir::make(weir::share(device) | weir::wait_for_memory{600'000});

  std::atomic<int> batches{0};
  std::vector<std::thread> workers;
  workers.reserve(4);
  for (int w = 0; w < 4; ++w)
    workers.emplace_back([&] {
      weir::stream const stream;
      for (int i = 0; i < 25; ++i) {
        void* const batch = patient.allocate(stream, 30_MiB);
        cudaMemsetAsync(batch, i, 30_MiB, stream.get());  // or kernels
        stream.synchronize();
        patient.deallocate(stream, batch, 30_MiB);
        ++batches;
      }
    });
  for (std::thread& worker : workers) worker.join();
  std::printf("%d batches; %llu had to wait; %s of %s at most\n", batches.load(),
              static_cast<unsigned long long>(patient.numbers().rescued), weir::format_bytes(device.peak()).c_str(),
              weir::format_bytes(device.max_bytes()).c_str());

  auto hasty = weir::make(weir::share(device) | weir::wait_for_memory{.for_milliseconds = 10});
  bool refused = false;
  try {
    weir::stream const stream;
    hasty.deallocate(stream, hasty.allocate(stream, 100_MiB), 100_MiB);
  } catch (weir::out_of_memory const& failure) {
    std::printf("%s\n", failure.what());
    refused = true;
  }
  return batches == 100 && refused && patient.numbers().timed_out == 0 && device.used() == 0 ? 0 : 1;
}
