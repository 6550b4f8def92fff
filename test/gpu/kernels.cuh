#pragma once
// Kernels that the tests on a GPU see an order by.

#include <cstddef>

namespace weir::test {

inline constexpr int blocks = 64, threads = 256;

/// Lets time pass before it writes, so that whoever takes or copies the memory too early is seen.
inline __global__ void write_late(int* p, std::size_t n, int value, long long cycles) {
  for (long long const start = clock64(); clock64() - start < cycles;) {
  }
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = value;
}

/// How many of `p`'s elements are not `value`, in stream order.
inline __global__ void count_others(int const* p, std::size_t n, int value, unsigned long long* others) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    if (p[i] != value) atomicAdd(others, 1ULL);
}

}  // namespace weir::test
