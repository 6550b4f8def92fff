#pragma once
// Probes: stream-ordered memory and its pools. Answers are in the comments of cuda_runtime_api.h; the programming guide
// is its chapter on the stream-ordered memory allocator.

#include "probe.hpp"

#include <cstdint>
#include <vector>

namespace probes {

inline constexpr std::size_t mib = std::size_t{1} << 20;

inline cudaMemPoolProps on_device(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  return properties;
}

/// A pool of device 0 that nobody else has memory in, and that keeps what it has.
class own_pool {
 public:
  explicit own_pool(verdict& v, std::size_t max_bytes = 0) : verdict_(v) {
    cudaMemPoolProps properties = on_device(0);
    properties.maxSize = max_bytes;
    v.ok("cudaMemPoolCreate", cudaMemPoolCreate(&handle_, &properties));
    std::uint64_t all = UINT64_MAX;
    v.ok("threshold", cudaMemPoolSetAttribute(handle_, cudaMemPoolAttrReleaseThreshold, &all));
  }
  ~own_pool() { static_cast<void>(cudaMemPoolDestroy(handle_)); }
  own_pool(own_pool const&) = delete;
  own_pool& operator=(own_pool const&) = delete;
  operator cudaMemPool_t() const { return handle_; }

  void* take(std::size_t bytes, cudaStream_t s) {
    void* p = nullptr;
    verdict_.ok("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&p, bytes, handle_, s));
    return p;
  }
  std::uint64_t number(cudaMemPoolAttr which) {
    std::uint64_t value = 0;
    verdict_.ok("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(handle_, which, &value));
    return value;
  }
  std::uint64_t used() { return number(cudaMemPoolAttrUsedMemCurrent); }
  std::uint64_t reserved() { return number(cudaMemPoolAttrReservedMemCurrent); }

 private:
  verdict& verdict_;
  cudaMemPool_t handle_ = nullptr;
};

// cudaDeviceGetMemPool: "By default the current mempool is the default mempool".
inline void default_pool_is_current_and_stays(verdict& v) {
  cudaMemPool_t first = nullptr, current = nullptr;
  v.ok("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&first, 0));
  v.ok("cudaDeviceGetMemPool", cudaDeviceGetMemPool(&current, 0));
  v.yes("current", first == current);
  v.code("destroy", cudaMemPoolDestroy(first), cudaErrorInvalidValue);  // "cannot be destroyed"
  v.code("no such device", cudaDeviceGetDefaultMemPool(&first, 1000), {cudaErrorInvalidDevice, cudaErrorInvalidValue});
}

// The defaults in the comment of cudaMemPoolSetAttribute.
inline void new_pool_reuses_and_keeps_nothing(verdict& v) {
  cudaMemPoolProps const properties = on_device(0);
  cudaMemPool_t pool = nullptr;
  v.ok("create", cudaMemPoolCreate(&pool, &properties));
  for (cudaMemPoolAttr const which : {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
                                      cudaMemPoolReuseAllowInternalDependencies}) {
    int on = -1;
    v.ok("get", cudaMemPoolGetAttribute(pool, which, &on));
    v.equal("reuse", on, 1);
    int off = 0;
    v.ok("set", cudaMemPoolSetAttribute(pool, which, &off));
    v.ok("get", cudaMemPoolGetAttribute(pool, which, &on));
    v.equal("reuse", on, 0);
  }
  std::uint64_t threshold = 1;
  v.ok("get", cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  v.equal("threshold", threshold, std::uint64_t{0});
  v.ok("destroy", cudaMemPoolDestroy(pool));
}

inline void pools_count_what_is_in_use(verdict& v) {
  stream const s;
  own_pool pool(v);
  v.equal("at first", pool.used(), std::uint64_t{0});
  void* const p = pool.take(4 * mib, s);
  v.yes("in use", pool.used() >= 4 * mib);
  v.yes("reserved", pool.reserved() >= pool.used());
  v.yes("the most in use", pool.number(cudaMemPoolAttrUsedMemHigh) >= 4 * mib);
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal("in the end", pool.used(), std::uint64_t{0});
  v.yes("the most in use", pool.number(cudaMemPoolAttrUsedMemHigh) >= 4 * mib);
}

// "It is illegal to set this attribute to a non-zero value"; the current sizes are not among those that can be set.
inline void high_watermarks_take_only_zero(verdict& v) {
  own_pool pool(v);
  std::uint64_t zero = 0, one = 1;
  for (cudaMemPoolAttr const which : {cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemHigh}) {
    v.code("one", cudaMemPoolSetAttribute(pool, which, &one), cudaErrorInvalidValue);
    v.ok("zero", cudaMemPoolSetAttribute(pool, which, &zero));
  }
  v.fails("current use", cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &zero));
  v.fails("current reserve", cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &zero));
}

// cudaMemPoolAttrUsedMemCurrent: "Amount of memory from the pool that is currently in use by the application". The
// stream is idle, so that the free is done at once.
inline void memory_freed_in_an_idle_stream_is_not_in_use(verdict& v) {
  stream const s;
  own_pool pool(v);
  void* const p = pool.take(64 * mib, s);
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  bool done = false;
  for (int i = 0; i < 1000 && !done; ++i) done = pool.used() == 0;
  v.yes("not in use soon after", done);
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// ... and in a stream that works, the memory is in use until the free's turn.
inline void memory_freed_behind_work_is_in_use(verdict& v) {
  stream const s;
  own_pool pool(v);
  void* const p = pool.take(64 * mib, s);
  v.ok("synchronise", cudaStreamSynchronize(s));
  gate g(v, s);
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.yes("a pool keeps what may be in use", pool.reserved() >= 64 * mib);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal("used", pool.used(), std::uint64_t{0});
}

// cudaMemPoolTrimTo: frees that the host has seen done are no reason to keep memory.
inline void trim_gives_back_what_is_free(verdict& v) {
  stream const s;
  own_pool pool(v);
  v.ok("cudaFreeAsync", cudaFreeAsync(pool.take(64 * mib, s), s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.yes("kept below the threshold", pool.reserved() >= 64 * mib);
  v.ok("trim", cudaMemPoolTrimTo(pool, 0));
  v.equal("reserved", pool.reserved(), std::uint64_t{0});
}

// "The allocator cannot release OS allocations that back outstanding asynchronous allocations."
inline void trim_keeps_what_is_in_use(verdict& v) {
  stream const s;
  own_pool pool(v);
  void* const p = pool.take(64 * mib, s);
  v.ok("trim", cudaMemPoolTrimTo(pool, 0));
  v.yes("reserved", pool.reserved() >= 64 * mib);
  v.ok("set", cudaMemsetAsync(p, 1, 64 * mib, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// "... at least minBytesToKeep bytes reserved after the operation", "If the pool has less ... a no-op".
inline void trim_keeps_as_much_as_asked(verdict& v) {
  stream const s;
  own_pool pool(v);
  v.ok("cudaFreeAsync", cudaFreeAsync(pool.take(64 * mib, s), s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  std::uint64_t const before = pool.reserved();
  v.ok("trim", cudaMemPoolTrimTo(pool, before + mib));
  v.equal("reserved", pool.reserved(), before);
  v.ok("trim", cudaMemPoolTrimTo(pool, 32 * mib));
  v.yes("reserved", pool.reserved() >= 32 * mib);
}

// Frees "whose completion has not been observed on the host ... can count as outstanding": trimming does not wait for
// them, and what is queued before the free still has its memory.
inline void trim_does_not_wait_for_frees(verdict& v) {
  stream const s;
  own_pool pool(v);
  void* const p = pool.take(64 * mib, s);
  v.ok("synchronise", cudaStreamSynchronize(s));
  gate g(v, s);
  v.ok("set", cudaMemsetAsync(p, 1, 64 * mib, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.ok("trim", cudaMemPoolTrimTo(pool, 0));
  v.code("the stream", cudaStreamQuery(s), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("trim", cudaMemPoolTrimTo(pool, 0));
  v.equal("reserved", pool.reserved(), std::uint64_t{0});
}

// cudaMemPoolAttrReleaseThreshold: more is given back "on the next call to stream, event or context synchronize".
inline void synchronise_gives_back_above_the_threshold(verdict& v) {
  stream const s;
  own_pool pool(v);
  v.ok("cudaFreeAsync", cudaFreeAsync(pool.take(64 * mib, s), s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  std::uint64_t nothing = 0;
  v.ok("threshold", cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &nothing));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal("reserved", pool.reserved(), std::uint64_t{0});
}

// cudaMemPoolDestroy: "will return immediately", resources go "once there are no more outstanding allocations".
inline void destroyed_pool_lives_on_in_its_memory(verdict& v) {
  stream const s;
  cudaMemPoolProps const properties = on_device(0);
  cudaMemPool_t pool = nullptr;
  v.ok("create", cudaMemPoolCreate(&pool, &properties));
  void* p = nullptr;
  v.ok("allocate", cudaMallocFromPoolAsync(&p, mib, pool, s));
  v.ok("destroy", cudaMemPoolDestroy(pool));
  v.ok("set", cudaMemsetAsync(p, 'a', 1, s));
  char found = 0;
  v.ok("copy", cudaMemcpyAsync(&found, p, 1, cudaMemcpyDeviceToHost, s));
  v.ok("free", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal("the byte", int{found}, int{'a'});
}

// "Destroying the current mempool of a device sets the default mempool of that device as the current mempool".
inline void destroyed_current_pool_gives_way_to_the_default(verdict& v) {
  cudaMemPool_t pool = nullptr, usual = nullptr, current = nullptr;
  cudaMemPoolProps const properties = on_device(0);
  v.ok("default", cudaDeviceGetDefaultMemPool(&usual, 0));
  v.ok("create", cudaMemPoolCreate(&pool, &properties));
  v.ok("set", cudaDeviceSetMemPool(0, pool));
  v.ok("get", cudaDeviceGetMemPool(&current, 0));
  v.yes("current", current == pool);
  v.ok("destroy", cudaMemPoolDestroy(pool));
  v.ok("get", cudaDeviceGetMemPool(&current, 0));
  v.yes("the default again", current == usual);
}

inline void pools_have_a_valid_place(verdict& v) {
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties = on_device(1000);
  v.code("no such device", cudaMemPoolCreate(&pool, &properties), {cudaErrorInvalidDevice, cudaErrorInvalidValue});
  properties = {};
  v.code("no place", cudaMemPoolCreate(&pool, &properties), cudaErrorInvalidValue);
}

// "Applications can control the maximum size of the pool by specifying a non-zero value for maxSize."
inline void full_pool_is_out_of_memory(verdict& v) {
  stream const s;
  own_pool pool(v, 64 * mib);
  void* p = nullptr;
  v.code("too much", cudaMallocFromPoolAsync(&p, 256 * mib, pool, s), cudaErrorMemoryAllocation);
  p = pool.take(16 * mib, s);
  v.ok("free", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// cudaMallocAsync: "A pointer to the allocated memory is returned immediately".
inline void address_is_known_at_once(verdict& v) {
  stream const s;
  own_pool pool(v);
  gate g(v, s);
  void* const p = pool.take(mib, s);
  v.yes("an address", p != nullptr);
  v.equal("address mod 256", reinterpret_cast<std::uintptr_t>(p) % 256, std::uintptr_t{0});
  v.ok("set", cudaMemsetAsync(p, 1, mib, s));
  v.ok("free", cudaFreeAsync(p, s));
  v.code("the stream", cudaStreamQuery(s), cudaErrorNotReady);
  g.open();
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// Memory that is freed on a stream may go to the same stream at once, and to nobody else before the free is done.
inline void pending_frees_go_to_nobody_else(verdict& v) {
  stream const s, other;
  own_pool pool(v);
  void* const p = pool.take(4 * mib, s);
  void* const unrelated = pool.take(4 * mib, other);
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("synchronise", cudaStreamSynchronize(other));
  int off = 0;  // else the driver may give it out with a wait of its own
  v.ok("no internal waits", cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off));
  gate g(v, s);
  v.ok("free", cudaFreeAsync(p, s));
  void* const q = pool.take(4 * mib, other);
  v.no("the same block", q == p);
  v.ok("synchronise with the other stream", cudaStreamSynchronize(other));
  g.open();
  v.ok("free", cudaFreeAsync(unrelated, other));
  v.ok("free", cudaFreeAsync(q, other));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("synchronise", cudaStreamSynchronize(other));
}

// cudaFreeAsync names any stream that comes after the allocation and every use.
inline void memory_is_freed_on_another_stream(verdict& v) {
  stream const s, other;
  event const e;
  own_pool pool(v);
  void* const p = pool.take(mib, s);
  v.ok("set", cudaMemsetAsync(p, 1, mib, s));
  v.ok("record", cudaEventRecord(e, s));
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("free", cudaFreeAsync(p, other));
  v.ok("synchronise", cudaStreamSynchronize(other));
  v.equal("in use", pool.used(), std::uint64_t{0});
}

// Programming guide: cudaFreeAsync takes memory of cudaMalloc, and cudaFree stream-ordered memory.
inline void free_calls_mix(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, mib));
  v.ok("set", cudaMemsetAsync(p, 1, mib, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, mib, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("cudaFree", cudaFree(p));
}

// The second code is not documented; that it is no success is what matters.
inline void stream_ordered_memory_is_freed_once(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4 * mib, s));
  v.ok("free", cudaFreeAsync(p, s));
  v.fails("free again", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.fails("free once more", cudaFreeAsync(p, s));
}

inline void stream_ordered_frees_refuse_other_memory(verdict& v) {
  stream const s;
  void* pinned = nullptr;
  int on_the_stack = 0;
  v.ok("cudaMallocHost", cudaMallocHost(&pinned, mib));
  v.fails("pinned memory", cudaFreeAsync(pinned, s));
  v.fails("the stack", cudaFreeAsync(&on_the_stack, s));
  v.code("null", cudaFreeAsync(nullptr, s), {cudaSuccess, cudaErrorInvalidValue});  // CUDA says neither
  v.ok("cudaFreeHost", cudaFreeHost(pinned));
}

inline void stream_ordered_calls_check_arguments(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.code("no place", cudaMallocAsync(static_cast<void**>(nullptr), 1, s), cudaErrorInvalidValue);
  v.code("no bytes", cudaMallocAsync(&p, 0, s), {cudaSuccess, cudaErrorInvalidValue});  // CUDA says neither
  v.yes("no memory", p == nullptr);
}

inline void stream_ordered_pointers_are_known(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, mib, s));
  cudaPointerAttributes found{};
  v.ok("attributes", cudaPointerGetAttributes(&found, p));
  v.equal<int>("type", found.type, cudaMemoryTypeDevice);
  v.equal("device", found.device, 0);
  v.yes("device pointer", found.devicePointer == p);
  v.ok("free", cudaFreeAsync(p, s));
}

// cudaMemPoolCreate: "By default, the pool's memory will be accessible from the device it is allocated on."
inline void pools_are_open_to_their_device(verdict& v) {
  own_pool pool(v);
  cudaMemLocation here{};
  here.type = cudaMemLocationTypeDevice;
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
  v.ok("get", cudaMemPoolGetAccess(&flags, pool, &here));
  v.equal<int>("access", flags, cudaMemAccessFlagsProtReadWrite);
  cudaMemAccessDesc none{};
  none.location = here;
  none.flags = cudaMemAccessFlagsProtNone;
  v.fails("take it away", cudaMemPoolSetAccess(pool, &none, 1));
}

inline void pools_are_opened_to_peers(verdict& v) {
  own_pool pool(v);
  cudaMemLocation peer{};
  peer.type = cudaMemLocationTypeDevice;
  peer.id = 1;
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtReadWrite;
  v.ok("get", cudaMemPoolGetAccess(&flags, pool, &peer));
  v.equal<int>("at first", flags, cudaMemAccessFlagsProtNone);
  int can = 0;
  v.ok("can", cudaDeviceCanAccessPeer(&can, 1, 0));
  if (can == 0) return;
  cudaMemAccessDesc open{};
  open.location = peer;
  open.flags = cudaMemAccessFlagsProtReadWrite;
  v.ok("set", cudaMemPoolSetAccess(pool, &open, 1));
  v.ok("get", cudaMemPoolGetAccess(&flags, pool, &peer));
  v.equal<int>("then", flags, cudaMemAccessFlagsProtReadWrite);
}

// cudaDeviceSetMemPool: "The memory pool must be local to the specified device."
inline void pools_are_local_to_a_device(verdict& v) {
  own_pool pool(v);
  v.code("set elsewhere", cudaDeviceSetMemPool(1, pool), {cudaErrorInvalidValue, cudaErrorInvalidDevice});
  v.ok("cudaSetDevice(1)", cudaSetDevice(1));
  stream const s;
  void* const p =
      pool.take(mib, s);  // cudaMallocFromPoolAsync: the pool "may be from a device different than" the stream
  cudaPointerAttributes found{};
  v.ok("attributes", cudaPointerGetAttributes(&found, p));
  v.equal("the pool's device", found.device, 0);
  v.ok("free", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

#if CUDART_VERSION >= 13000
/// The default pool of some memory; null where the device has no such pools.
inline cudaMemPool_t default_pool_of(verdict& v, cudaMemAllocationType type, cudaMemLocationType where) {
  cudaMemLocation location{};
  location.type = where;
  cudaMemPool_t pool = nullptr;
  cudaError_t const code = cudaMemGetDefaultMemPool(&pool, &location, type);
  v.code("cudaMemGetDefaultMemPool", code, {cudaSuccess, cudaErrorNotSupported});
  return code == cudaSuccess ? pool : nullptr;
}

/// Memory of `pool` is for the host once it is allocated, and `type` by cudaPointerGetAttributes.
inline void expect_host_memory(verdict& v, cudaMemPool_t pool, cudaMemoryType type) {
  if (pool == nullptr) return;
  stream const s;
  void* p = nullptr;
  v.ok("allocate", cudaMallocFromPoolAsync(&p, 4096, pool, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  static_cast<char volatile*>(p)[4095] = 1;
  cudaPointerAttributes what{};
  v.ok("attributes", cudaPointerGetAttributes(&what, p));
  v.equal<int>("type", what.type, type);
  v.ok("free", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

inline void host_pools_give_pinned_memory(verdict& v) {
  expect_host_memory(v, default_pool_of(v, cudaMemAllocationTypePinned, cudaMemLocationTypeHost), cudaMemoryTypeHost);
}
inline void managed_pools_give_managed_memory(verdict& v) {
  expect_host_memory(v, default_pool_of(v, cudaMemAllocationTypeManaged, cudaMemLocationTypeNone),
                     cudaMemoryTypeManaged);
}

// cudaMemGetDefaultMemPool names the locations; "In all other cases, the call return cudaErrorInvalidValue".
inline void pools_have_locations_that_go_with_their_type(verdict& v) {
  cudaMemLocation location{};
  cudaMemPool_t pool = nullptr;
  v.code("pinned memory nowhere", cudaMemGetDefaultMemPool(&pool, &location, cudaMemAllocationTypePinned),
         cudaErrorInvalidValue);
  location.type = cudaMemLocationTypeHost;
  v.code("memory of no type", cudaMemGetDefaultMemPool(&pool, &location, cudaMemAllocationTypeInvalid),
         cudaErrorInvalidValue);
  // cudaMemPoolCreate: "not IPC capable and handleTypes must be 0".
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = location;
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  v.code("a host pool for other processes", cudaMemPoolCreate(&pool, &properties),
         {cudaErrorInvalidValue, cudaErrorNotSupported});
}
#endif

inline constexpr probe pool_probes[] = {
    {"default_pool_is_current_and_stays", needs::nothing, &default_pool_is_current_and_stays},
    {"new_pool_reuses_and_keeps_nothing", needs::nothing, &new_pool_reuses_and_keeps_nothing},
    {"pools_count_what_is_in_use", needs::nothing, &pools_count_what_is_in_use},
    {"high_watermarks_take_only_zero", needs::nothing, &high_watermarks_take_only_zero},
    {"memory_freed_in_an_idle_stream_is_not_in_use", needs::nothing, &memory_freed_in_an_idle_stream_is_not_in_use},
    {"memory_freed_behind_work_is_in_use", needs::pending_work, &memory_freed_behind_work_is_in_use},
    {"trim_gives_back_what_is_free", needs::nothing, &trim_gives_back_what_is_free},
    {"trim_keeps_what_is_in_use", needs::nothing, &trim_keeps_what_is_in_use},
    {"trim_keeps_as_much_as_asked", needs::nothing, &trim_keeps_as_much_as_asked},
    {"trim_does_not_wait_for_frees", needs::pending_work, &trim_does_not_wait_for_frees},
    {"synchronise_gives_back_above_the_threshold", needs::nothing, &synchronise_gives_back_above_the_threshold},
    {"destroyed_pool_lives_on_in_its_memory", needs::nothing, &destroyed_pool_lives_on_in_its_memory},
    {"destroyed_current_pool_gives_way_to_the_default", needs::nothing,
     &destroyed_current_pool_gives_way_to_the_default},
    {"pools_have_a_valid_place", needs::nothing, &pools_have_a_valid_place},
    {"full_pool_is_out_of_memory", needs::nothing, &full_pool_is_out_of_memory},
    {"address_is_known_at_once", needs::pending_work, &address_is_known_at_once},
    {"pending_frees_go_to_nobody_else", needs::pending_work, &pending_frees_go_to_nobody_else},
    {"memory_is_freed_on_another_stream", needs::nothing, &memory_is_freed_on_another_stream},
    {"free_calls_mix", needs::nothing, &free_calls_mix},
    {"stream_ordered_memory_is_freed_once", needs::nothing, &stream_ordered_memory_is_freed_once},
    {"stream_ordered_frees_refuse_other_memory", needs::nothing, &stream_ordered_frees_refuse_other_memory},
    {"stream_ordered_calls_check_arguments", needs::nothing, &stream_ordered_calls_check_arguments},
    {"stream_ordered_pointers_are_known", needs::nothing, &stream_ordered_pointers_are_known},
    {"pools_are_open_to_their_device", needs::nothing, &pools_are_open_to_their_device},
    {"pools_are_opened_to_peers", needs::two_devices, &pools_are_opened_to_peers},
#if CUDART_VERSION >= 13000
    {"host_pools_give_pinned_memory", needs::nothing, &host_pools_give_pinned_memory},
    {"managed_pools_give_managed_memory", needs::nothing, &managed_pools_give_managed_memory},
    {"pools_have_locations_that_go_with_their_type", needs::nothing, &pools_have_locations_that_go_with_their_type},
#endif
    {"pools_are_local_to_a_device", needs::two_devices, &pools_are_local_to_a_device},
};

}  // namespace probes
