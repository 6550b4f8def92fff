// A program that knows nothing of weir: linked with NVIDIA's own runtime library, run on the simulated one.
// `program race` uses memory on a stream that does not come after its allocation.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#define CHECK(condition)                                                                            \
  if (!(condition)) {                                                                               \
    std::printf("line %d: %s: %s\n", __LINE__, #condition, cudaGetErrorString(cudaGetLastError())); \
    return 1;                                                                                       \
  }

int main(int argc, char** argv) {
  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, 0) == cudaSuccess);
  std::printf("runs on %s\n", device.name);

  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
  cudaEvent_t done = nullptr;
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming) == cudaSuccess);

  void* p = nullptr;
  char text[5] = "weir";
  char back[5] = "....";
  CHECK(cudaMallocAsync(&p, 4096, a) == cudaSuccess);
  CHECK(cudaMemcpyAsync(p, text, 5, cudaMemcpyHostToDevice, a) == cudaSuccess);
  CHECK(cudaEventRecord(done, a) == cudaSuccess);
  bool const race = argc > 1 && std::strcmp(argv[1], "race") == 0;
  if (!race) CHECK(cudaStreamWaitEvent(b, done, 0) == cudaSuccess);
  CHECK(cudaMemcpyAsync(back, p, 5, cudaMemcpyDeviceToHost, b) == cudaSuccess);
  CHECK(cudaFreeAsync(p, b) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  if (!race) CHECK(std::strcmp(back, "weir") == 0);
  CHECK(cudaStreamDestroy(a) == cudaSuccess);
  CHECK(cudaStreamDestroy(b) == cudaSuccess);
  CHECK(cudaEventDestroy(done) == cudaSuccess);
  std::printf("done\n");
}
