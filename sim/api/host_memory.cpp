// The program's own memory, made pinned where it lies, and what can be asked about pinned memory.

#include "api/host_memory.hpp"

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"

#include <utility>

namespace weir::sim::detail {
namespace {

// Whether any of these ranges overlaps `bytes` bytes from `first` on.
bool overlaps(std::map<std::uintptr_t, allocation> const& known, std::uintptr_t first, std::size_t bytes) {
  auto found = known.upper_bound(first);
  if (found != known.end() && found->first - first < bytes) return true;
  return found != known.begin() && first - std::prev(found)->first < std::prev(found)->second.bytes;
}

using registration = std::map<std::uintptr_t, allocation>::iterator;

void unregister(runtime& r, registration found) {
  r.host_used -= found->second.bytes;
  count_freed(r, found->second);
  r.registrations.erase(found);
}

allocation const* pinned_at(runtime& r, void const* p) {
  range const what = look_up(r, p, 1);
  return what.valid && what.is(memory_kind::pinned) ? what.in : nullptr;
}

cudaError_t register_memory(runtime& r, void* p, std::size_t bytes) {
  auto const first = reinterpret_cast<std::uintptr_t>(p);
  range const what = look_up(r, p, 1);
  if (overlaps(r.registrations, first, bytes) || what.is(memory_kind::pinned))
    return cudaErrorHostMemoryAlreadyRegistered;
  if (overlaps(r.allocations, first, bytes)) return cudaErrorInvalidValue;  // memory of CUDA's own
  if (!charge_host(r, bytes)) return cudaErrorMemoryAllocation;
  allocation made;
  made.bytes = bytes;
  made.kind = memory_kind::pinned;
  made.device = this_thread().device;
  count_live(r, made);
  r.registrations.emplace(first, std::move(made));
  if (r.check != nullptr) [[unlikely]]
    r.check->allocated(nullptr, p, bytes, true);
  return cudaSuccess;
}

}  // namespace

void forget_registrations(runtime& r, int device) {
  for (auto next = r.registrations.begin(); next != r.registrations.end();) {
    auto const it = next++;
    if (it->second.device != device) continue;
    if (r.check != nullptr) r.check->forget(reinterpret_cast<void*>(it->first));
    unregister(r, it);
  }
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaHostRegister(void* p, size_t bytes, unsigned int flags) {
  return sim::api("cudaHostRegister", [&](sim::runtime& r, sim::held_lock&) {
    constexpr unsigned supported = cudaHostRegisterPortable | cudaHostRegisterMapped;
    constexpr unsigned unsupported = cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (p == nullptr || bytes == 0 || (flags & ~(supported | unsupported)) != 0) return cudaErrorInvalidValue;
    if ((flags & unsupported) != 0) return cudaErrorNotSupported;
    if (cudaError_t const code = sim::admit_unsafe(r); code != cudaSuccess) return code;
    return sim::register_memory(r, p, bytes);
  });
}

// Does not wait: the program has to see to it that no copy uses the memory any more.
cudaError_t CUDARTAPI cudaHostUnregister(void* p) {
  return sim::api("cudaHostUnregister", [&](sim::runtime& r, sim::held_lock&) {
    if (p == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t const code = sim::admit_unsafe(r); code != cudaSuccess) return code;
    auto const found = r.registrations.find(reinterpret_cast<std::uintptr_t>(p));
    if (found == r.registrations.end()) return cudaErrorHostMemoryNotRegistered;
    if (r.check != nullptr) [[unlikely]] {
      std::size_t const bytes = found->second.bytes;
      r.check->freed(nullptr, p);
      // The memory is the program's again and stays: a later use of it is no use after free.
      r.check->allocated(nullptr, p, bytes, true);
      r.check->forget(p);
    }
    sim::unregister(r, found);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** on_device, void* p, unsigned int flags) {
  return sim::api("cudaHostGetDevicePointer", [&](sim::runtime& r, sim::held_lock&) {
    if (on_device == nullptr || flags != 0 || sim::pinned_at(r, p) == nullptr) return cudaErrorInvalidValue;
    *on_device = p;  // one address space for the host and all devices
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int* flags, void* p) {
  return sim::api("cudaHostGetFlags", [&](sim::runtime& r, sim::held_lock&) {
    sim::allocation const* const a = sim::pinned_at(r, p);
    // There are flags only of memory that CUDA allocated.
    if (a == nullptr || sim::overlaps(r.registrations, reinterpret_cast<std::uintptr_t>(p), 1))
      return cudaErrorInvalidValue;
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = a->flags;
    return cudaSuccess;
  });
}

}  // extern "C"
