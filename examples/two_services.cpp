// Two services on one device that has too little memory for both at their peaks. Each has a budget; the search service
// has a part of the device guaranteed, and a cache that it gives up when its own budget is full; who finds the device
// full waits for the other one's frees. Neither is refused anything, and both finish.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

using namespace weir::literals;

namespace {

/// Results of 1 MiB, whose work is done.
template <class Memory>
class result_cache {
 public:
  explicit result_cache(Memory& memory) : memory_(memory) {}
  ~result_cache() { evict(~std::size_t{0}, weir::stream_ref()); }

  void add(void* result) {
    std::lock_guard const lock(mutex_);
    results_.push_back(result);
  }
  std::size_t evict(std::size_t bytes, weir::stream_ref stream) {
    std::lock_guard const lock(mutex_);
    std::size_t gone = 0;
    for (; gone < bytes && !results_.empty(); results_.pop_back(), gone += 1_MiB)
      memory_.deallocate(stream, results_.back(), 1_MiB);
    return gone;
  }

 private:
  Memory& memory_;
  std::mutex mutex_;
  std::vector<void*> results_;
};

/// Allocates a batch, works on it, frees it.
template <class Memory>
void work_on_batch(Memory& memory, weir::stream const& stream, std::size_t bytes) {
  void* const batch = memory.allocate(stream, bytes);
  cudaMemsetAsync(batch, 0, bytes, stream.get());  // or kernels
  stream.synchronize();
  memory.deallocate(stream, batch, bytes);
}

}  // namespace

int main() try {
  constexpr int batches = 60;
  auto device = weir::make(weir::async{} | weir::pool{} | weir::limit{.max_bytes = 64_MiB, .name = "device"} |
                           weir::wait_for_memory{.for_milliseconds = 600'000});

  auto search_budget =
      weir::make(weir::share(device) | weir::limit{.max_bytes = 44_MiB, .name = "search", .reserve_bytes = 24_MiB});
  result_cache results(search_budget);
  auto search = weir::make(weir::share(search_budget) |
                           weir::on_failure{{{"results", [&results](weir::memory_request const& missing) {
                                                return results.evict(missing.bytes, missing.stream);
                                              }}}});

  auto images = weir::make(weir::share(device) | weir::limit{.max_bytes = 40_MiB, .name = "images"});

  std::atomic<int> searched{0}, resized{0};
  auto const answer_queries = [&] {
    weir::stream const stream;
    for (int i = 0; i < batches; ++i, ++searched) {
      work_on_batch(search, stream, 12_MiB);
      results.add(search.allocate(stream, 1_MiB));
    }
  };
  auto const resize_images = [&] {
    weir::stream const stream;
    for (int i = 0; i < batches; ++i, ++resized) work_on_batch(images, stream, 16_MiB);
  };
  std::vector<std::thread> workers;
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back(answer_queries);
    workers.emplace_back(resize_images);
  }
  for (std::thread& worker : workers) worker.join();

  std::printf("%d searches and %d batches of images\n%s%s", searched.load(), resized.load(),
              weir::report_of(search).lines().c_str(), weir::report_of(images).lines().c_str());
  bool const finished = searched == 2 * batches && resized == 2 * batches;
  bool const in_bounds = device.upstream().peak() <= 64_MiB && search_budget.peak() <= 44_MiB;
  bool const nothing_refused = search.numbers().refused == 0 && device.numbers().timed_out == 0;
  return finished && in_bounds && nothing_refused && search.numbers().rescued > 0 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
