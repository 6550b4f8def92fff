// Kernels: nvcc's code registers them before `main`, so that programs with kernels start. There is no device code here:
// to launch one is refused, or on request it is counted and does nothing. The functions with two underscores are those
// that nvcc's code calls.

#include "model/kernels.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

#include <array>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

namespace weir::sim::detail {
namespace {

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

// The limits of every device.
bool fits(dim3 grid, dim3 block) {
  bool const some = grid.x != 0 && grid.y != 0 && grid.z != 0 && block.x != 0 && block.y != 0 && block.z != 0;
  return some && grid.x <= 0x7fff'ffffu && grid.y <= 65535 && grid.z <= 65535 && block.z <= 64 &&
         std::uint64_t{block.x} * block.y * block.z <= 1024;
}

void count_skipped(void const* function) {
  kernel_table& known = kernels();
  std::lock_guard const lock(known.mutex);
  if (auto const found = known.kernels.find(function); found != known.kernels.end())
    ++known.skipped[found->second.name];
}

}  // namespace

cudaError_t admit_kernel(runtime& r, call which, void const* function) {
  kernel_table& known = kernels();
  std::lock_guard const lock(known.mutex);
  auto const found = known.kernels.find(function);
  if (found == known.kernels.end()) return cudaErrorInvalidDeviceFunction;
  if (r.skips_kernels) return cudaSuccess;
  report_refusal(which, found->second);
  return cudaErrorNoKernelImageForDevice;
}

cudaError_t launch_kernel(call which, void const* function, dim3 grid, dim3 block, cudaStream_t stream) {
  return api(which, [&](runtime& r, held_lock& held) {
    if (cudaError_t const code = admit_kernel(r, which, function); code != cudaSuccess) return code;
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (!fits(grid, block)) return cudaErrorInvalidConfiguration;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    count_skipped(function);
    if (r.check != nullptr) r.check->operate(*t);
    submit(r, held, *t, [](held_lock&) {});
    return cudaSuccess;
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
  sim::kernel_table& known = sim::kernels();
  {
    std::lock_guard const lock(known.mutex);
    std::erase_if(known.kernels, [module](auto const& entry) { return entry.second.module == module; });
  }
  delete module;
}

void CUDARTAPI __cudaRegisterFunction(void** module, char const* host_function, char*, char const* name, int, uint3*,
                                      uint3*, dim3*, dim3*, int*) {
  sim::kernel_table& known = sim::kernels();
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
  sim::kernel_table& known = sim::kernels();
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

cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t,
                                         cudaStream_t stream) {
  cudaStream_t const on = stream == nullptr ? cudaStreamLegacy : stream;
  return sim::launch_kernel("cudaLaunchKernel", kernel, grid, block, on);
}

cudaError_t CUDARTAPI __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t,
                                              cudaStream_t stream) {
  cudaStream_t const on = stream == nullptr ? cudaStreamPerThread : stream;
  return sim::launch_kernel("cudaLaunchKernel", kernel, grid, block, on);
}

// NOLINTEND(bugprone-reserved-identifier)

}  // extern "C"
