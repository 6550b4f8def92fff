// The main function of the .cu tests: without a GPU it says so and ends with the status that ctest knows as "skipped".
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>

#include <doctest/doctest.h>

#include <cstdio>

int main(int argc, char** argv) {
  int count = 0;
  if (cudaError_t const code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    std::printf("skipped: no GPU: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "none found");
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
