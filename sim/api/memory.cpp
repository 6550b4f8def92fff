// Memory that is not stream-ordered, and the bookkeeping of all memory.

#include "model/memory.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace weir::sim::detail {
namespace {

device_state& device_of(runtime& r, int device) { return r.devices[static_cast<std::size_t>(device)]; }

bool on_host(memory_kind kind) { return kind == memory_kind::managed || kind == memory_kind::pinned; }

bool charge(std::size_t& used, std::size_t capacity, std::size_t bytes) {
  if (used > capacity || bytes > capacity - used) return false;
  used += bytes;
  return true;
}

bool take(runtime& r, allocation const& a) {
  if (a.kind == memory_kind::async) return take_room(r, *a.pool, a.bytes);
  if (on_host(a.kind)) return charge(r.host_used, r.host_capacity, a.bytes);
  return charge(device_of(r, a.device).used, device_of(r, a.device).capacity, a.bytes);
}

void give_back(runtime& r, allocation const& a) {
  if (a.kind == memory_kind::async) {
    give_room_back(r, *a.pool, a.bytes);
  } else if (on_host(a.kind)) {
    r.host_used -= a.bytes;
  } else {
    device_of(r, a.device).used -= a.bytes;
  }
}

void forget_pending(allocation const& a, std::uintptr_t address) {
  if (a.pool == nullptr) return;
  auto& pending = a.pool->pending;
  auto const [first, last] = pending.equal_range({a.freed_at.stream, a.bytes});
  auto const found = std::find_if(first, last, [address](auto const& block) { return block.second == address; });
  if (found != last) pending.erase(found);
}

// The registration that covers `address`, if one does.
allocation const* registered(runtime& r, std::uintptr_t address, std::size_t& offset) {
  auto const after = r.registrations.upper_bound(address);
  if (after == r.registrations.begin()) return nullptr;
  auto const& [begin, a] = *std::prev(after);
  offset = address - begin;
  return offset < a.bytes ? &a : nullptr;
}

}  // namespace

void count_live(runtime& r, allocation const& a) {
  device_of(r, a.device).live_bytes += a.bytes;
  ++r.live_allocations;
}

void count_freed(runtime& r, allocation const& a) {
  device_of(r, a.device).live_bytes -= a.bytes;
  --r.live_allocations;
}

bool charge_host(runtime& r, std::size_t bytes) { return charge(r.host_used, r.host_capacity, bytes); }

cudaError_t allocate(call which, void** p, std::size_t bytes, memory_kind kind, bool valid_arguments, unsigned flags) {
  return api(which, [&](runtime& r, held_lock&) {
    if (p == nullptr || !valid_arguments) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_unsafe(r); code != cudaSuccess) return code;
    if (bytes == 0) {
      *p = nullptr;
      // Managed memory of no size is the one that CUDA refuses.
      return kind == memory_kind::managed ? cudaErrorInvalidValue : cudaSuccess;
    }
    allocation made;
    made.bytes = bytes;
    made.kind = kind;
    made.device = this_thread().device;
    made.flags = flags;
    void* const found = make_allocation(r, std::move(made));
    if (found == nullptr) return cudaErrorMemoryAllocation;
    *p = found;
    if (r.check != nullptr) [[unlikely]]
      r.check->allocated(nullptr, found, bytes, on_host(kind));
    return cudaSuccess;
  });
}

void scribble(void* p, std::size_t bytes, unsigned char pattern) {
  constexpr std::size_t small = 64 * 1024;
  constexpr std::size_t end = 4 * 1024;
  auto* const first = static_cast<unsigned char*>(p);
  if (bytes <= small) {
    std::memset(first, pattern, bytes);
  } else {
    std::memset(first, pattern, end);
    std::memset(first + bytes - end, pattern, end);
  }
}

range look_up(runtime& r, void const* p, std::size_t bytes) {
  auto const address = reinterpret_cast<std::uintptr_t>(p);
  auto const after = r.allocations.upper_bound(address);
  if (after != r.allocations.begin()) {
    auto const& [begin, a] = *std::prev(after);
    std::size_t const offset = address - begin;
    if (offset < a.bytes) return {!a.freeing && bytes <= a.bytes - offset, &a};
  }
  std::size_t offset = 0;
  if (allocation const* const a = registered(r, address, offset)) return {bytes <= a->bytes - offset, a};
  // Memory of the host's heap that begins outside every allocation must not run into one.
  bool const runs_into_next = after != r.allocations.end() && bytes > after->first - address;
  bool const is_dead = r.check != nullptr && r.check->is_dead(p, bytes);
  return {!runs_into_next && !is_dead, nullptr};
}

bool reaches(runtime& r, int device, allocation const& a) {
  if (on_host(a.kind) || a.device == device) return true;
  auto const index = static_cast<std::size_t>(device);
  if (a.kind == memory_kind::async) return a.pool->access[index] != cudaMemAccessFlagsProtNone;
  return device_of(r, device).reaches[static_cast<std::size_t>(a.device)];
}

allocation* find_live(runtime& r, void const* p) {
  auto const found = r.allocations.find(reinterpret_cast<std::uintptr_t>(p));
  return found == r.allocations.end() || found->second.freeing ? nullptr : &found->second;
}

void* make_allocation(runtime& r, allocation made, void* at) {
  if (!take(r, made)) return nullptr;
  // No more than CUDA promises, so that nobody comes to rely on more; host memory is made of pages.
  std::size_t const alignment = made.kind == memory_kind::pinned ? 4096 : 256;
  void* p = at;
  if (p == nullptr && posix_memalign(&p, alignment, made.bytes) != 0) {
    give_back(r, made);
    return nullptr;
  }
  made.block = ++r.tickets;
  // Stream-ordered memory too, and when its allocation executes once more: who reads it before must not find what the
  // heap's last user left there.
  if (at == nullptr) scribble(p, made.bytes, next_pattern(r));
  if (made.kind == memory_kind::async) forbid(p, made.bytes);
  count_live(r, made);
  r.allocations.emplace(reinterpret_cast<std::uintptr_t>(p), std::move(made));
  return p;
}

std::uint64_t begin_free(runtime& r, allocation& a) {
  a.freeing = true;
  a.ticket = ++r.tickets;
  count_freed(r, a);
  return a.ticket;
}

void finish_free(runtime& r, std::uintptr_t address, std::uint64_t ticket, bool waited) {
  auto const found = r.allocations.find(address);
  if (found == r.allocations.end() || found->second.block > ticket) return;  // another block by now
  // Who has taken it over may touch it from when that allocation executes.
  if (found->second.kind == memory_kind::async) forbid(reinterpret_cast<void*>(address), found->second.bytes);
  if (!found->second.freeing || found->second.ticket != ticket) return;
  if (found->second.graph != 0) {
    found->second.kept_for_graph = true;
    return;
  }
  allocation const gone = std::move(found->second);
  give_back(r, gone);
  forget_pending(gone, address);
  r.allocations.erase(found);
  if (gone.pool == nullptr || !keep(*gone.pool, address, gone))
    give_to_heap(reinterpret_cast<void*>(address), gone.bytes, waited);
}

void give_to_heap(void* p, std::size_t bytes, bool waited) {
  order_checker* const check = state().check.get();
  if (check != nullptr && check->hold_back(p, bytes)) return;
  allow(p, bytes);
  if (!waited) return as_stream([p] { std::free(p); });
  look_away();  // what was waited for is no order that the program may rely on
  std::free(p);
  look_again();
}

void submit_allocation(runtime& r, held_lock& held, timeline& t, void* p) {
  auto const address = reinterpret_cast<std::uintptr_t>(p);
  std::uint64_t const block = r.allocations.at(address).block;
  submit(r, held, t, [&r, address, block, pattern = next_pattern(r)](held_lock&) {
    auto const found = r.allocations.find(address);
    if (found == r.allocations.end() || found->second.block != block) return;  // freed by the host meanwhile
    begin_use(reinterpret_cast<void*>(address), found->second.bytes, pattern);
  });
}

void begin_use(void* p, std::size_t bytes, unsigned char pattern) {
  allow(p, bytes);
  as_stream([p, bytes, pattern] { scribble(p, bytes, pattern); });
}

unsigned char next_pattern(runtime& r) { return r.pattern = static_cast<unsigned char>(r.pattern + 37); }

void revive(runtime& r, allocation& a) {
  a.freeing = a.kept_for_graph = false;
  count_live(r, a);
}

cudaError_t prefetch(void const* p, std::size_t bytes, int device, unsigned flags, cudaStream_t stream) {
  return api("cudaMemPrefetchAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (device < cudaCpuDeviceId || device >= r.device_count) return cudaErrorInvalidDevice;
    range const what = look_up(r, p, bytes);
    bool const managed = what.in != nullptr && what.in->kind == memory_kind::managed;
    if (flags != 0 || bytes == 0 || !what.valid || !managed) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    if (r.check != nullptr) [[unlikely]]
      r.check->operate(*t);
    submit(r, held, *t, [](held_lock&) {});  // a hint, but one that takes its place in the stream
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

namespace {

cudaError_t advise(void const* p, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  return sim::api("cudaMemAdvise", [&](sim::runtime& r, sim::held_lock&) {
    bool const ignores_device = advice == cudaMemAdviseSetReadMostly || advice == cudaMemAdviseUnsetReadMostly ||
                                advice == cudaMemAdviseUnsetPreferredLocation;
    sim::range const what = sim::look_up(r, p, bytes);
    bool const managed = what.in != nullptr && what.in->kind == sim::memory_kind::managed;
    if (bytes == 0 || !what.valid || !managed) return cudaErrorInvalidValue;
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy) return cudaErrorInvalidValue;
    if (!ignores_device && (device < cudaCpuDeviceId || device >= r.device_count)) return cudaErrorInvalidDevice;
    return cudaSuccess;
  });
}

}  // namespace

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
    if (a == nullptr || a->kind == sim::memory_kind::pinned) {
      if (r.check != nullptr) r.check->refused_free(nullptr, p);
      return cudaErrorInvalidValue;
    }
    bool const waits = a->kind != sim::memory_kind::async;  // for stream-ordered memory CUDA trusts the caller
    int const device = a->device;
    if (r.check != nullptr) [[unlikely]]
      r.check->freed(nullptr, p, waits ? device : -1);
    std::uint64_t const ticket = sim::begin_free(r, *a);
    auto const finish = [&] { sim::finish_free(r, reinterpret_cast<std::uintptr_t>(p), ticket, waits); };
    try {
      if (waits) sim::force_device(r, held, device);
    } catch (...) {  // a host function's; the block is free all the same
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
    std::uint64_t const ticket = sim::begin_free(r, *a);
    sim::finish_free(r, reinterpret_cast<std::uintptr_t>(p), ticket);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* p) {
  return sim::api("cudaPointerGetAttributes", [&](sim::runtime& r, sim::held_lock&) {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    auto* const address = const_cast<void*>(p);
    sim::range const what = sim::look_up(r, p, 0);
    if (what.in == nullptr || !what.valid) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    attributes->type = what.device_only()                           ? cudaMemoryTypeDevice
                       : what.in->kind == sim::memory_kind::managed ? cudaMemoryTypeManaged
                                                                    : cudaMemoryTypeHost;
    attributes->device = what.in->device;
    attributes->devicePointer = sim::reaches(r, sim::this_thread().device, *what.in) ? address : nullptr;
    attributes->hostPointer = what.device_only() ? nullptr : address;
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaMemAdvise(void const* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return advise(p, bytes, advice, sim::device_at(location));
}
#else
cudaError_t CUDARTAPI cudaMemAdvise(void const* p, size_t bytes, cudaMemoryAdvise advice, int device) {
  return advise(p, bytes, advice, device);
}

// Toolkit 12 has 13's form under a name of its own.
cudaError_t CUDARTAPI cudaMemAdvise_v2(void const* p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  return advise(p, bytes, advice, sim::device_at(location));
}
#endif

}  // extern "C"
