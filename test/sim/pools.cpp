// Stream-ordered memory and its pools.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <unistd.h>
#include <cstdint>
#include <cstring>

using namespace sim_test;

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = kib * kib;

cudaMemPoolProps on_device(int device, std::size_t max_bytes = 0) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  properties.maxSize = max_bytes;
  return properties;
}

cudaMemPool_t make_pool(int device = 0, std::size_t max_bytes = 0) {
  cudaMemPoolProps const properties = on_device(device, max_bytes);
  cudaMemPool_t pool = nullptr;
  ok(cudaMemPoolCreate(&pool, &properties));
  return pool;
}

void keep_everything(cudaMemPool_t pool) {
  std::uint64_t threshold = UINT64_MAX;
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

std::uint64_t size_of(cudaMemPool_t pool, cudaMemPoolAttr which) {
  std::uint64_t value = 0;
  ok(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

void* from_pool(cudaMemPool_t pool, std::size_t bytes, cudaStream_t stream) {
  void* p = nullptr;
  ok(cudaMallocFromPoolAsync(&p, bytes, pool, stream));
  return p;
}

}  // namespace

TEST_CASE_FIXTURE(fresh,
                  "cudaMallocAsync takes from the current pool of the stream's device, whatever device is current") {
  cudaStream_t const s = make_stream();
  ok(cudaSetDevice(1));
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 100, s));
  CHECK_EQ(sim::live_bytes(0), 100);
  CHECK_EQ(sim::live_bytes(1), 0);
  cudaMemPool_t pool = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemCurrent), 100);
  ok(cudaFreeAsync(p, s));
  CHECK_EQ(sim::live_bytes(0), 0);
}

TEST_CASE_FIXTURE(fresh, "a pool may serve streams of another device") {
  cudaMemPool_t const pool = make_pool(1);
  cudaStream_t const s = make_stream();
  void* const p = from_pool(pool, 100, s);
  CHECK_EQ(sim::live_bytes(1), 100);
  cudaPointerAttributes found{};
  ok(cudaPointerGetAttributes(&found, p));
  CHECK_EQ(found.type, cudaMemoryTypeDevice);
  CHECK_EQ(found.device, 1);
  ok(cudaFreeAsync(p, s));
}

TEST_CASE_FIXTURE(fresh, "freed memory stays reserved until a synchronise, and longer under a release threshold") {
  cudaMemPool_t const pool = make_pool();
  cudaStream_t const s = make_stream();
  ok(cudaFreeAsync(from_pool(pool, mib, s), s));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), mib);
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemCurrent), 0);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), 0);
  ok(cudaFreeAsync(from_pool(pool, mib, s), s));
  ok(cudaEventSynchronize(make_event()));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), 0);
  keep_everything(pool);
  ok(cudaFreeAsync(from_pool(pool, mib, s), s));
  ok(cudaDeviceSynchronize());
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), mib);
}

TEST_CASE_FIXTURE(fresh, "what a pool reserves counts against its device, and trimming gives it back") {
  sim::set_capacity(0, 4 * mib);
  cudaMemPool_t const pool = make_pool();
  keep_everything(pool);
  cudaStream_t const s = make_stream();
  void* const kept = from_pool(pool, mib, s);
  ok(cudaFreeAsync(from_pool(pool, 2 * mib, s), s));
  std::size_t free = 0;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, mib);
  ok(cudaMemPoolTrimTo(pool, 2 * mib));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), 2 * mib);
  ok(cudaMemPoolTrimTo(pool, 0));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), mib);
  ok(cudaMemPoolTrimTo(pool, 3 * mib));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), mib);
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, 3 * mib);
  ok(cudaFreeAsync(kept, s));
}

TEST_CASE_FIXTURE(fresh, "high watermarks are reset by writing 0 and take no other value") {
  cudaMemPool_t const pool = make_pool();
  cudaStream_t const s = make_stream();
  ok(cudaFreeAsync(from_pool(pool, mib, s), s));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemHigh), mib);
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemHigh), mib);
  std::uint64_t value = 5;
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &value), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value), cudaErrorInvalidValue);
  value = 0;
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value), cudaErrorInvalidValue);
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &value));
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemHigh), 0);
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemHigh), 0);
}

TEST_CASE_FIXTURE(fresh, "a new pool allows every reuse and holds on to nothing") {
  cudaMemPool_t const pool = make_pool();
  for (cudaMemPoolAttr const which : {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
                                      cudaMemPoolReuseAllowInternalDependencies}) {
    int on = -1;
    ok(cudaMemPoolGetAttribute(pool, which, &on));
    CHECK_EQ(on, 1);
    on = 0;
    ok(cudaMemPoolSetAttribute(pool, which, &on));
    on = -1;
    ok(cudaMemPoolGetAttribute(pool, which, &on));
    CHECK_EQ(on, 0);
  }
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReleaseThreshold), 0);
}

TEST_CASE_FIXTURE(fresh, "a pool's own maximum holds, and what it has reserved counts towards it") {
  cudaMemPool_t const pool = make_pool(0, 2 * mib);
  keep_everything(pool);
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&p, 2 * mib + 1, pool, s), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMallocFromPoolAsync(&p, SIZE_MAX, pool, s), cudaErrorMemoryAllocation);
  CHECK_EQ(p, nullptr);
  ok(cudaFreeAsync(from_pool(pool, 2 * mib, s), s));
  void* const first = from_pool(pool, mib, s);
  void* const second = from_pool(pool, mib, s);
  CHECK_EQ(cudaMallocFromPoolAsync(&p, 1, pool, s), cudaErrorMemoryAllocation);
  CHECK_EQ(size_of(pool, cudaMemPoolAttrReservedMemCurrent), 2 * mib);
  ok(cudaFreeAsync(first, s));
  ok(cudaFreeAsync(second, s));
}

TEST_CASE_FIXTURE(fresh, "a destroyed pool's memory stays until it is freed") {
  sim::set_capacity(0, mib);
  cudaMemPool_t const pool = make_pool();
  cudaStream_t const s = make_stream();
  void* const p = from_pool(pool, kib, s);
  ok(cudaMemPoolDestroy(pool));
  CHECK_EQ(cudaMemPoolTrimTo(pool, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
  ok(cudaMemsetAsync(p, 1, kib, s));
  CHECK_EQ(sim::live_bytes(0), kib);
  ok(cudaFreeAsync(p, s));
  std::size_t free = 0;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, mib);
}

TEST_CASE_FIXTURE(fresh, "a device's pool can be changed, and falls back to the default when that pool is destroyed") {
  cudaMemPool_t normal = nullptr;
  cudaMemPool_t current = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&normal, 0));
  cudaMemPool_t const mine = make_pool(0);
  ok(cudaDeviceSetMemPool(0, mine));
  ok(cudaDeviceGetMemPool(&current, 0));
  CHECK_EQ(current, mine);
  CHECK_EQ(cudaDeviceSetMemPool(1, mine), cudaErrorInvalidValue);
  CHECK_EQ(cudaDeviceSetMemPool(5, mine), cudaErrorInvalidDevice);
  ok(cudaMemPoolDestroy(mine));
  ok(cudaDeviceGetMemPool(&current, 0));
  CHECK_EQ(current, normal);
  CHECK_EQ(cudaMemPoolDestroy(normal), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "pools of memory that these devices lack are not supported") {
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties = on_device(0);
  properties.handleTypes = cudaMemHandleTypeWin32;
  CHECK_EQ(cudaMemPoolCreate(&pool, &properties), cudaErrorNotSupported);
  properties = on_device(9);
  CHECK_EQ(cudaMemPoolCreate(&pool, &properties), cudaErrorInvalidDevice);
  properties = {};
  CHECK_EQ(cudaMemPoolCreate(&pool, &properties), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolCreate(nullptr, &properties), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "access of other devices can be given and taken, a device's own access stays") {
  cudaMemPool_t const pool = make_pool(0);
  cudaMemLocation other{};
  other.type = cudaMemLocationTypeDevice;
  other.id = 1;
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtRead;
  ok(cudaMemPoolGetAccess(&flags, pool, &other));
  CHECK_EQ(flags, cudaMemAccessFlagsProtNone);
  cudaMemAccessDesc wish{};
  wish.location = other;
  wish.flags = cudaMemAccessFlagsProtReadWrite;
  ok(cudaMemPoolSetAccess(pool, &wish, 1));
  ok(cudaMemPoolGetAccess(&flags, pool, &other));
  CHECK_EQ(flags, cudaMemAccessFlagsProtReadWrite);
  wish.location.id = 0;
  wish.flags = cudaMemAccessFlagsProtNone;
  CHECK_EQ(cudaMemPoolSetAccess(pool, &wish, 1), cudaErrorInvalidDevice);
  CHECK_EQ(cudaMemPoolSetAccess(pool, nullptr, 1), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "stream-ordered calls refuse wrong arguments with the documented codes") {
  cudaStream_t const s = make_stream();
  int dummy = 0;
  void* p = nullptr;
  CHECK_EQ(cudaMallocAsync(nullptr, 1, s), cudaErrorInvalidValue);
  CHECK_EQ(cudaMallocAsync(&p, 1, reinterpret_cast<cudaStream_t>(&dummy)), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaMallocFromPoolAsync(&p, 1, nullptr, s), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeAsync(nullptr, s), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeAsync(&dummy, s), cudaErrorInvalidValue);
  ok(cudaMallocAsync(&p, 1, s));
  CHECK_EQ(cudaFreeAsync(p, reinterpret_cast<cudaStream_t>(&dummy)), cudaErrorInvalidResourceHandle);
  ok(cudaFreeAsync(p, s));
  CHECK_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "the stream that freed a block may have it at once, with the old work still to come") {
  cudaStream_t const s = make_stream();
  cudaMemPool_t const pool = make_pool(0, 100);
  void* const first = from_pool(pool, 100, s);
  sim::touch(s, first, 100, sim::access::write);
  ok(cudaFreeAsync(first, s));
  void* const second = from_pool(pool, 100, s);
  CHECK_EQ(second, first);
  CHECK_EQ(sim::live_bytes(0), 100);
  sim::touch(s, second, 100, sim::access::read);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemCurrent), 100);
  ok(cudaFreeAsync(second, s));
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a block that was freed, taken over and freed again goes with its last free") {
  cudaStream_t const s = make_stream();
  cudaMemPool_t const pool = make_pool();
  keep_everything(pool);
  cudaEvent_t const first_free = make_event();
  ok(cudaFreeAsync(from_pool(pool, 100, s), s));
  ok(cudaEventRecord(first_free, s));
  void* const again = from_pool(pool, 100, s);
  sim::touch(s, again, 100, sim::access::write);
  ok(cudaFreeAsync(again, s));
  ok(cudaEventSynchronize(first_free));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemCurrent), 100);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemCurrent), 0);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "another stream does not get a block before its free has executed") {
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaMemPool_t const pool = make_pool();
  void* const first = from_pool(pool, 100, a);
  ok(cudaFreeAsync(first, a));
  CHECK_NE(from_pool(pool, 100, b), first);
  CHECK_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  CHECK_EQ(size_of(pool, cudaMemPoolAttrUsedMemCurrent), 100);  // who asks finds it done: nothing is in front of it
}

TEST_CASE_FIXTURE(fresh, "a pool hands out first what another stream freed last, as soon as that is allowed") {
  cudaStream_t const a = make_stream(), b = make_stream(), c = make_stream();
  cudaMemPool_t const pool = make_pool();
  std::uint64_t threshold = ~std::uint64_t{0};
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  auto const take = [&](cudaStream_t s) {
    void* p = nullptr;
    ok(cudaMallocFromPoolAsync(&p, 4096, pool, s));
    return p;
  };
  auto const forbid = [&](cudaMemPoolAttr policy) {
    int no = 0;
    ok(cudaMemPoolSetAttribute(pool, policy, &no));
  };
  void *const by_a = take(a), *const by_b = take(b);
  SUBCASE("its free is done") {
    ok(cudaFreeAsync(by_a, a));
    ok(cudaFreeAsync(by_b, b));
    SUBCASE("the last one for a third stream") { CHECK_EQ(take(c), by_b); }
    SUBCASE("another one's for a stream that freed one itself") { CHECK_EQ(take(b), by_a); }
    SUBCASE("its own if that is forbidden") {
      forbid(cudaMemPoolReuseAllowOpportunistic);
      CHECK_EQ(take(b), by_b);
    }
  }
  SUBCASE("its free is queued") {
    sim::set_mode(sim::mode::lazy);
    cudaEvent_t const e = make_event();
    ok(cudaEventRecord(e, a));
    ok(cudaFreeAsync(by_a, a));
    SUBCASE("and nothing orders the two streams") { CHECK_NE(take(c), by_a); }
    SUBCASE("and the event stands before it") {
      ok(cudaStreamWaitEvent(c, e, 0));
      CHECK_NE(take(c), by_a);
    }
    SUBCASE("behind an event that the stream waits for") {
      ok(cudaEventRecord(e, a));
      ok(cudaStreamWaitEvent(b, e, 0));
      ok(cudaEventRecord(e, b));
      ok(cudaStreamWaitEvent(c, e, 0));
      SUBCASE("allowed") {
        REQUIRE_EQ(take(c), by_a);
        sim::touch(c, by_a, 4096, sim::access::write);
        ok(cudaStreamSynchronize(c));
        ok(cudaFreeAsync(by_a, c));
      }
      SUBCASE("forbidden") {
        forbid(cudaMemPoolReuseFollowEventDependencies);
        CHECK_NE(take(c), by_a);
      }
    }
  }
  sim::run_all();
}

// Looked at one by one, each with all that is queued, they would take hours.
TEST_CASE_FIXTURE(fresh_and_lazy, "many blocks whose frees are queued are handed out in no time") {
  constexpr std::size_t count = 20'000;
  cudaStream_t const a = make_stream(), b = make_stream();
  cudaEvent_t const half = make_event();
  std::vector<void*> freed(count), taken(count);
  for (void*& p : freed) ok(cudaMallocAsync(&p, 256, a));
  for (std::size_t i = 0; i < count; ++i) {
    if (i == count / 2) ok(cudaEventRecord(half, a));
    ok(cudaFreeAsync(freed[i], a));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (i == count / 2) ok(cudaStreamWaitEvent(b, half, 0));
    ok(cudaMallocAsync(&taken[i], 256, b));
  }
  std::size_t reused = 0;
  for (std::size_t i = 0; i < count / 2; ++i) {
    if (taken[count / 2 + i] == freed[count / 2 - 1 - i]) ++reused;  // the last one first
  }
  CHECK_EQ(reused, count / 2);
  for (void* const p : taken) ok(cudaFreeAsync(p, b));
  ok(cudaDeviceSynchronize());
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh, "what a pool keeps is handed out with the size asked for, and within its maximum") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void *p = nullptr, *q = nullptr;
  ok(cudaMallocAsync(&p, 4096, a));
  ok(cudaFreeAsync(p, a));
  ok(cudaMallocAsync(&q, 8192, b));
  sim::touch(b, q, 8192, sim::access::write);
  CHECK_NE(q, p);
  sim::set_capacity(0, 8192);
  CHECK_EQ(cudaMallocAsync(&q, 4096, b), cudaErrorMemoryAllocation);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a full pool waits for its own queued frees before it fails") {
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaMemPool_t const pool = make_pool(0, 100);
  diary d;
  void* const first = from_pool(pool, 60, a);
  d.mark(a, 1);
  ok(cudaFreeAsync(first, a));
  d.mark(a, 2);  // it may wait for what the host does next
  void* const second = from_pool(pool, 70, b);
  CHECK_EQ(d.reached(), numbers{1});
  void* p = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&p, 31, pool, b), cudaErrorMemoryAllocation);
  ok(cudaFreeAsync(second, b));
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a full pool does not wait where internal dependencies are forbidden") {
  cudaMemPool_t const pool = make_pool(0, 100);
  int off = 0;
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off));
  cudaStream_t const a = make_stream();
  ok(cudaFreeAsync(from_pool(pool, 100, a), a));
  void* p = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&p, 50, pool, make_stream()), cudaErrorMemoryAllocation);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaFree of stream-ordered memory does not wait") {
  cudaStream_t const s = make_stream();
  void* const p = from_pool(make_pool(), 100, s);
  ok(cudaFree(p));
  CHECK_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "trimming leaves the memory of frees that are still queued, and takes it after them") {
  cudaMemPool_t pool = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t keep_all = UINT64_MAX;
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  auto const reserved = [&] {
    std::uint64_t value = 0;
    ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
    return value;
  };
  cudaStream_t const s = make_stream();
  cudaStream_t const other = make_stream();
  void* p = nullptr;
  void* q = nullptr;
  void* live = nullptr;
  ok(cudaMallocAsync(&p, 1000, s));
  ok(cudaMallocAsync(&q, 500, other));
  ok(cudaMallocAsync(&live, 10, s));
  ok(cudaFreeAsync(p, s));
  ok(cudaFreeAsync(q, other));
  ok(cudaMemPoolTrimTo(pool, 0));
  CHECK_EQ(reserved(), 1510);
  ok(cudaStreamSynchronize(s));  // one of the two frees is done now
  CHECK_EQ(reserved(), 1510);
  ok(cudaMemPoolTrimTo(pool, 0));
  CHECK_EQ(reserved(), 510);
  ok(cudaStreamSynchronize(other));
  ok(cudaMemPoolTrimTo(pool, 100));
  CHECK_EQ(reserved(), 100);
  ok(cudaMemPoolTrimTo(pool, 50));
  ok(cudaMemPoolTrimTo(pool, 1000));
  CHECK_EQ(reserved(), 50);
  ok(cudaMemPoolTrimTo(pool, 0));
  CHECK_EQ(reserved(), 10);
}

TEST_CASE_FIXTURE(fresh,
                  "single allocations and events are not shared with other processes, and the attribute says so") {
  int value = -1;
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrIpcEventSupport, 0));
  CHECK_EQ(value, 0);
  void* p = nullptr;
  ok(cudaMalloc(&p, 1));
  cudaIpcMemHandle_t memory{};
  CHECK_EQ(cudaIpcGetMemHandle(&memory, p), cudaErrorNotSupported);
  CHECK_EQ(cudaIpcOpenMemHandle(&p, memory, cudaIpcMemLazyEnablePeerAccess), cudaErrorNotSupported);
  CHECK_EQ(cudaIpcCloseMemHandle(p), cudaErrorNotSupported);
  cudaEvent_t event = make_event();
  cudaIpcEventHandle_t shared{};
  CHECK_EQ(cudaIpcGetEventHandle(&shared, event), cudaErrorNotSupported);
  CHECK_EQ(cudaIpcOpenEventHandle(&event, shared), cudaErrorNotSupported);
  CHECK_EQ(cudaGetLastError(), cudaErrorNotSupported);
}

namespace {

constexpr auto by_descriptor = cudaMemHandleTypePosixFileDescriptor;

/// A pool that may be exported, its descriptor, and what is imported from that.
struct shared_pools {
  cudaMemPool_t exporter = nullptr, importer = nullptr;
  int descriptor = -1;

  shared_pools() {
    cudaMemPoolProps properties = on_device(0);
    properties.handleTypes = by_descriptor;
    ok(cudaMemPoolCreate(&exporter, &properties));
    ok(cudaMemPoolExportToShareableHandle(&descriptor, exporter, by_descriptor, 0));
    ok(import_into(importer));
  }
  ~shared_pools() { ::close(descriptor); }
  shared_pools(shared_pools const&) = delete;
  shared_pools& operator=(shared_pools const&) = delete;

  cudaError_t import_into(cudaMemPool_t& pool) const {
    auto const handle = static_cast<std::uintptr_t>(descriptor);
    return cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(handle), by_descriptor, 0);
  }
};

}  // namespace

TEST_CASE_FIXTURE(fresh, "a pool is exported by a file descriptor, and its memory is the importer's as well") {
  int types = 0;
  ok(cudaDeviceGetAttribute(&types, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
  CHECK_EQ(types, by_descriptor);
  shared_pools const pools;
  void *p = nullptr, *q = nullptr;
  ok(cudaMallocFromPoolAsync(&p, 1000, pools.exporter, nullptr));
  cudaMemPoolPtrExportData data{};
  ok(cudaMemPoolExportPointer(&data, p));
  ok(cudaMemPoolImportPointer(&q, pools.importer, &data));
  CHECK_EQ(size_of(pools.importer, cudaMemPoolAttrUsedMemCurrent), 1000);
  int seven = 7, found = 0;
  ok(cudaMemcpy(p, &seven, sizeof seven, cudaMemcpyDefault));
  ok(cudaMemcpy(&found, q, sizeof found, cudaMemcpyDefault));
  CHECK_EQ(found, 7);
  // The importer's free ends its import only.
  ok(cudaFreeAsync(q, nullptr));
  CHECK_EQ(size_of(pools.importer, cudaMemPoolAttrUsedMemCurrent), 0);
  CHECK_EQ(sim::live_allocations(), 1);
  ok(cudaMemcpy(&found, p, sizeof found, cudaMemcpyDefault));
  CHECK_EQ(found, 7);
  ok(cudaFreeAsync(p, nullptr));
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(cudaMemPoolImportPointer(&q, pools.importer, &data), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "an imported pool gives nothing itself, and is not the current one of a device") {
  shared_pools const pools;
  void* p = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&p, 1000, pools.importer, nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaDeviceSetMemPool(0, pools.importer), cudaErrorInvalidValue);
  int descriptor = -1;
  CHECK_EQ(cudaMemPoolExportToShareableHandle(&descriptor, pools.importer, by_descriptor, 0), cudaErrorInvalidValue);
  ok(cudaMemPoolDestroy(pools.importer));
}

TEST_CASE_FIXTURE(fresh, "a pool for other processes gives nothing back to the system while it is there") {
  shared_pools const pools;
  void* p = nullptr;
  ok(cudaMallocFromPoolAsync(&p, 1000, pools.exporter, nullptr));
  ok(cudaFreeAsync(p, nullptr));
  ok(cudaStreamSynchronize(nullptr));
  ok(cudaMemPoolTrimTo(pools.exporter, 0));
  CHECK_EQ(size_of(pools.exporter, cudaMemPoolAttrReservedMemCurrent), 1000);
  std::size_t before = 0, after = 0, total = 0;
  ok(cudaMemGetInfo(&before, &total));
  ok(cudaMemPoolDestroy(pools.exporter));
  ok(cudaMemGetInfo(&after, &total));
  CHECK_EQ(after - before, 1000);
}

TEST_CASE_FIXTURE(fresh, "what cannot be exported or imported is refused") {
  shared_pools const pools;
  cudaMemPool_t plain = nullptr, imported = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&plain, 0));
  int descriptor = -1;
  auto const import = [&](int from) {
    auto const handle = static_cast<std::uintptr_t>(from);
    return cudaMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(handle), by_descriptor, 0);
  };
  CHECK_EQ(cudaMemPoolExportToShareableHandle(&descriptor, plain, by_descriptor, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolExportToShareableHandle(&descriptor, pools.exporter, by_descriptor, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolExportToShareableHandle(&descriptor, pools.exporter, cudaMemHandleTypeWin32, 0),
           cudaErrorInvalidValue);
  CHECK_EQ(import(-1), cudaErrorInvalidValue);
  CHECK_EQ(import(0), cudaErrorInvalidValue);  // a file, but no pool
  void* p = nullptr;
  cudaMemPoolPtrExportData data{};
  ok(cudaMallocAsync(&p, 1000, nullptr));
  CHECK_EQ(cudaMemPoolExportPointer(&data, p), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolImportPointer(&p, pools.exporter, &data), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolImportPointer(&p, pools.importer, &data), cudaErrorInvalidValue);
  ok(cudaMemPoolDestroy(pools.exporter));
  CHECK_EQ(pools.import_into(imported), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "memory of a pool on the host is the host's, and a device's once that is given access") {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeHost;
  cudaMemPool_t pool = nullptr;
  ok(cudaMemPoolCreate(&pool, &properties));
  sim::set_host_capacity(5000);
  void* p = nullptr;
  ok(cudaMallocFromPoolAsync(&p, 4000, pool, cudaStreamLegacy));
  void* none = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&none, 4000, pool, cudaStreamLegacy), cudaErrorMemoryAllocation);
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  std::memset(p, 1, 4000);
  cudaPointerAttributes what{};
  ok(cudaPointerGetAttributes(&what, p));
  CHECK_EQ(what.type, cudaMemoryTypeHost);
  CHECK_EQ(what.hostPointer, p);
  CHECK_EQ(what.devicePointer, nullptr);
  cudaMemAccessDesc access{{cudaMemLocationTypeDevice, 0}, cudaMemAccessFlagsProtReadWrite};
  ok(cudaMemPoolSetAccess(pool, &access, 1));
  ok(cudaPointerGetAttributes(&what, p));
  CHECK_EQ(what.devicePointer, p);
  ok(cudaFreeAsync(p, cudaStreamLegacy));
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  ok(cudaMallocFromPoolAsync(&p, 5000, pool, cudaStreamLegacy));  // its room came back
  ok(cudaFreeAsync(p, cudaStreamLegacy));
  ok(cudaMemPoolDestroy(pool));
}

#if CUDART_VERSION >= 13000
TEST_CASE_FIXTURE(fresh, "pools go by location too") {
  cudaMemLocation device{cudaMemLocationTypeDevice, 1};
  cudaMemPool_t by_device = nullptr;
  cudaMemPool_t by_location = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&by_device, 1));
  ok(cudaMemGetDefaultMemPool(&by_location, &device, cudaMemAllocationTypePinned));
  CHECK_EQ(by_location, by_device);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = device;
  cudaMemPool_t mine = nullptr;
  ok(cudaMemPoolCreate(&mine, &properties));
  ok(cudaMemSetMemPool(&device, cudaMemAllocationTypePinned, mine));
  ok(cudaMemGetMemPool(&by_location, &device, cudaMemAllocationTypePinned));
  CHECK_EQ(by_location, mine);
  ok(cudaDeviceGetMemPool(&by_device, 1));
  CHECK_EQ(by_device, mine);
  cudaMemLocation first{cudaMemLocationTypeDevice, 0};
  CHECK_EQ(cudaMemSetMemPool(&first, cudaMemAllocationTypePinned, mine), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemSetMemPool(&first, cudaMemAllocationTypePinned, nullptr), cudaErrorInvalidValue);
  cudaMemLocation nowhere{cudaMemLocationTypeDevice, 9};
  CHECK_EQ(cudaMemGetMemPool(&by_location, &nowhere, cudaMemAllocationTypePinned), cudaErrorInvalidDevice);
  CHECK_EQ(cudaMemGetDefaultMemPool(&by_location, &device, cudaMemAllocationTypeInvalid), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemGetDefaultMemPool(nullptr, &device, cudaMemAllocationTypePinned), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "memory of a managed pool is everyone's, and is charged to the host as managed memory is") {
  cudaMemLocation nowhere{};
  cudaMemPool_t pool = nullptr, again = nullptr;
  ok(cudaMemGetDefaultMemPool(&pool, &nowhere, cudaMemAllocationTypeManaged));
  ok(cudaMemGetMemPool(&again, &nowhere, cudaMemAllocationTypeManaged));
  CHECK_EQ(again, pool);
  sim::set_capacity(0, 0);
  void* p = nullptr;
  ok(cudaMallocFromPoolAsync(&p, 4000, pool, cudaStreamLegacy));
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  std::memset(p, 1, 4000);
  ok(cudaSetDevice(1));
  ok(cudaMemsetAsync(p, 2, 100, cudaStreamLegacy));
  ok(cudaStreamSynchronize(cudaStreamLegacy));
  CHECK_EQ(static_cast<char*>(p)[99], 2);
  CHECK_EQ(static_cast<char*>(p)[100], 1);
  cudaPointerAttributes what{};
  ok(cudaPointerGetAttributes(&what, p));
  CHECK_EQ(what.type, cudaMemoryTypeManaged);
  ok(cudaMemPrefetchAsync(p, 4000, {cudaMemLocationTypeDevice, 1}, 0, cudaStreamLegacy));
  ok(cudaFreeAsync(p, cudaStreamLegacy));
}

TEST_CASE_FIXTURE(fresh, "a current pool is one of that memory, and gives way to the default when it is destroyed") {
  cudaMemLocation host{cudaMemLocationTypeHost, 0}, nowhere{};
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = host;
  cudaMemPool_t usual = nullptr, mine = nullptr, current = nullptr;
  ok(cudaMemGetDefaultMemPool(&usual, &host, cudaMemAllocationTypePinned));
  ok(cudaMemPoolCreate(&mine, &properties));
  ok(cudaMemSetMemPool(&host, cudaMemAllocationTypePinned, mine));
  CHECK_EQ(cudaMemSetMemPool(&nowhere, cudaMemAllocationTypeManaged, mine), cudaErrorInvalidValue);
  CHECK_EQ(cudaDeviceSetMemPool(0, mine), cudaErrorInvalidValue);
  ok(cudaMemGetMemPool(&current, &host, cudaMemAllocationTypePinned));
  CHECK_EQ(current, mine);
  ok(cudaMemPoolDestroy(mine));
  ok(cudaMemGetMemPool(&current, &host, cudaMemAllocationTypePinned));
  CHECK_EQ(current, usual);
  CHECK_EQ(cudaMemPoolDestroy(usual), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "a default pool of managed memory outlives a reset, as new") {
  cudaMemLocation nowhere{};
  cudaMemPool_t pool = nullptr, again = nullptr;
  ok(cudaMemGetDefaultMemPool(&pool, &nowhere, cudaMemAllocationTypeManaged));
  std::uint64_t threshold = 5;
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  sim::reset();
  ok(cudaMemGetDefaultMemPool(&again, &nowhere, cudaMemAllocationTypeManaged));
  CHECK_EQ(again, pool);
  ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK_EQ(threshold, 0);
}
#endif
