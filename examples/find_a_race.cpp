// Finds a race that no test run would show: a small cache of CUDA memory hands a block from one stream to another
// without waiting. It uses nothing of weir but the simulated runtime, so the same works for any project that manages
// CUDA memory.
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <cstdio>
#include <map>

namespace {

constexpr std::size_t block_bytes = 1 << 20;

/// Keeps blocks that were freed, and the event behind each; hands out the oldest that it has.
class cache {
 public:
  /// `waits`: does what it should.
  explicit cache(bool waits) : waits_(waits) {}
  ~cache() {
    cudaDeviceSynchronize();
    for (auto const& [p, freed] : free_) {
      cudaEventDestroy(freed);
      cudaFree(p);
    }
  }

  void* take(cudaStream_t stream) {
    void* p = nullptr;
    if (free_.empty()) {
      cudaMalloc(&p, block_bytes);
    } else {
      p = free_.begin()->first;
      if (waits_) cudaStreamWaitEvent(stream, free_.begin()->second, 0);
      cudaEventDestroy(free_.begin()->second);
      free_.erase(free_.begin());
    }
    blocks_.allocated(stream, p, block_bytes, 256);  // for the check: this stream has the block now
    return p;
  }

  void give(cudaStream_t stream, void* p) {
    blocks_.freed(stream, p, block_bytes,
                  256);  // for the check: its user is done with it, after the work queued so far
    cudaEvent_t freed = nullptr;
    cudaEventCreateWithFlags(&freed, cudaEventDisableTiming);
    cudaEventRecord(freed, stream);
    free_.emplace(p, freed);
  }

 private:
  bool waits_;
  std::map<void*, cudaEvent_t> free_;
  weir::sim::checked_blocks blocks_{"the cache"};
};

/// Two streams work with a block each, one after the other. Every call succeeds and every result is right.
std::uint64_t violations_with(bool cache_waits) {
  weir::sim::reset();
  weir::sim::check_order(true);
  cudaStream_t streams[2];
  for (cudaStream_t& s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  {
    cache memory(cache_waits);
    for (cudaStream_t const s : streams) {
      void* const p = memory.take(s);
      cudaMemsetAsync(p, 0, block_bytes, s);
      weir::sim::touch(s, p, block_bytes, weir::sim::access::write);  // stands for a kernel
      memory.give(s, p);
    }
  }
  for (cudaStream_t const s : streams) cudaStreamDestroy(s);
  for (auto const& violation : weir::sim::reports()) std::printf("  %s\n", violation.text.c_str());
  return weir::sim::report_count();
}

}  // namespace

int main() {
  std::puts("A cache that does not wait:");
  std::uint64_t const wrong = violations_with(false);
  std::puts("A cache that waits:");
  std::uint64_t const right = violations_with(true);
  std::printf("%llu violation, then %llu\n", static_cast<unsigned long long>(wrong),
              static_cast<unsigned long long>(right));
  return wrong == 1 && right == 0 ? 0 : 1;
}
