// Kernels: nvcc's code registers them before `main`, so that programs with kernels start; to launch one is refused,
// since there is no device code here. The functions with two underscores are those that nvcc's code calls.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"

#include <cxxabi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace weir::sim::detail {
namespace {

struct kernel {
  void* module = nullptr;
  std::string name;  // mangled
  bool refused = false;
};

struct kernel_table {
  std::mutex mutex;
  std::map<void const*, kernel> kernels;  // by the host function that is its handle
};

// Never destroyed: programs and libraries unregister theirs when they end.
kernel_table& table() {
  static auto* const only = new kernel_table;
  return *only;
}

std::string demangled(std::string const& name) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> const text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return text != nullptr ? text.get() : name;
}

// Reports once for each kernel, since a program may launch it a thousand times.
void report_refusal(call which, kernel& k) {
  if (std::exchange(k.refused, true)) return;
  std::fprintf(
      stderr,
      "weir::sim: %s: the kernel %s cannot run: the simulated runtime has no device code. Run the program on a GPU; in "
      "a test, let weir::sim::touch stand for the kernel. (cudaErrorNoKernelImageForDevice)\n",
      std::string(call_names[which.index()]).c_str(), demangled(k.name).c_str());
}

// What `<<<...>>>` pushes in its first call and pops in its second. Trivial, so that it can be used until the thread
// ends.
struct configuration {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
struct configuration_stack {
  std::array<configuration, 16> entries;  // launches in the arguments of launches, nested
  std::size_t depth = 0;
};
thread_local configuration_stack configurations;

cudaError_t failed(cudaError_t code) { return this_thread().last_error = code; }

}  // namespace

cudaError_t refuse_kernel(call which, void const* function) {
  return api(which, [&](runtime&, held_lock&) {
    kernel_table& known = table();
    std::lock_guard const lock(known.mutex);
    auto const found = known.kernels.find(function);
    if (found == known.kernels.end()) return cudaErrorInvalidDeviceFunction;
    report_refusal(which, found->second);
    return cudaErrorNoKernelImageForDevice;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): nvcc's code calls these names

// ---- what nvcc's code calls before and after `main`
// A module has its own address for a handle.
void** CUDARTAPI __cudaRegisterFatBinary(void* module) { return new void*(module); }

void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}

void CUDARTAPI __cudaUnregisterFatBinary(void** module) {
  if (module == nullptr) return;
  sim::kernel_table& known = sim::table();
  {
    std::lock_guard const lock(known.mutex);
    std::erase_if(known.kernels, [module](auto const& entry) { return entry.second.module == module; });
  }
  delete module;
}

void CUDARTAPI __cudaRegisterFunction(void** module, char const* host_function, char*, char const* name, int, uint3*,
                                      uint3*, dim3*, dim3*, int*) {
  sim::kernel_table& known = sim::table();
  std::lock_guard const lock(known.mutex);
  known.kernels[host_function] = {module, name, false};
}

// A variable of the device: only kernels use it, and the calls that copy to and from symbols are not there.
void CUDARTAPI __cudaRegisterVar(void**, char*, char*, char const*, int, size_t, int, int) {}

char CUDARTAPI __cudaInitModule(void**) { return 1; }

// ---- what `kernel<<<grid, block>>>(arguments)` calls, in this order; a push that fails skips the rest
unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  auto& [entries, depth] = sim::configurations;
  if (depth == entries.size()) return sim::failed(cudaErrorLaunchOutOfResources);
  entries[depth++] = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* handle, void const* host_function) {
  sim::kernel_table& known = sim::table();
  std::lock_guard const lock(known.mutex);
  if (handle == nullptr || !known.kernels.contains(host_function)) return cudaErrorInvalidDeviceFunction;
  *handle = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  auto& [entries, depth] = sim::configurations;
  if (depth == 0) return sim::failed(cudaErrorMissingConfiguration);
  sim::configuration const& last = entries[--depth];
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return sim::refuse_kernel("cudaLaunchKernel", kernel);
}

cudaError_t CUDARTAPI __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return sim::refuse_kernel("cudaLaunchKernel", kernel);
}

// NOLINTEND(bugprone-reserved-identifier)

// ---- questions about kernels, which only their device code could answer
cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes*, void const* function) {
  return sim::refuse_kernel("cudaFuncGetAttributes", function);
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(void const* function, cudaFuncAttribute, int) {
  return sim::refuse_kernel("cudaFuncSetAttribute", function);
}

cudaError_t CUDARTAPI cudaFuncSetCacheConfig(void const* function, cudaFuncCache) {
  return sim::refuse_kernel("cudaFuncSetCacheConfig", function);
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, void const* function, int, size_t) {
  return sim::refuse_kernel("cudaOccupancyMaxActiveBlocksPerMultiprocessor", function);
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, void const* function, int, size_t,
                                                                             unsigned int) {
  return sim::refuse_kernel("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", function);
}

cudaError_t CUDARTAPI cudaOccupancyAvailableDynamicSMemPerBlock(size_t*, void const* function, int, int) {
  return sim::refuse_kernel("cudaOccupancyAvailableDynamicSMemPerBlock", function);
}

}  // extern "C"
