// Pinned memory that CUDA sets to 0 is read by the host, of which valgrind has nothing to say.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>

int main() {
  constexpr std::size_t bytes = std::size_t{3} << 20;  // enough for the simulated runtime to take new pages
  void* p = nullptr;
  if (cudaMallocHost(&p, bytes) != cudaSuccess || cudaMemset(p, 0, bytes) != cudaSuccess) return 2;
  for (std::size_t i = 0; i < bytes; i += 1000)
    if (static_cast<char const*>(p)[i] != 0) return 3;
  if (cudaFreeHost(p) != cudaSuccess) return 4;
  std::puts("done");
}
