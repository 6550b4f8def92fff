// Memory that is not stream-ordered: `cudaMalloc` and its like.

#include "api/memory.hpp"

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"

#include <utility>

namespace weir::sim::detail {

cudaError_t allocate(call which, void** p, std::size_t bytes, memory_kind kind, bool valid_arguments, unsigned flags) {
  return api(which, [&](runtime& r, held_lock&) {
    if (p == nullptr || !valid_arguments) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_unsafe(r); code != cudaSuccess) return code;
    if (bytes == 0) {
      *p = nullptr;
      return cudaSuccess;
    }
    allocation made;
    made.bytes = bytes;
    made.kind = kind;
    made.device = this_thread().device;
    made.flags = flags;
    bool const on_host = made.on_host();
    void* const found = make_allocation(r, made);
    if (found == nullptr) return refuse_allocation(r, made);
    *p = found;
    if (r.check != nullptr) [[unlikely]]
      r.check->allocated(nullptr, found, bytes, on_host);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** p, size_t bytes) {
  return sim::allocate("cudaMalloc", p, bytes, sim::memory_kind::device, true);
}

cudaError_t CUDARTAPI cudaMallocHost(void** p, size_t bytes) {
  return sim::allocate("cudaMallocHost", p, bytes, sim::memory_kind::pinned, true);
}

cudaError_t CUDARTAPI cudaHostAlloc(void** p, size_t bytes, unsigned int flags) {
  constexpr unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  return sim::allocate("cudaHostAlloc", p, bytes, sim::memory_kind::pinned, (flags & ~known) == 0, flags);
}

cudaError_t CUDARTAPI cudaMallocManaged(void** p, size_t bytes, unsigned int flags) {
  bool const valid = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost;
  return sim::allocate("cudaMallocManaged", p, bytes, sim::memory_kind::managed, valid);
}

cudaError_t CUDARTAPI cudaFree(void* p) {
  return sim::api("cudaFree", [&](sim::runtime& r, sim::held_lock& held) {
    if (cudaError_t const code = sim::admit_unsafe(r); code != cudaSuccess) return code;
    if (p == nullptr) return cudaSuccess;
    sim::allocation* const a = sim::find_live(r, p);
    if (a == nullptr || a->kind == sim::memory_kind::pinned || sim::is_being_captured(r, *a)) {
      if (r.check != nullptr) r.check->refused_free(nullptr, p);
      return cudaErrorInvalidValue;
    }
    if (sim::end_import(*a)) return cudaSuccess;
    bool const waits = a->kind != sim::memory_kind::async;  // CUDA does not wait for stream-ordered memory
    int const device = a->device;
    if (r.check != nullptr) [[unlikely]]
      r.check->freed(nullptr, p, waits ? device : -1);
    std::uint64_t const number = sim::begin_free(r, *a);
    auto const finish = [&] { sim::finish_free(r, reinterpret_cast<std::uintptr_t>(p), number, waits); };
    try {
      if (waits) sim::force_device(r, held, device);
    } catch (...) {  // thrown by a host function; the block is freed all the same
      finish();
      throw;
    }
    finish();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaFreeHost(void* p) {
  return sim::api("cudaFreeHost", [&](sim::runtime& r, sim::held_lock&) {
    if (cudaError_t const code = sim::admit_unsafe(r); code != cudaSuccess) return code;
    if (p == nullptr) return cudaSuccess;
    sim::allocation* const a = sim::find_live(r, p);
    if (a == nullptr || a->kind != sim::memory_kind::pinned) {
      if (r.check != nullptr) r.check->refused_free(nullptr, p);
      return cudaErrorInvalidValue;
    }
    if (r.check != nullptr) [[unlikely]]
      r.check->freed(nullptr, p);
    std::uint64_t const number = sim::begin_free(r, *a);
    sim::finish_free(r, reinterpret_cast<std::uintptr_t>(p), number);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* p) {
  return sim::api("cudaPointerGetAttributes", [&](sim::runtime& r, sim::held_lock&) {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    auto* const address = const_cast<void*>(p);
    sim::range const what = sim::look_up(r, p, 0);
    if (what.in == nullptr || what.in->freeing) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    attributes->type = what.device_only()   ? cudaMemoryTypeDevice
                       : what.in->managed() ? cudaMemoryTypeManaged
                                            : cudaMemoryTypeHost;
    attributes->device = what.in->device;
    attributes->devicePointer = sim::reaches(r, sim::this_thread().device, *what.in) ? address : nullptr;
    attributes->hostPointer = what.device_only() ? nullptr : address;
    return cudaSuccess;
  });
}

}  // extern "C"
