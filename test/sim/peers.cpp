// Several devices: access to each other's memory, and copies between them.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <stdexcept>

using namespace sim_test;

namespace {

char* block_on(int device, std::size_t bytes = 1) {
  int before = 0;
  ok(cudaGetDevice(&before));
  ok(cudaSetDevice(device));
  void* p = nullptr;
  ok(cudaMalloc(&p, bytes));
  ok(cudaSetDevice(before));
  return static_cast<char*>(p);
}

cudaStream_t stream_on(int device, unsigned flags = cudaStreamNonBlocking) {
  ok(cudaSetDevice(device));
  cudaStream_t const s = make_stream(flags);
  ok(cudaSetDevice(0));
  return s;
}

char read(char const* p) {
  char value = 0;
  ok(cudaMemcpy(&value, p, 1, cudaMemcpyDefault));
  return value;
}

}  // namespace

TEST_CASE_FIXTURE(fresh, "each device can have access to each other one, but not to itself") {
  int can = -1;
  ok(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK_EQ(can, 1);
  ok(cudaDeviceCanAccessPeer(&can, 1, 1));
  CHECK_EQ(can, 0);
  CHECK_EQ(cudaDeviceCanAccessPeer(&can, 0, 2), cudaErrorInvalidDevice);
  CHECK_EQ(cudaDeviceCanAccessPeer(nullptr, 0, 1), cudaErrorInvalidValue);
  ok(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 0, 1));
  CHECK_EQ(can, 1);
  CHECK_EQ(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 0, 0), cudaErrorInvalidDevice);
  CHECK_EQ(cudaDeviceGetP2PAttribute(nullptr, cudaDevP2PAttrAccessSupported, 0, 1), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh, "devices that cannot reach each other give no access, and keep their own") {
  sim::set_peers(false);
  int can = -1;
  ok(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK_EQ(can, 0);
  ok(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 0, 1));
  CHECK_EQ(can, 0);
  CHECK_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
  cudaMemPool_t pool = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&pool, 0));
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = 0;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  ok(cudaMemPoolSetAccess(pool, &access, 1));
  access.location.id = 1;
  CHECK_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);
  access.flags = cudaMemAccessFlagsProtNone;
  ok(cudaMemPoolSetAccess(pool, &access, 1));
  sim::reset();
  ok(cudaDeviceEnablePeerAccess(1, 0));
}

TEST_CASE_FIXTURE(fresh, "access is enabled once, disabled once, and refused where it makes no sense") {
  CHECK_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  ok(cudaDeviceEnablePeerAccess(1, 0));
  CHECK_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  CHECK_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessUnsupported);
  CHECK_EQ(cudaDeviceEnablePeerAccess(7, 0), cudaErrorInvalidDevice);
  CHECK_EQ(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
  ok(cudaSetDevice(1));
  CHECK_EQ(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);  // it is one-way
  ok(cudaSetDevice(0));
  ok(cudaDeviceDisablePeerAccess(1));
  CHECK_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST_CASE_FIXTURE(fresh, "a kernel may use another device's memory only with access to it") {
  char* const p = block_on(1);
  CHECK_NOTHROW(sim::touch(nullptr, p, 1, sim::access::write));  // not checked unless asked for
  sim::check_access(true);
  CHECK_THROWS_AS(sim::touch(nullptr, p, 1, sim::access::write), std::invalid_argument);
  ok(cudaDeviceEnablePeerAccess(1, 0));
  CHECK_NOTHROW(sim::touch(nullptr, p, 1, sim::access::write));
  cudaPointerAttributes found{};
  ok(cudaPointerGetAttributes(&found, p));
  CHECK_EQ(found.devicePointer, p);
  ok(cudaSetDevice(1));
  ok(cudaDeviceReset());
  ok(cudaSetDevice(0));
  CHECK_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);  // the reset ended it
  sim::reset();
  CHECK_NOTHROW(sim::touch(nullptr, block_on(1), 1, sim::access::write));
}

TEST_CASE_FIXTURE(fresh, "access to a pool's memory goes by the pool, not by the peers") {
  sim::check_access(true);
  cudaStream_t const s = stream_on(1);
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 10, s));
  ok(cudaStreamSynchronize(s));
  ok(cudaDeviceEnablePeerAccess(1, 0));
  CHECK_THROWS_AS(sim::touch(nullptr, p, 10, sim::access::read), std::invalid_argument);
  cudaMemPool_t pool = nullptr;
  ok(cudaDeviceGetDefaultMemPool(&pool, 1));
  cudaMemAccessDesc desc{};
  desc.location = {cudaMemLocationTypeDevice, 0};
  desc.flags = cudaMemAccessFlagsProtReadWrite;
  ok(cudaMemPoolSetAccess(pool, &desc, 1));
  CHECK_NOTHROW(sim::touch(nullptr, p, 10, sim::access::read));
}

TEST_CASE_FIXTURE(fresh, "pinned and managed memory are for every device") {
  sim::check_access(true);
  void* pinned = nullptr;
  void* managed = nullptr;
  ok(cudaMallocHost(&pinned, 10));
  ok(cudaMallocManaged(&managed, 10, cudaMemAttachGlobal));
  cudaStream_t const s = stream_on(1);
  CHECK_NOTHROW(sim::touch(s, pinned, 10, sim::access::write));
  CHECK_NOTHROW(sim::touch(s, managed, 10, sim::access::write));
}

TEST_CASE_FIXTURE(fresh, "bytes are copied from device to device without access") {
  char* const from = block_on(1);
  char* const to = block_on(0);
  ok(cudaMemset(from, 'a', 1));
  ok(cudaMemcpyPeer(to, 0, from, 1, 1));
  CHECK_EQ(read(to), 'a');
  ok(cudaMemset(from, 'b', 1));
  ok(cudaMemcpyPeerAsync(to, 0, from, 1, 1, nullptr));
  CHECK_EQ(read(to), 'b');
  CHECK_EQ(sim::calls("cudaMemcpyPeer"), 1);
}

TEST_CASE_FIXTURE(fresh, "copies between devices refuse wrong devices and wrong memory") {
  char* const from = block_on(1);
  char* const to = block_on(0);
  char on_the_stack = 0;
  CHECK_EQ(cudaMemcpyPeer(to, 0, from, 2, 1), cudaErrorInvalidDevice);
  CHECK_EQ(cudaMemcpyPeer(to, -1, from, 1, 1), cudaErrorInvalidDevice);
  CHECK_EQ(cudaMemcpyPeer(to, 1, from, 1, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpyPeer(to, 0, from, 1, 2), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpyPeer(to, 0, &on_the_stack, 1, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpyPeer(nullptr, 0, nullptr, 1, 0), cudaSuccess);
  CHECK_EQ(cudaMemcpyPeerAsync(to, 0, from, 1, 2, nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpyPeerAsync(to, 0, from, 5, 1, nullptr), cudaErrorInvalidDevice);
  cudaStream_t const s = make_stream();
  ok(cudaStreamDestroy(s));
  CHECK_EQ(cudaMemcpyPeerAsync(to, 0, from, 1, 1, s), cudaErrorInvalidResourceHandle);
}

TEST_CASE_FIXTURE(fresh_and_lazy,
                  "cudaMemcpyPeer comes after the work of both devices, and their later work after it") {
  sim::set_device_count(3);
  char* const from = block_on(1);
  char* const to = block_on(2);
  cudaStream_t const sender = stream_on(1, cudaStreamDefault);
  cudaStream_t const receiver = stream_on(2, cudaStreamDefault);
  ok(cudaMemsetAsync(from, 'a', 1, sender));
  ok(cudaMemsetAsync(to, 'z', 1, receiver));
  ok(cudaMemcpyPeer(to, 2, from, 1, 1));
  CHECK_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);  // the host does not wait
  ok(cudaMemsetAsync(from, 'b', 1, sender));
  ok(cudaStreamSynchronize(sender));
  ok(cudaMemcpyPeerAsync(from, 1, to, 2, 1, receiver));
  ok(cudaStreamSynchronize(receiver));
  CHECK_EQ(read(from), 'a');
}

TEST_CASE_FIXTURE(fresh, "cudaMemcpyPeer orders blocking streams for the check, cudaMemcpyPeerAsync only its own") {
  sim::check_order(true);
  char* const from = block_on(1);
  cudaStream_t const reader = stream_on(0, cudaStreamDefault);
  cudaStream_t const sender = stream_on(1, cudaStreamDefault);
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 1, reader));
  ok(cudaMemcpyPeer(p, 0, from, 1, 1));
  ok(cudaMemcpyPeerAsync(from, 1, p, 0, 1, sender));
  ok(cudaFreeAsync(p, reader));
  REQUIRE_EQ(sim::report_count(), 1);  // the sender's copy is nobody's but its own
  CHECK_EQ(sim::reports()[0].kind, sim::order_problem::free_not_after_use);
}
