// Memory of the program that is registered to be pinned, and what can be asked about pinned memory.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <vector>

using namespace sim_test;

namespace {

struct registered : fresh_and_lazy {
  std::vector<char> memory = std::vector<char>(4096, 'a');
  registered() { ok(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault)); }
};

cudaMemoryType type_of(void const* p) {
  cudaPointerAttributes found{};
  ok(cudaPointerGetAttributes(&found, p));
  return found.type;
}

}  // namespace

TEST_CASE_FIXTURE(registered, "registered memory is pinned memory until it is unregistered") {
  CHECK_EQ(type_of(memory.data() + 4095), cudaMemoryTypeHost);
  CHECK_EQ(type_of(memory.data() + 4096), cudaMemoryTypeUnregistered);
  ok(cudaHostUnregister(memory.data()));
  CHECK_EQ(type_of(memory.data()), cudaMemoryTypeUnregistered);
}

TEST_CASE_FIXTURE(registered,
                  "a copy from registered memory reads it when the stream gets there, as from pinned memory") {
  void* p = nullptr;
  ok(cudaMalloc(&p, 1));
  cudaStream_t const s = make_stream();
  ok(cudaMemcpyAsync(p, memory.data(), 1, cudaMemcpyHostToDevice, s));
  memory[0] = 'b';
  ok(cudaMemcpyAsync(&memory[1], p, 1, cudaMemcpyDeviceToHost, s));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(memory[1], 'b');
}

TEST_CASE_FIXTURE(registered, "devices may write registered memory, up to its end") {
  cudaStream_t const s = make_stream();
  ok(cudaMemsetAsync(memory.data() + 4095, 'c', 1, s));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(memory[4095], 'c');
  CHECK_EQ(cudaMemsetAsync(memory.data() + 1, 'c', 4096, s), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(registered, "memory is registered once, by its own base, and CUDA's memory never") {
  char* const first = memory.data();
  CHECK_EQ(cudaHostRegister(first, 1, 0), cudaErrorHostMemoryAlreadyRegistered);
  CHECK_EQ(cudaHostRegister(first + 4095, 100, 0), cudaErrorHostMemoryAlreadyRegistered);
  CHECK_EQ(cudaHostRegister(first - 1, 2, 0), cudaErrorHostMemoryAlreadyRegistered);
  CHECK_EQ(cudaHostUnregister(first + 1), cudaErrorHostMemoryNotRegistered);
  CHECK_EQ(cudaHostUnregister(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeHost(first), cudaErrorInvalidValue);
  ok(cudaHostUnregister(first));
  CHECK_EQ(cudaHostUnregister(first), cudaErrorHostMemoryNotRegistered);
  void* pinned = nullptr;
  void* device = nullptr;
  ok(cudaMallocHost(&pinned, 10));
  ok(cudaMalloc(&device, 10));
  CHECK_EQ(cudaHostRegister(pinned, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  CHECK_EQ(cudaHostRegister(device, 10, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostUnregister(pinned), cudaErrorHostMemoryNotRegistered);
}

TEST_CASE_FIXTURE(fresh, "registration refuses nothing, no bytes and flags that it does not know or cannot follow") {
  char byte = 0;
  CHECK_EQ(cudaHostRegister(nullptr, 1, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostRegister(&byte, 0, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostRegister(&byte, 1, 0x10), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostRegister(&byte, 1, cudaHostRegisterReadOnly), cudaErrorNotSupported);
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh, "registered memory counts as pinned memory does, and reset lets it go") {
  std::vector<char> memory(2000);
  sim::set_host_capacity(1999);
  CHECK_EQ(cudaHostRegister(memory.data(), 2000, 0), cudaErrorMemoryAllocation);
  sim::set_host_capacity(2000);
  ok(cudaHostRegister(memory.data(), 2000, 0));
  CHECK_EQ(sim::live_bytes(0), 2000);
  void* p = nullptr;
  CHECK_EQ(cudaMallocHost(&p, 1), cudaErrorMemoryAllocation);
  ok(cudaHostUnregister(memory.data()));
  CHECK_EQ(sim::live_bytes(0), 0);
  ok(cudaMallocHost(&p, 1));
  ok(cudaFreeHost(p));
  ok(cudaHostRegister(memory.data(), 2000, 0));
  sim::reset();
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(type_of(memory.data()), cudaMemoryTypeUnregistered);
}

TEST_CASE_FIXTURE(registered, "cudaDeviceReset unregisters what was registered for its device") {
  ok(cudaSetDevice(1));
  ok(cudaDeviceReset());
  CHECK_EQ(type_of(memory.data()), cudaMemoryTypeHost);
  ok(cudaSetDevice(0));
  ok(cudaDeviceReset());
  CHECK_EQ(type_of(memory.data()), cudaMemoryTypeUnregistered);
  CHECK_EQ(sim::live_bytes(0), 0);
}

TEST_CASE_FIXTURE(registered, "pinned memory has one address for the host and the devices, and keeps its flags") {
  void* found = nullptr;
  ok(cudaHostGetDevicePointer(&found, memory.data() + 5, 0));
  CHECK_EQ(found, memory.data() + 5);
  void* pinned = nullptr;
  ok(cudaHostAlloc(&pinned, 100, cudaHostAllocPortable | cudaHostAllocWriteCombined));
  ok(cudaHostGetDevicePointer(&found, pinned, 0));
  CHECK_EQ(found, pinned);
  unsigned flags = 0;
  ok(cudaHostGetFlags(&flags, pinned));
  CHECK_EQ(flags, cudaHostAllocPortable | cudaHostAllocWriteCombined);
  CHECK_EQ(cudaHostGetDevicePointer(&found, pinned, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostGetDevicePointer(nullptr, pinned, 0), cudaErrorInvalidValue);
  void* device = nullptr;
  ok(cudaMalloc(&device, 100));
  CHECK_EQ(cudaHostGetDevicePointer(&found, device, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostGetDevicePointer(&found, &flags, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostGetFlags(&flags, device), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostGetFlags(nullptr, pinned), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostGetFlags(&flags, memory.data()), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "memory that is unregistered before its copies are done is reported") {
  sim::check_order(true);
  std::vector<char> memory(100);
  void* p = nullptr;
  ok(cudaMalloc(&p, 100));
  cudaStream_t const s = make_stream();
  for (bool const waits : {false, true}) {
    ok(cudaHostRegister(memory.data(), 100, 0));
    ok(cudaMemcpyAsync(p, memory.data(), 100, cudaMemcpyHostToDevice, s));
    if (waits) ok(cudaStreamSynchronize(s));
    ok(cudaHostUnregister(memory.data()));
    CHECK_EQ(sim::report_count(), 1);
  }
  CHECK_EQ(sim::reports()[0].kind, sim::order_problem::free_not_after_use);
  ok(cudaMemcpyAsync(p, memory.data(), 100, cudaMemcpyHostToDevice, s));  // its memory still, and nobody else's
  CHECK_EQ(sim::report_count(), 1);
}
