// What the driver's functions are here beside what CUDA says of them (probes/driver.hpp), and the library to look in.

#include "driver.hpp"

#include <dlfcn.h>

using namespace sim_test;

namespace {

int device_now() {
  int device = -1;
  REQUIRE_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

}  // namespace

TEST_CASE_FIXTURE(fresh, "a call of the driver that the runtime has too is counted, and fails on request, as that") {
  auto* const allocate = FOUND(cuMemAlloc);
  CUdeviceptr p = 0;
  ok(allocate(&p, 100));
  CHECK_EQ(sim::calls("cudaMalloc"), 1);
  sim::fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
  CUdeviceptr none = 0;
  CHECK_EQ(allocate(&none, 100), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);
  ok(FOUND(cuMemFree)(p));
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh, "a set of numbers is one operation, whatever their size") {
  auto* const set = FOUND(cuMemsetD32Async);
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  ok(cudaMallocManaged(&p, 16));
  auto const at = reinterpret_cast<CUdeviceptr>(p);
  auto const* const numbers = static_cast<unsigned const*>(p);
  ok(set(at, 0x01020304, 4, s));
  for (int i = 0; i < 4; ++i) CHECK_EQ(numbers[i], 0x01020304);
  ok(FOUND(cuMemsetD16Async)(at + 4, 0x0506, 1, s));
  CHECK_EQ(numbers[1], 0x01020506);
  CHECK_EQ(set(at, 0, 5, s), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(set(at, 0, ~std::size_t{0} / 2, s), CUDA_ERROR_INVALID_VALUE);
  ok(set(at, 0, 0, s));
  CHECK_EQ(numbers[0], 0x01020304);
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  ok(set(at, 0, 4, s));
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(s, &graph));
  std::size_t nodes = 0;
  ok(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK_EQ(nodes, 1);
  ok(cudaGraphDestroy(graph));
  ok(cudaFree(p));
}

TEST_CASE_FIXTURE(fresh, "what only the driver has is counted by its own name") {
  CUcontext context = nullptr;
  sim::reset_counters();
  ok(FOUND(cuCtxGetCurrent)(&context));
  CHECK_EQ(sim::calls("cuCtxGetCurrent"), 1);
  CHECK_EQ(sim::calls(), 1 + sim::calls("cudaGetDriverEntryPointByVersion") + sim::calls("cudaGetDriverEntryPoint"));
}

TEST_CASE_FIXTURE(fresh, "contexts that no device has, too many, and one too few are refused") {
  auto* const push = FOUND(cuCtxPushCurrent);
  auto* const pop = FOUND(cuCtxPopCurrent);
  CHECK_EQ(push(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  CHECK_EQ(pop(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext context = nullptr;
  ok(FOUND(cuDevicePrimaryCtxRetain)(&context, 1));
  int pushed = 0;
  while (push(context) == CUDA_SUCCESS) ++pushed;
  CHECK_EQ(pushed, 16);
  for (; pushed > 0; --pushed) ok(pop(nullptr));
  CHECK_EQ(device_now(), 0);
  CHECK_EQ(pop(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE_FIXTURE(fresh, "a reset leaves no context behind") {
  CUcontext context = nullptr;
  ok(FOUND(cuDevicePrimaryCtxRetain)(&context, 1));
  ok(FOUND(cuCtxPushCurrent)(context));
  sim::reset();
  CHECK_EQ(device_now(), 0);
  CHECK_EQ(FOUND(cuCtxPopCurrent)(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

#if CUDA_VERSION >= 13000
TEST_CASE_FIXTURE(fresh, "what toolkit 13 has is found by its version") {
  for (char const* name : {"cuMemcpyBatchAsync", "cuMemGetDefaultMemPool"}) {
    void* function = nullptr;
    ok(cudaGetDriverEntryPointByVersion(name, &function, 12080, cudaEnableDefault, nullptr));
    CHECK_EQ(function, nullptr);
    ok(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, nullptr));
    CHECK_NE(function, nullptr);
  }
}
#endif

#if CUDA_VERSION >= 12050
TEST_CASE_FIXTURE(fresh, "of a function with several forms the newest is found that the version has") {
  auto const find = [](unsigned version) {
    void* function = nullptr;
    ok(cudaGetDriverEntryPointByVersion("cuStreamGetCtx", &function, version, cudaEnableDefault, nullptr));
    return function;
  };
  CHECK_EQ(find(9000), nullptr);
  CHECK_EQ(find(9020), find(12000));
  CHECK_NE(find(12000), find(12050));
  using second_form = CUresult(CUstream, CUcontext*, CUgreenCtx*);
  CUcontext context = nullptr;
  auto green = reinterpret_cast<CUgreenCtx>(1);
  ok(reinterpret_cast<second_form*>(find(12050))(cudaStreamLegacy, &context, &green));
  CHECK_NE(context, nullptr);
  CHECK_EQ(green, nullptr);
}
#endif

TEST_CASE_FIXTURE(fresh, "the driver's library finds what the runtime finds") {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE_NE(library, nullptr);
  using find_function = CUresult(char const*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  auto* const find = reinterpret_cast<find_function*>(dlsym(library, "cuGetProcAddress_v2"));
  REQUIRE((find != nullptr));
  void* function = nullptr;
  auto result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  ok(find("cuStreamQuery", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &result));
  CHECK_EQ(result, CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK_EQ(function, reinterpret_cast<void*>(FOUND(cuStreamQuery)));
  ok(find("cuNothing", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &result));
  CHECK_EQ(result, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK_EQ(find("cuInit", &function, 1'000'000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr), CUDA_ERROR_INVALID_VALUE);
  dlclose(library);
}
