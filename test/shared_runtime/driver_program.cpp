// A program that was built for NVIDIA's driver alone, as Numba is: it finds libcuda.so.1 and libnvidia-ml.so.1 by the
// loader and calls what it looks up there.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

// cuda.h makes macros of names that changed; the loader has the new ones.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define FIND(library, name) reinterpret_cast<decltype(&::name)>(dlsym(library, TEXT(name)))
#define CHECK(condition)                                         \
  if (!(condition)) {                                            \
    std::printf("line %d: %s is false\n", __LINE__, #condition); \
    return 1;                                                    \
  }

namespace {

struct nvml_memory {
  unsigned long long total, free, used;
};

}  // namespace

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  CHECK(driver != nullptr);
  CHECK(nvml != nullptr);
  CHECK(FIND(driver, cuInit)(0) == CUDA_SUCCESS);
  char name[100] = {};
  CHECK(FIND(driver, cuDeviceGetName)(name, sizeof name, 0) == CUDA_SUCCESS);
  std::printf("runs on %s\n", name);

  CUdeviceptr p = 0;
  std::size_t before = 0, after = 0, total = 0;
  unsigned const there[2] = {1, 2};
  unsigned back[2] = {};
  CHECK(FIND(driver, cuMemGetInfo)(&before, &total) == CUDA_SUCCESS);
  CHECK(FIND(driver, cuMemAlloc)(&p, 8) == CUDA_SUCCESS);
  CHECK(FIND(driver, cuMemcpyHtoD)(p, there, 8) == CUDA_SUCCESS);
  CHECK(FIND(driver, cuMemsetD32)(p, 7, 1) == CUDA_SUCCESS);
  CHECK(FIND(driver, cuMemcpyDtoH)(back, p, 8) == CUDA_SUCCESS);
  CHECK(back[0] == 7 && back[1] == 2);
  CHECK(FIND(driver, cuMemGetInfo)(&after, &total) == CUDA_SUCCESS);
  CHECK(after + 8 == before);

  // What there is nothing for is there, and refuses, whatever its arguments are.
  CUmodule module = nullptr;
  CHECK(FIND(driver, cuModuleLoadData)(&module, "image") == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(FIND(driver, cuLaunchKernel)(nullptr, 1, 2, 3, 4, 5, 6, 7, nullptr, nullptr, nullptr) ==
        CUDA_ERROR_NOT_SUPPORTED);
  CHECK(FIND(driver, cuLinkComplete) != nullptr);

  // By the driver's own look-up: a toolkit newer than ours gets what there is.
  void* found = nullptr;
  CUdriverProcAddressQueryResult result{};
  auto* const look_up = FIND(driver, cuGetProcAddress);
  CHECK(look_up("cuMemFree", &found, 99000, 0, &result) == CUDA_SUCCESS);
  CHECK(reinterpret_cast<decltype(&::cuMemFree)>(found)(p) == CUDA_SUCCESS);
  CHECK(look_up("cuModuleLoadData", &found, 13000, 0, &result) == CUDA_ERROR_NOT_FOUND);
  CHECK(result == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);

  void* device = nullptr;
  nvml_memory memory{};
  CHECK(reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"))() == 0);
  CHECK(reinterpret_cast<int (*)(char const*, void**)>(dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2"))("0000:01:00.0",
                                                                                                        &device) == 0);
  CHECK(reinterpret_cast<int (*)(void*, nvml_memory*)>(dlsym(nvml, "nvmlDeviceGetMemoryInfo"))(device, &memory) == 0);
  CHECK(memory.total == total && memory.free == before);
  char by_nvml[100] = {};
  CHECK(reinterpret_cast<int (*)(void*, char*, unsigned)>(dlsym(nvml, "nvmlDeviceGetName"))(device, by_nvml, 100) == 0);
  CHECK(std::strcmp(name, by_nvml) == 0);
  std::printf("done\n");
}
