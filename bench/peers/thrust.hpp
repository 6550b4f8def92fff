#pragma once
// Thrust's disjoint_unsynchronized_pool_resource: powers of two, knows neither streams nor threads.

#include <cuda_runtime_api.h>

#include <thrust/mr/disjoint_pool.h>
#include <thrust/mr/new.h>

#include <cstddef>
#include <new>

namespace bench {

struct device_memory final : thrust::mr::memory_resource<> {
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* p = nullptr;
    if (cudaMalloc(&p, bytes) != cudaSuccess) throw std::bad_alloc();
    return p;
  }
  void do_deallocate(void* p, std::size_t, std::size_t) override { cudaFree(p); }
};

class thrust_pool {
 public:
  static constexpr char const* name = "Thrust disjoint pool";
  static constexpr bool streams = false, threads = false;
  static constexpr std::size_t most_live = 1'000'000;

  void* allocate(std::size_t, std::size_t bytes) { return memory_.do_allocate(bytes, alignment); }
  void deallocate(std::size_t, void* p, std::size_t bytes) { memory_.do_deallocate(p, bytes, alignment); }

 private:
  static constexpr std::size_t alignment = 256;
  using pool = thrust::mr::disjoint_unsynchronized_pool_resource<device_memory, thrust::mr::new_delete_resource>;

  static thrust::mr::pool_options options() {
    thrust::mr::pool_options o = pool::get_default_options();
    o.alignment = o.smallest_block_size =
        alignment;  // with its own 16 B, requests of 256 B alignment would not be pooled
    return o;
  }

  device_memory upstream_;
  thrust::mr::new_delete_resource bookkeeper_;
  pool memory_{&upstream_, &bookkeeper_, options()};
};

}  // namespace bench
