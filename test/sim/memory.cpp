// Device, pinned and managed memory, copies and sets, capacities.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

using namespace sim_test;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  return free;
}

void* device_block(std::size_t bytes) {
  void* p = nullptr;
  ok(cudaMalloc(&p, bytes));
  return p;
}

cudaPointerAttributes attributes_of(void const* p) {
  cudaPointerAttributes found{};
  ok(cudaPointerGetAttributes(&found, p));
  return found;
}

// The address sanitizer, which forbids that, looks away.
[[gnu::no_sanitize_address]] unsigned char first_byte(void const volatile* p) {
  return *static_cast<unsigned char const volatile*>(p);
}

}  // namespace

TEST_CASE_FIXTURE(fresh, "device memory is aligned to 256 bytes and starts with no particular contents") {
  auto* const first = static_cast<unsigned char*>(device_block(1000));
  auto* const second = static_cast<unsigned char*>(device_block(1000));
  CHECK_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0);
  CHECK_NE(std::memcmp(first, second, 1000), 0);
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "so does stream-ordered memory, for who reads it before its allocation has executed") {
  cudaStream_t const s = make_stream();
  void *first = nullptr, *second = nullptr;
  ok(cudaMallocAsync(&first, 1000, s));
  ok(cudaMallocAsync(&second, 1000, s));
  CHECK_NE(first_byte(first), first_byte(second));
}

TEST_CASE_FIXTURE(fresh, "a device's capacity is what cudaMemGetInfo says, and it can be used to the last byte") {
  sim::set_capacity(0, 4 * mib);
  std::size_t free = 0;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(total, 4 * mib);
  CHECK_EQ(free, 4 * mib);
  void* const p = device_block(3 * mib);
  CHECK_EQ(free_bytes(), mib);
  void* q = nullptr;
  CHECK_EQ(cudaMalloc(&q, mib + 1), cudaErrorMemoryAllocation);
  CHECK_EQ(q, nullptr);
  ok(cudaMalloc(&q, mib));
  CHECK_EQ(free_bytes(), 0);
  ok(cudaFree(p));
  CHECK_EQ(free_bytes(), 3 * mib);
}

TEST_CASE_FIXTURE(fresh, "each device has a capacity of its own") {
  sim::set_capacity(0, mib);
  ok(cudaSetDevice(1));
  static_cast<void>(device_block(2 * mib));
  CHECK_EQ(sim::live_bytes(1), 2 * mib);
  CHECK_EQ(sim::live_bytes(0), 0);
}

TEST_CASE_FIXTURE(fresh, "running out of memory is not the end: later calls work") {
  void* p = device_block(10);
  CHECK_EQ(cudaMalloc(&p, SIZE_MAX), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMalloc(&p, SIZE_MAX - 9), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMalloc(&p, 1), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh, "a capacity below what is in use leaves nothing free") {
  void* const p = device_block(2 * mib);
  sim::set_capacity(0, mib);
  CHECK_EQ(free_bytes(), 0);
  void* q = nullptr;
  CHECK_EQ(cudaMalloc(&q, 1), cudaErrorMemoryAllocation);
  ok(cudaFree(p));
  CHECK_EQ(free_bytes(), mib);
}

TEST_CASE_FIXTURE(fresh, "pinned and managed memory have a capacity of their own") {
  sim::set_host_capacity(2 * mib);
  void* p = nullptr;
  void* q = nullptr;
  ok(cudaMallocHost(&p, mib));
  CHECK_EQ(cudaMallocManaged(&q, mib + 1, cudaMemAttachGlobal), cudaErrorMemoryAllocation);
  ok(cudaMallocManaged(&q, mib, cudaMemAttachGlobal));
  void* r = nullptr;
  CHECK_EQ(cudaHostAlloc(&r, 1, cudaHostAllocDefault), cudaErrorMemoryAllocation);
  CHECK_EQ(sim::live_bytes(0), 2 * mib);
  CHECK_EQ(sim::live_allocations(), 2);
  ok(cudaFreeHost(p));
  ok(cudaFree(q));
  CHECK_EQ(sim::live_bytes(0), 0);
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(cudaMallocHost(&p, 2 * mib), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh, "memory is freed once, by the call that fits, from its first byte") {
  auto* const p = static_cast<char*>(device_block(100));
  CHECK_EQ(cudaFree(p + 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeHost(p), cudaErrorInvalidValue);
  ok(cudaFree(p));
  CHECK_EQ(cudaFree(p), cudaErrorInvalidValue);
  void* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 100));
  CHECK_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeAsync(pinned, make_stream()), cudaErrorInvalidValue);
  ok(cudaFreeHost(pinned));
  CHECK_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
  int on_the_stack = 0;
  CHECK_EQ(cudaFree(&on_the_stack), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "no bytes are no memory, and freeing nothing does nothing") {
  int dummy = 0;
  void* p = &dummy;
  ok(cudaMalloc(&p, 0));
  CHECK_EQ(p, nullptr);
  ok(cudaFree(nullptr));
  ok(cudaFreeHost(nullptr));
  CHECK_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMallocManaged(&p, 1, 77), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostAlloc(&p, 1, 0x80), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "a pointer anywhere in a block knows its kind and device") {
  ok(cudaSetDevice(1));
  auto* const p = static_cast<char*>(device_block(100));
  ok(cudaSetDevice(0));
  CHECK_EQ(attributes_of(p + 99).type, cudaMemoryTypeDevice);
  CHECK_EQ(attributes_of(p + 99).device, 1);
  CHECK_EQ(attributes_of(p + 99).devicePointer, nullptr);  // device 0 has no access to it
  ok(cudaSetDevice(1));
  CHECK_EQ(attributes_of(p + 99).devicePointer, p + 99);
  CHECK_EQ(attributes_of(p + 99).hostPointer, nullptr);
  void* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 8));
  CHECK_EQ(attributes_of(pinned).type, cudaMemoryTypeHost);
  CHECK_EQ(attributes_of(pinned).hostPointer, pinned);
  CHECK_EQ(attributes_of(pinned).devicePointer, pinned);
  void* managed = nullptr;
  ok(cudaMallocManaged(&managed, 8, cudaMemAttachGlobal));
  CHECK_EQ(attributes_of(managed).type, cudaMemoryTypeManaged);
  CHECK_EQ(attributes_of(managed).hostPointer, managed);
  void* async = nullptr;
  ok(cudaMallocAsync(&async, 8, make_stream()));
  CHECK_EQ(attributes_of(async).type, cudaMemoryTypeDevice);
  CHECK_EQ(attributes_of(async).hostPointer, nullptr);
  int on_the_stack = 0;
  CHECK_EQ(attributes_of(&on_the_stack).type, cudaMemoryTypeUnregistered);
  CHECK_EQ(attributes_of(nullptr).type, cudaMemoryTypeUnregistered);
  CHECK_EQ(cudaPointerGetAttributes(nullptr, p), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "copies and sets move real bytes") {
  void* const p = device_block(8);
  void* const q = device_block(8);
  char text[8] = "weir";
  char back[8] = {};
  ok(cudaMemcpy(p, text, 8, cudaMemcpyHostToDevice));
  ok(cudaMemcpyAsync(q, p, 8, cudaMemcpyDefault, make_stream()));
  ok(cudaMemcpy(back, q, 8, cudaMemcpyDeviceToHost));
  CHECK_EQ(std::strcmp(back, "weir"), 0);
  ok(cudaMemset(p, 'x', 8));
  ok(cudaMemcpy(back, p, 8, cudaMemcpyDeviceToHost));
  CHECK_EQ(back[7], 'x');
}

TEST_CASE_FIXTURE(fresh, "a set of a large block to 0 writes what it names, and nothing beside it") {
  constexpr std::size_t bytes = std::size_t{3} << 20;
  std::vector<unsigned char> own(bytes);
  void* block = own.data();
  SUBCASE("device memory") { block = device_block(bytes); }
  SUBCASE("managed memory") { ok(cudaMallocManaged(&block, bytes)); }
  SUBCASE("pinned memory") { ok(cudaMallocHost(&block, bytes)); }
  SUBCASE("the program's own memory") { ok(cudaHostRegister(block, bytes, cudaHostRegisterDefault)); }
  auto* const p = static_cast<unsigned char*>(block);
  for (std::size_t const begin : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{5000}}) {
    ok(cudaMemset(p, 7, bytes));
    std::size_t const size = bytes - begin - 1;
    ok(cudaMemset(p + begin, 0, size));
    std::vector<unsigned char> read(bytes);
    ok(cudaMemcpy(read.data(), p, bytes, cudaMemcpyDefault));
    std::vector<unsigned char> expected(bytes, 7);
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(begin), size, static_cast<unsigned char>(0));
    CHECK(read == expected);
  }
  if (p == own.data()) ok(cudaHostUnregister(p));
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a copy or set takes place when its stream gets there") {
  void* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 1));
  auto* const byte = static_cast<char*>(pinned);
  *byte = 'a';
  cudaStream_t const s = make_stream();
  ok(cudaMemsetAsync(pinned, 'b', 1, s));
  CHECK_EQ(*byte, 'a');
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(*byte, 'b');
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a copy from pageable memory has its bytes when the call returns") {
  void* const p = device_block(1);
  cudaStream_t const s = make_stream();
  char value = 'a';
  ok(cudaMemcpyAsync(p, &value, 1, cudaMemcpyHostToDevice, s));
  value = 'b';
  char back = 0;
  ok(cudaMemcpyAsync(&back, p, 1, cudaMemcpyDeviceToHost, s));
  CHECK_EQ(back, 0);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(back, 'a');
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy to the host waits for blocking streams and for nobody else") {
  void* const p = device_block(1);
  cudaStream_t const blocking = make_stream(cudaStreamDefault);
  cudaStream_t const other = make_stream(cudaStreamNonBlocking);
  ok(cudaMemsetAsync(p, 'a', 1, blocking));
  ok(cudaMemsetAsync(p, 'b', 1, other));
  char back = 0;
  ok(cudaMemcpy(&back, p, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(back, 'a');
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy between device memory does not wait") {
  void* const p = device_block(1);
  void* const q = device_block(1);
  ok(cudaMemcpy(q, p, 1, cudaMemcpyDeviceToDevice));
  CHECK_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
}

TEST_CASE_FIXTURE(fresh, "copies refuse what leaves an allocation, a wrong direction and memory of the wrong side") {
  auto* const p = static_cast<char*>(device_block(10));
  char host[20] = {};
  CHECK_EQ(cudaMemcpy(p, host, 11, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(p + 5, host, 6, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(p, nullptr, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(host, host, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(p, host, 1, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidMemcpyDirection);
  CHECK_EQ(cudaMemset(host, 0, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemsetAsync(p, 0, 11, make_stream()), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaFree waits for the device before device memory goes") {
  void* const p = device_block(1);
  diary d;
  cudaStream_t const s = make_stream();
  ok(cudaMemsetAsync(p, 0, 1, s));
  d.mark(s, 1);
  ok(cudaFree(p));
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaFreeAsync takes memory of cudaMalloc and frees it in stream order") {
  void* const p = device_block(mib);
  std::size_t const before = free_bytes();
  cudaStream_t const s = make_stream();
  ok(cudaMemsetAsync(p, 0, mib, s));
  ok(cudaFreeAsync(p, s));
  CHECK_EQ(sim::live_bytes(0), 0);
  CHECK_EQ(free_bytes(), before);
  CHECK_EQ(cudaFree(p), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemsetAsync(p, 0, 1, s), cudaErrorInvalidValue);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(free_bytes(), before + mib);
}

TEST_CASE_FIXTURE(fresh, "managed memory takes prefetches and advice, other memory does not") {
  void* managed = nullptr;
  ok(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal));
  void* const p = device_block(100);
#if CUDART_VERSION >= 13000
  cudaMemLocation const here{cudaMemLocationTypeDevice, 0};
  cudaMemLocation const host{cudaMemLocationTypeHost, 0};
  cudaMemLocation const nowhere{cudaMemLocationTypeDevice, 7};
  auto const prefetch = [](void* q, std::size_t n, cudaMemLocation to) {
    return cudaMemPrefetchAsync(q, n, to, 0, nullptr);
  };
#else
  int const here = 0;
  int const host = cudaCpuDeviceId;
  int const nowhere = 7;
  auto const prefetch = [](void* q, std::size_t n, int to) { return cudaMemPrefetchAsync(q, n, to, nullptr); };
#endif
  CHECK_EQ(prefetch(managed, 100, here), cudaSuccess);
  CHECK_EQ(prefetch(managed, 100, host), cudaSuccess);
  CHECK_EQ(prefetch(managed, 100, nowhere), cudaErrorInvalidDevice);
  CHECK_EQ(prefetch(managed, 101, here), cudaErrorInvalidValue);
  CHECK_EQ(prefetch(p, 100, here), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemAdvise(managed, 100, cudaMemAdviseSetReadMostly, here), cudaSuccess);
  CHECK_EQ(cudaMemAdvise(managed, 100, cudaMemAdviseSetPreferredLocation, nowhere), cudaErrorInvalidDevice);
  CHECK_EQ(cudaMemAdvise(p, 100, cudaMemAdviseSetReadMostly, here), cudaErrorInvalidValue);
#if CUDART_VERSION < 13000
  cudaMemLocation const by_location{cudaMemLocationTypeDevice, 0};
  CHECK_EQ(cudaMemPrefetchAsync_v2(managed, 100, by_location, 0, nullptr), cudaSuccess);
  CHECK_EQ(cudaMemAdvise_v2(managed, 100, cudaMemAdviseSetReadMostly, by_location), cudaSuccess);
  CHECK_EQ(sim::calls("cudaMemAdvise"), 4);
#endif
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "managed memory remembers what was advised, and its last prefetch once that is done") {
  void* memory = nullptr;
  ok(cudaMallocManaged(&memory, 300, cudaMemAttachGlobal));
  auto* const p = static_cast<char*>(memory);
  auto const ask = [&](cudaMemRangeAttribute what, std::size_t from, std::size_t bytes) {
    int answer = 77;
    ok(cudaMemRangeGetAttribute(&answer, sizeof answer, what, p + from, bytes));
    return answer;
  };
#if CUDART_VERSION >= 13000
  cudaMemLocation const second{cudaMemLocationTypeDevice, 1};
  auto const prefetch = [&] { return cudaMemPrefetchAsync(p + 100, 100, second, 0, cudaStreamPerThread); };
#else
  int const second = 1;
  auto const prefetch = [&] { return cudaMemPrefetchAsync(p + 100, 100, second, cudaStreamPerThread); };
#endif
  ok(prefetch());
  CHECK_EQ(ask(cudaMemRangeAttributeLastPrefetchLocation, 100, 100), cudaInvalidDeviceId);
  ok(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK_EQ(ask(cudaMemRangeAttributeLastPrefetchLocation, 100, 100), 1);
  CHECK_EQ(ask(cudaMemRangeAttributeLastPrefetchLocation, 99, 100), cudaInvalidDeviceId);
  CHECK_EQ(ask(cudaMemRangeAttributeLastPrefetchLocation, 101, 100), cudaInvalidDeviceId);

  ok(cudaMemAdvise(p, 200, cudaMemAdviseSetReadMostly, second));
  ok(cudaMemAdvise(p, 200, cudaMemAdviseSetPreferredLocation, second));
  ok(cudaMemAdvise(p, 200, cudaMemAdviseSetAccessedBy, second));
  ok(cudaMemAdvise(p + 50, 50, cudaMemAdviseUnsetReadMostly, second));
  CHECK_EQ(ask(cudaMemRangeAttributeReadMostly, 0, 50), 1);
  CHECK_EQ(ask(cudaMemRangeAttributeReadMostly, 0, 51), 0);
  CHECK_EQ(ask(cudaMemRangeAttributeReadMostly, 100, 100), 1);
  CHECK_EQ(ask(cudaMemRangeAttributePreferredLocation, 0, 200), 1);
  CHECK_EQ(ask(cudaMemRangeAttributePreferredLocation, 0, 201), cudaInvalidDeviceId);
  int devices[3] = {};
  ok(cudaMemRangeGetAttribute(devices, sizeof devices, cudaMemRangeAttributeAccessedBy, p, 200));
  CHECK_EQ(devices[0], 1);
  CHECK_EQ(devices[1], cudaInvalidDeviceId);
  ok(cudaMemAdvise(p, 200, cudaMemAdviseUnsetAccessedBy, second));
  ok(cudaMemAdvise(p, 200, cudaMemAdviseUnsetPreferredLocation, second));
  CHECK_EQ(ask(cudaMemRangeAttributePreferredLocation, 0, 200), cudaInvalidDeviceId);
  ok(cudaMemRangeGetAttribute(devices, sizeof devices, cudaMemRangeAttributeAccessedBy, p, 200));
  CHECK_EQ(devices[0], cudaInvalidDeviceId);
}

TEST_CASE_FIXTURE(fresh, "devices reach the memory of malloc where they say so") {
  std::vector<unsigned char> memory(100, 1);
#if CUDART_VERSION >= 13000
  cudaMemLocation const here{cudaMemLocationTypeDevice, 0};
#else
  int const here = 0;
#endif
  for (bool const reached : {false, true, false}) {
    sim::set_pageable_access(reached);
    int value = 7;
    ok(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 1));
    CHECK_EQ(value, reached ? 1 : 0);
    cudaError_t const expected = reached ? cudaSuccess : cudaErrorInvalidValue;
    CHECK_EQ(cudaMemsetAsync(memory.data(), 9, 50, cudaStreamPerThread), expected);
    CHECK_EQ(cudaMemAdvise(memory.data(), 50, cudaMemAdviseSetReadMostly, here), expected);
    int advised = 7;
    CHECK_EQ(cudaMemRangeGetAttribute(&advised, sizeof advised, cudaMemRangeAttributeReadMostly, memory.data(), 50),
             expected);
    CHECK_EQ(advised, reached ? 1 : 7);
  }
  CHECK_EQ(memory[49], 9);
  CHECK_EQ(memory[50], 1);
  sim::set_pageable_access(true);
  sim::reset();
  CHECK_EQ(cudaMemsetAsync(memory.data(), 9, 50, cudaStreamPerThread), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "attaching managed memory to a stream takes its place in it") {
  void* managed = nullptr;
  ok(cudaMallocManaged(&managed, 100, cudaMemAttachHost));
  cudaStream_t const s = make_stream();
  CHECK_EQ(cudaStreamAttachMemAsync(s, managed, 0, cudaMemAttachSingle), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  CHECK_EQ(cudaStreamAttachMemAsync(s, managed, 100, cudaMemAttachGlobal), cudaSuccess);
  CHECK_EQ(cudaStreamAttachMemAsync(s, managed, 50, cudaMemAttachGlobal), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamAttachMemAsync(s, managed, 0, 3), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamAttachMemAsync(nullptr, managed, 0, cudaMemAttachSingle), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamAttachMemAsync(s, device_block(1), 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh,
                  "cudaDeviceReset takes memory, streams and events of its device, but not stream-ordered memory") {
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  cudaEvent_t elsewhere = nullptr;
  static_cast<void>(device_block(10));
  void* async = nullptr;
  ok(cudaMallocAsync(&async, 100, s));
  ok(cudaSetDevice(1));
  static_cast<void>(device_block(1000));
  elsewhere = make_event();
  ok(cudaSetDevice(0));
  ok(cudaDeviceReset());
  CHECK_EQ(cudaEventQuery(elsewhere), cudaSuccess);
  CHECK_EQ(sim::live_bytes(0), 100);
  CHECK_EQ(sim::live_bytes(1), 1000);
  CHECK_EQ(cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventQuery(e), cudaErrorInvalidResourceHandle);
  ok(cudaFreeAsync(async, make_stream()));
}
