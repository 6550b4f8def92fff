// The driver's virtual memory: addresses are reserved, memory is mapped there, and devices get access to it.

#include "allocations/virtual_memory.hpp"
#include "api/driver_functions.hpp"
#include "scheduler/capture.hpp"

#include <iterator>
#include <optional>

namespace weir::sim::detail {
namespace {

bool is_power_of_two(std::size_t n) { return (n & (n - 1)) == 0; }

bool in_granules(CUdeviceptr at, std::size_t bytes) {
  return at % granularity == 0 && bytes % granularity == 0 && bytes != 0;
}

// What devices may do in a range: nothing or everything. Success, or why that cannot be.
cudaError_t check_access(runtime& r, CUmemAccessDesc const& access, views range) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return cudaErrorNotSupported;
  if (!r.has_device(access.location.id)) return cudaErrorInvalidDevice;
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return cudaErrorNotSupported;
  bool const known =
      access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!known) return cudaErrorInvalidValue;
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return cudaSuccess;
  for (view v = range.first; v != range.end; ++v)
    if (!r.can_reach(access.location.id, v->second.device)) return cudaErrorInvalidDevice;
  return cudaSuccess;
}

// A call that adds to what lies where. Captures allow it: PyTorch's segments grow so inside them, in every mode.
template <class Body>
CUresult adding_call(call which, Body body) {
  return driver_api(
      which, [&](runtime& r, held_lock&) { return r.virtual_memory.supported ? body(r) : cudaErrorNotSupported; });
}

// A call that takes away: as `cudaFree` it is refused in captures, as far as their modes say.
template <class Body>
CUresult removing_call(call which, Body body) {
  return adding_call(which, [&](runtime& r) {
    cudaError_t const code = admit_unsafe(r);
    return code == cudaSuccess ? body(r) : code;
  });
}

}  // namespace

CUresult mem_address_reserve(CUdeviceptr* at, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  return adding_call("cuMemAddressReserve", [=](runtime& r) {
    if (at == nullptr || !in_granules(hint, bytes) || !is_power_of_two(alignment) || flags != 0)
      return cudaErrorInvalidValue;
    void* const p = reserve(r, reinterpret_cast<void*>(hint), bytes, std::max(alignment, granularity));
    if (p == nullptr) return cudaErrorMemoryAllocation;
    *at = reinterpret_cast<CUdeviceptr>(p);
    return cudaSuccess;
  });
}

CUresult mem_address_free(CUdeviceptr at, std::size_t bytes) {
  return removing_call("cuMemAddressFree",
                       [=](runtime& r) { return free_reserved(r, at, bytes) ? cudaSuccess : cudaErrorInvalidValue; });
}

CUresult mem_map(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  return adding_call("cuMemMap", [=](runtime& r) {
    physical_memory* const memory = find_physical(r, reinterpret_cast<physical_handle>(handle));
    if (offset != 0) return cudaErrorNotSupported;
    if (memory == nullptr || !in_granules(at, bytes) || bytes > memory->bytes || flags != 0)
      return cudaErrorInvalidValue;
    if (!r.virtual_memory.is_reserved(at, bytes) || has_views(r, at, bytes)) return cudaErrorInvalidValue;
    return map(r, at, bytes, *memory) ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

CUresult mem_unmap(CUdeviceptr at, std::size_t bytes) {
  return removing_call("cuMemUnmap", [=](runtime& r) {
    std::optional<views> const whole = whole_views(r, at, bytes);
    if (!whole) return cudaErrorInvalidValue;
    return unmap(r, *whole) ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

CUresult mem_set_access(CUdeviceptr at, std::size_t bytes, CUmemAccessDesc const* access, std::size_t count) {
  return adding_call("cuMemSetAccess", [=](runtime& r) {
    std::optional<views> const whole = whole_views(r, at, bytes);
    if (!whole || access == nullptr || count == 0) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (cudaError_t const code = check_access(r, access[i], *whole); code != cudaSuccess) return code;
    for (std::size_t i = 0; i < count; ++i)
      if (!set_access(*whole, access[i].location.id, access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return cudaErrorMemoryAllocation;
    return cudaSuccess;
  });
}

CUresult mem_get_access(unsigned long long* flags, CUmemLocation const* location, CUdeviceptr p) {
  return driver_api("cuMemGetAccess", [=](runtime& r, held_lock&) {
    view const found = view_at(r, p);
    if (flags == nullptr || location == nullptr || found == r.virtual_memory.views.end()) return cudaErrorInvalidValue;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return cudaErrorNotSupported;
    if (!r.has_device(location->id)) return cudaErrorInvalidDevice;
    *flags =
        reaches(r, location->id, found->second) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return cudaSuccess;
  });
}

CUresult mem_get_address_range(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr p) {
  return driver_api("cuMemGetAddressRange", [=](runtime& r, held_lock&) {
    auto const give = [=](auto const& found) {
      if (begin != nullptr) *begin = found->first;
      if (bytes != nullptr) *bytes = found->second.bytes;
      return cudaSuccess;
    };
    if (view const mapped = view_at(r, p); mapped != r.virtual_memory.views.end()) return give(mapped);
    auto const after = r.allocations.upper_bound(p);
    bool const any = after != r.allocations.begin();
    if (!any || p - std::prev(after)->first >= std::prev(after)->second.bytes || std::prev(after)->second.freeing)
      return cudaErrorSymbolNotFound;  // the driver's "not found"
    return give(std::prev(after));
  });
}

}  // namespace weir::sim::detail
