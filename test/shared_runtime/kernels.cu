// A program with kernels, made by nvcc for NVIDIA's own runtime library, run on the simulated one: it starts, and what
// it calls on the host works. `kernels launch` launches as well, which is refused.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#define CHECK(condition)                                                                            \
  if (!(condition)) {                                                                               \
    std::printf("line %d: %s: %s\n", __LINE__, #condition, cudaGetErrorString(cudaGetLastError())); \
    return 1;                                                                                       \
  }

__device__ int factor = 3;

__global__ void scale(int* p, int n) {
  for (int i = 0; i < n; ++i) p[i] *= factor;
}

template <class T>
__global__ void set(T* p, T value) {
  *p = value;
}

int main(int argc, char** argv) {
  void* p = nullptr;
  int numbers[2] = {20, 21};
  CHECK(cudaMallocAsync(&p, sizeof numbers, 0) == cudaSuccess);
  CHECK(cudaMemcpyAsync(p, numbers, sizeof numbers, cudaMemcpyHostToDevice, 0) == cudaSuccess);
  if (argc > 1 && std::strcmp(argv[1], "launch") == 0) {
    int* const on_device = static_cast<int*>(p);
    scale<<<1, 1>>>(on_device, 2);
    std::printf("%s, ", cudaGetErrorName(cudaGetLastError()));
    set<<<dim3(1), dim3(1), 0, 0>>>(on_device, 5);
    std::printf("%s, ", cudaGetErrorName(cudaGetLastError()));
    int n = 2;
    void* arguments[] = {&p, &n};
    std::printf("%s, ", cudaGetErrorName(cudaLaunchKernel(scale, dim3(1), dim3(1), arguments, 0, 0)));
    cudaFuncAttributes attributes;
    std::printf("%s\n", cudaGetErrorName(cudaFuncGetAttributes(&attributes, set<int>)));
    std::fflush(stdout);
    cudaGetLastError();
  }
  int back[2] = {};
  CHECK(cudaMemcpyAsync(back, p, sizeof back, cudaMemcpyDeviceToHost, 0) == cudaSuccess);
  CHECK(cudaFreeAsync(p, 0) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(std::memcmp(back, numbers, sizeof back) == 0);
  std::printf("done\n");
}
