// Proves that a memory pool keeps stream order, or shows where it does not. The pool is somebody's own, a `cuda::mr`
// resource that knows nothing of weir: `from_cuda_mr` makes it the bottom of a stack, and `checked` shows its blocks to
// the simulated runtime. The same works for RMM's resources, and for a pool of yours.
#include <weir/bridges/cuda_mr.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/testing/checked.hpp>

#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <new>

namespace somebody {

using weir::detail::check;

/// Keeps freed blocks by size and hands them out again. It records an event with each free, and a
/// stream that gets the block waits for that, if it is the one that `waits`.
class pool {
 public:
  explicit pool(bool waits) : waits_(waits) {}

  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t /*alignment*/) {
    if (auto const found = kept_->blocks.find(bytes); found != kept_->blocks.end()) {
      freed const block = found->second;
      kept_->blocks.erase(found);
      if (waits_) check(cudaStreamWaitEvent(stream.get(), block.when, 0), "cudaStreamWaitEvent");
      check(cudaEventDestroy(block.when), "cudaEventDestroy");
      return block.p;
    }
    void* p = nullptr;
    if (cudaMalloc(&p, bytes) != cudaSuccess) throw std::bad_alloc();
    return p;
  }
  void deallocate(cuda::stream_ref stream, void* p, std::size_t bytes, std::size_t /*alignment*/) noexcept {
    freed block{p, nullptr};
    cudaEventCreateWithFlags(&block.when, cudaEventDisableTiming);
    cudaEventRecord(block.when, stream.get());
    kept_->blocks.emplace(bytes, block);
  }

  // Without a stream, and all of it by the names of CCCL 2 and 3.0.
  void* allocate_sync(std::size_t bytes, std::size_t alignment) {
    void* const p = allocate(cuda::stream_ref(cudaStreamLegacy), bytes, alignment);
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
    return p;
  }
  void deallocate_sync(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    deallocate(cuda::stream_ref(cudaStreamLegacy), p, bytes, alignment);
  }
  void* allocate(std::size_t bytes, std::size_t alignment) { return allocate_sync(bytes, alignment); }
  void deallocate(void* p, std::size_t bytes, std::size_t alignment) noexcept { deallocate_sync(p, bytes, alignment); }
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  void deallocate_async(void* p, std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) noexcept {
    deallocate(stream, p, bytes, alignment);
  }

  friend bool operator==(pool const& a, pool const& b) { return a.kept_ == b.kept_; }
  friend constexpr void get_property(pool const&, cuda::mr::device_accessible) noexcept {}

 private:
  struct freed {
    void* p;
    cudaEvent_t when;
  };
  struct cache {
    std::multimap<std::size_t, freed> blocks;  // by size
    ~cache() {
      cudaDeviceSynchronize();
      for (auto const& [bytes, block] : blocks) {
        cudaEventDestroy(block.when);
        cudaFree(block.p);
      }
    }
  };

  bool waits_;
  std::shared_ptr<cache> kept_ = std::make_shared<cache>();  // one cache, however often the resource is copied
};

}  // namespace somebody

namespace {

/// Two streams work with a block each, one after the other. Every call succeeds, and every result is right.
std::uint64_t violations_with(somebody::pool const& pool) {
  weir::sim::check_order(true);
  {
    auto memory = weir::make(weir::from_cuda_mr(pool) | weir::checked{"somebody's pool"});
    weir::stream const streams[2];
    for (weir::stream const& s : streams) {
      constexpr std::size_t bytes = 1 << 20;
      void* const p = memory.allocate(s, bytes);
      weir::detail::check(cudaMemsetAsync(p, 0, bytes, s.get()), "cudaMemsetAsync");
      weir::sim::touch(s.get(), p, bytes, weir::sim::access::write);  // stands for a kernel
      memory.deallocate(s, p, bytes);
    }
  }
  for (auto const& violation : weir::sim::reports()) std::printf("  %s\n", violation.text.c_str());
  return weir::sim::report_count();
}

std::uint64_t violations(bool pool_waits) {
  weir::sim::reset();
  return violations_with(somebody::pool(pool_waits));
}

}  // namespace

int main() {
  std::puts("A pool that forgot to wait:");
  std::uint64_t const wrong = violations(false);
  std::puts("The same, which waits:");
  std::uint64_t const right = violations(true);
  std::printf("%llu violation, then %llu\n", static_cast<unsigned long long>(wrong),
              static_cast<unsigned long long>(right));
  return wrong == 1 && right == 0 ? 0 : 1;
}
