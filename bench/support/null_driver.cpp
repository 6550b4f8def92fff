// The driver's virtual memory management as the null runtime has it: it counts chunks and bytes, and maps nothing.
// Addresses are handed out once, front to back.

#include "null_runtime.hpp"

#include <cuda.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

namespace bench {
namespace {

constexpr std::size_t granularity = std::size_t{2} << 20;

struct created_memory {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, std::size_t> sizes;
};
created_memory& created() {
  static created_memory* const all = new created_memory;
  return *all;
}

CUresult get_device(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult get_attribute(int* value, CUdevice_attribute, CUdevice) { return *value = 1, CUDA_SUCCESS; }
CUresult get_granularity(std::size_t* bytes, CUmemAllocationProp const*, CUmemAllocationGranularity_flags) {
  return *bytes = granularity, CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* p, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  static std::atomic<CUdeviceptr> next{CUdeviceptr{1} << 44};
  *p = next.fetch_add(bytes);
  return CUDA_SUCCESS;
}
CUresult free_addresses(CUdeviceptr, std::size_t) { return CUDA_SUCCESS; }
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, CUmemAllocationProp const*,
                unsigned long long) {
  static std::atomic<CUmemGenericAllocationHandle> last{0};
  if (!take_device_bytes(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  count_calls(call_kind::create, bytes / granularity);
  *handle = ++last;
  std::lock_guard const lock(created().mutex);
  created().sizes[*handle] = bytes;
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
  std::lock_guard const lock(created().mutex);
  auto const found = created().sizes.find(handle);
  give_device_bytes(found->second);
  created().sizes.erase(found);
  return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return count_calls(call_kind::map, bytes / granularity), CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr, std::size_t bytes) {
  return count_calls(call_kind::unmap, bytes / granularity), CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr, std::size_t bytes, CUmemAccessDesc const*, std::size_t) {
  return count_calls(call_kind::access, bytes / granularity), CUDA_SUCCESS;
}

template <class F>
void* pointer_to(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void* null_driver_function(char const* name) {
  struct {
    char const* name;
    void* function;
  } const all[] = {{"cuDeviceGet", pointer_to(get_device)},
                   {"cuDeviceGetAttribute", pointer_to(get_attribute)},
                   {"cuMemGetAllocationGranularity", pointer_to(get_granularity)},
                   {"cuMemAddressReserve", pointer_to(reserve)},
                   {"cuMemAddressFree", pointer_to(free_addresses)},
                   {"cuMemCreate", pointer_to(create)},
                   {"cuMemRelease", pointer_to(release)},
                   {"cuMemMap", pointer_to(map)},
                   {"cuMemUnmap", pointer_to(unmap)},
                   {"cuMemSetAccess", pointer_to(set_access)}};
  for (auto const& known : all)
    if (std::strcmp(known.name, name) == 0) return known.function;
  return nullptr;
}

}  // namespace bench
