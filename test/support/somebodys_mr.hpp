#pragma once
// cuda::mr resources of somebody else's: one that knows streams and one that does not, by the names of every CCCL.

#include <weir/bridges/cuda_mr.hpp>
#include <weir/cuda/device.hpp>

#include <cstddef>
#include <new>

namespace somebody {

/// What is the same for all of somebody's resources of device memory.
struct device_memory_facts {
  friend bool operator==(device_memory_facts, device_memory_facts) = default;
  friend constexpr void get_property(device_memory_facts const&, ::cuda::mr::device_accessible) noexcept {}
};

/// Whether CUDA did it; its thread's last error is not left behind.
inline bool done(cudaError_t code) {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}
/// Nothing but `std::bad_alloc`: CCCL's error takes host memory in a constructor that may not throw.
inline void require(cudaError_t code) {
  if (!done(code)) throw std::bad_alloc();
}

/// The default pool of a device, in stream order.
struct pool_mr : device_memory_facts {
  int device = 0;

  void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t) {
    cudaMemPool_t pool = nullptr;
    require(cudaDeviceGetDefaultMemPool(&pool, device));
    void* p = nullptr;
    require(cudaMallocFromPoolAsync(&p, bytes, pool, stream.get()));
    return p;
  }
  void deallocate(::cuda::stream_ref stream, void* p, std::size_t, std::size_t) noexcept {
    done(cudaFreeAsync(p, stream.get()));
  }
  void* allocate_sync(std::size_t n, std::size_t a) {
    void* const p = allocate(::cuda::stream_ref(cudaStream_t{}), n, a);
    require(cudaStreamSynchronize(nullptr));
    return p;
  }
  void deallocate_sync(void* p, std::size_t n, std::size_t a) noexcept {
    deallocate(::cuda::stream_ref(cudaStream_t{}), p, n, a);
  }

  void* allocate_async(std::size_t n, std::size_t a, ::cuda::stream_ref s) { return allocate(s, n, a); }
  void deallocate_async(void* p, std::size_t n, std::size_t a, ::cuda::stream_ref s) noexcept {
    deallocate(s, p, n, a);
  }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
  void deallocate(void* p, std::size_t n, std::size_t a) noexcept { deallocate_sync(p, n, a); }
};

/// `cudaMalloc`, which knows no streams.
struct plain_mr : device_memory_facts {
  int device = -1;  ///< -1: the current one

  void* allocate_sync(std::size_t bytes, std::size_t) {
    weir::device_guard const on_device(device < 0 ? weir::current_device() : device);
    void* p = nullptr;
    require(cudaMalloc(&p, bytes));
    return p;
  }
  void deallocate_sync(void* p, std::size_t, std::size_t) noexcept { done(cudaFree(p)); }
  void* allocate(std::size_t n, std::size_t a) { return allocate_sync(n, a); }
  void deallocate(void* p, std::size_t n, std::size_t a) noexcept { deallocate_sync(p, n, a); }
};

}  // namespace somebody
