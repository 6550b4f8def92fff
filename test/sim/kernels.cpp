// Kernels are registered as nvcc's code does it, and refused when they are launched. What nvcc itself makes of a .cu
// file is tried in test/shared_runtime.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <string>

using namespace sim_test;

// Of crt/host_runtime.h and crt/device_functions.h, which nvcc alone can include.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, char const*, char*, char const*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, char const*, int, size_t, int, int);
char __cudaInitModule(void**);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, void const*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

namespace {

// What stands for a kernel in the host's code: only its address counts.
char const scale_on_the_host = 0;
char const other_on_the_host = 0;

struct module {
  int image = 0;
  void** handle = __cudaRegisterFatBinary(&image);
  module() {
    add(&scale_on_the_host, "_Z5scalePfi");
    __cudaRegisterVar(handle, nullptr, nullptr, "factor", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
  }
  ~module() { __cudaUnregisterFatBinary(handle); }
  module(module const&) = delete;
  module& operator=(module const&) = delete;
  void add(char const* function, char const* name) {
    __cudaRegisterFunction(handle, function, nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
};

/// What `make` prints to stderr.
template <class F>
std::string printed_by(F make) {
  int const file = ::memfd_create("stderr", MFD_CLOEXEC);
  int const before = ::dup(STDERR_FILENO);
  REQUIRE_GE(file, 0);
  ::dup2(file, STDERR_FILENO);
  make();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::string text(4096, ' ');
  auto const size = ::pread(file, text.data(), text.size(), 0);
  ::close(file);
  REQUIRE_GE(size, 0);
  return text.substr(0, static_cast<std::size_t>(size));
}

cudaError_t launch(void const* function) { return cudaLaunchKernel(function, 1, 32, nullptr, 0, nullptr); }

}  // namespace

TEST_CASE_FIXTURE(fresh, "to launch a kernel is refused with a code, and once with a sentence that names it") {
  module const m;
  std::string const text = printed_by([] { CHECK_EQ(launch(&scale_on_the_host), cudaErrorNoKernelImageForDevice); });
  CHECK_EQ(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
  CHECK_NE(text.find("cudaLaunchKernel: the kernel scale(float*, int) cannot run"), text.npos);
  CHECK_NE(text.find("Run the program on a GPU"), text.npos);
  CHECK_EQ(printed_by([] { CHECK_EQ(launch(&scale_on_the_host), cudaErrorNoKernelImageForDevice); }), "");
  CHECK_EQ(sim::calls("cudaLaunchKernel"), 2);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);  // nothing is broken by it
}

TEST_CASE_FIXTURE(fresh, "every way to launch a kernel, and every question about one, is refused alike") {
  module const m;
  void const* const f = &scale_on_the_host;
  static_cast<void>(printed_by([&] { launch(f); }));  // the sentence
  constexpr auto refused = cudaErrorNoKernelImageForDevice;
  cudaLaunchConfig_t config{};
  CHECK_EQ(cudaLaunchKernelExC(&config, f, nullptr), refused);
  CHECK_EQ(cudaLaunchCooperativeKernel(f, 1, 32, nullptr, 0, nullptr), refused);
  cudaFuncAttributes attributes{};
  CHECK_EQ(cudaFuncGetAttributes(&attributes, f), refused);
  CHECK_EQ(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16), refused);
  CHECK_EQ(cudaFuncSetCacheConfig(f, cudaFuncCachePreferL1), refused);
  int blocks = 0;
  CHECK_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 0), refused);
  CHECK_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, 32, 0, 0), refused);
  std::size_t bytes = 0;
  CHECK_EQ(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 1, 32), refused);
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "launches that are skipped take their place in the stream, are counted, and write nothing") {
  module m;
  m.add(&other_on_the_host, "other");
  sim::skip_kernels(true);
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  int value = 0;
  ok(cudaMalloc(&p, 4));
  ok(cudaMemsetAsync(p, 1, 4, s));
  for (int i = 0; i < 3; ++i) ok(cudaLaunchKernel(&scale_on_the_host, 1, 32, nullptr, 0, s));
  ok(cudaLaunchKernel(&other_on_the_host, 1, 32, nullptr, 0, s));
  CHECK_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  ok(cudaMemcpyAsync(&value, p, 4, cudaMemcpyDeviceToHost, s));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(value, 0x01010101);
  auto const skipped = sim::skipped_kernels();
  REQUIRE_EQ(skipped.size(), 2);
  CHECK_EQ(skipped[0].name, "scale(float*, int)");
  CHECK_EQ(skipped[0].launches, 3);

  CHECK_EQ(cudaLaunchKernel(&scale_on_the_host, 1, 1025, nullptr, 0, s), cudaErrorInvalidConfiguration);
  CHECK_EQ(cudaLaunchKernel(&scale_on_the_host, dim3(1, 0), 1, nullptr, 0, s), cudaErrorInvalidConfiguration);
  CHECK_EQ(cudaLaunchKernel(&value, 1, 1, nullptr, 0, s), cudaErrorInvalidDeviceFunction);
  ok(cudaFree(p));
  sim::reset();
  CHECK(sim::skipped_kernels().empty());
  CHECK_EQ(printed_by([] { CHECK_EQ(launch(&scale_on_the_host), cudaErrorNoKernelImageForDevice); }).empty(), false);
}

TEST_CASE_FIXTURE(fresh, "a skipped launch becomes a node of the graph that its stream captures") {
  module const m;
  sim::skip_kernels(true);
  cudaStream_t const s = make_stream();
  cudaGraph_t graph = nullptr;
  std::size_t nodes = 0;
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ok(cudaLaunchKernel(&scale_on_the_host, 1, 32, nullptr, 0, s));
  ok(cudaLaunchKernel(&scale_on_the_host, 1, 32, nullptr, 0, s));
  ok(cudaStreamEndCapture(s, &graph));
  ok(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK_EQ(nodes, 2);
  ok(cudaGraphDestroy(graph));
}

TEST_CASE_FIXTURE(fresh, "where launches are skipped, a count in new memory that no kernel has written is none") {
  sim::skip_kernels(true);
  auto const first_of = [](void* p) {
    int count = -1;
    ok(cudaMemcpy(&count, p, sizeof count, cudaMemcpyDeviceToHost));
    return count;
  };
  void* p = nullptr;
  ok(cudaMalloc(&p, 512));
  CHECK_EQ(first_of(p), 0);
  ok(cudaFree(p));
  ok(cudaMallocAsync(&p, 512, nullptr));
  CHECK_EQ(first_of(p), 0);
  ok(cudaFreeAsync(p, nullptr));
}

TEST_CASE_FIXTURE(fresh, "where launches are skipped, questions about kernels have the answers of a small one") {
  module const m;
  sim::skip_kernels(true);
  void const* const f = &scale_on_the_host;
  cudaFuncAttributes attributes{};
  ok(cudaFuncGetAttributes(&attributes, f));
  CHECK_EQ(attributes.maxThreadsPerBlock, 1024);
  CHECK_EQ(attributes.binaryVersion, 90);
  ok(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16));
  int blocks = 0;
  ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
  CHECK_EQ(blocks, 2);  // 2048 threads
  ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 0));
  CHECK_EQ(blocks, 32);  // no more blocks than that
  ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 56 << 10));
  CHECK_EQ(blocks, 4);  // of 228 KiB, and 1 KiB of each is reserved
  std::size_t bytes = 0;
  ok(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 4, 32));
  CHECK_EQ(bytes, 56 << 10);
  CHECK_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0), cudaErrorInvalidValue);
}

#if CUDART_VERSION >= 12080
TEST_CASE_FIXTURE(fresh, "libraries of kernels cannot be loaded, and graphs not be built by hand") {
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  CHECK_EQ(cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0),
           cudaErrorNoKernelImageForDevice);
  CHECK_EQ(cudaLibraryLoadFromFile(&library, "file", nullptr, nullptr, 0, nullptr, nullptr, 0),
           cudaErrorNoKernelImageForDevice);
  CHECK_EQ(cudaLibraryGetKernel(&kernel, library, "name"), cudaErrorInvalidResourceHandle);
  unsigned count = 0;
  CHECK_EQ(cudaLibraryGetKernelCount(&count, library), cudaErrorInvalidResourceHandle);
  void* p = nullptr;
  std::size_t bytes = 0;
  CHECK_EQ(cudaLibraryGetGlobal(&p, &bytes, library, "name"), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaLibraryGetManaged(&p, &bytes, library, "name"), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaLibraryGetUnifiedFunction(&p, library, "name"), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaLibraryUnload(library), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1, 0),
           cudaErrorInvalidDeviceFunction);
  cudaUserObject_t object = nullptr;
  CHECK_EQ(cudaUserObjectCreate(&object, &p, nullptr, 1, cudaUserObjectNoDestructorSync), cudaErrorNotSupported);
  CHECK_EQ(cudaUserObjectRelease(object, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphRetainUserObject(nullptr, object, 1, 0), cudaErrorInvalidValue);
  cudaGraphConditionalHandle condition{};
  CHECK_EQ(cudaGraphConditionalHandleCreate(&condition, nullptr, 0, 0), cudaErrorNotSupported);
#if CUDART_VERSION >= 13000
  CHECK_EQ(cudaGraphAddNode(nullptr, nullptr, nullptr, nullptr, 0, nullptr), cudaErrorNotSupported);
#endif
  cudaStream_t const s = make_stream();
  CHECK_EQ(cudaStreamBeginCaptureToGraph(s, nullptr, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal),
           cudaErrorNotSupported);
}
#endif

TEST_CASE_FIXTURE(fresh, "what no module registered is no kernel, and a module's kernels go with it") {
  CHECK_EQ(launch(&scale_on_the_host), cudaErrorInvalidDeviceFunction);
  CHECK_EQ(launch(nullptr), cudaErrorInvalidDeviceFunction);
  {
    module const m;
    module other;
    other.add(&other_on_the_host, "other");
    std::string const text = printed_by([] { CHECK_EQ(launch(&other_on_the_host), cudaErrorNoKernelImageForDevice); });
    CHECK_NE(text.find("the kernel other cannot run"), text.npos);  // a name of C
  }
  CHECK_EQ(launch(&scale_on_the_host), cudaErrorInvalidDeviceFunction);
  CHECK_EQ(launch(&other_on_the_host), cudaErrorInvalidDeviceFunction);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
}

TEST_CASE_FIXTURE(fresh, "the angle brackets of nvcc's code come to a launch") {
  module const m;
  CHECK_NE(__cudaInitModule(m.handle), 0);
  auto* const stream = make_stream();
  cudaKernel_t kernel = nullptr;
  CHECK_EQ(__cudaGetKernel(&kernel, &other_on_the_host), cudaErrorInvalidDeviceFunction);
  ok(__cudaGetKernel(&kernel, &scale_on_the_host));
  CHECK_EQ(__cudaPushCallConfiguration(dim3(2, 3, 4), dim3(5, 6, 7), 8, stream), 0);
  CHECK_EQ(__cudaPushCallConfiguration(dim3(1), dim3(1), 0, nullptr), 0);  // a launch among the arguments of a launch
  dim3 grid, block;
  std::size_t shared_bytes = 1;
  cudaStream_t found = stream;
  ok(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &found));
  CHECK_EQ(found, nullptr);
  ok(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &found));
  CHECK_EQ(grid.y, 3);
  CHECK_EQ(block.z, 7);
  CHECK_EQ(shared_bytes, 8);
  CHECK_EQ(found, stream);
  static_cast<void>(printed_by(
      [&] { CHECK_EQ(__cudaLaunchKernel(kernel, grid, block, nullptr, 8, stream), cudaErrorNoKernelImageForDevice); }));
  CHECK_EQ(__cudaLaunchKernel_ptsz(kernel, grid, block, nullptr, 8, stream), cudaErrorNoKernelImageForDevice);
  CHECK_EQ(sim::calls("cudaLaunchKernel"), 2);
}

TEST_CASE_FIXTURE(fresh, "a launch without its brackets, and launches nested too deep, are errors") {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  CHECK_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaErrorMissingConfiguration);
  CHECK_EQ(cudaGetLastError(), cudaErrorMissingConfiguration);
  unsigned depth = 0;
  while (depth < 100 && __cudaPushCallConfiguration(grid, block, 0, nullptr) == 0) ++depth;
  CHECK_GE(depth, 8);
  CHECK_LT(depth, 100);
  CHECK_EQ(cudaGetLastError(), cudaErrorLaunchOutOfResources);
  for (; depth > 0; --depth) ok(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream));
}
