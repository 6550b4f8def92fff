// The driver's virtual memory: each function does what CUDA documents, and refuses what CUDA refuses.

#include "driver.hpp"
#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

using namespace sim_test;
using sim::access;

namespace {

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  return free;
}

void write(void* p, std::size_t bytes = MiB) { sim::touch(nullptr, p, bytes, access::write); }

/// How much of the host's memory stands for physical memory: the blocks of the one file that it is made of.
std::size_t host_bytes() {
  for (auto const& open : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    auto const file = std::filesystem::read_symlink(open.path(), gone);
    struct stat known {};
    if (file.string().find("weir::sim") != std::string::npos && stat(open.path().c_str(), &known) == 0)
      return static_cast<std::size_t>(known.st_blocks) * 512;
  }
  return 0;
}

/// Whether the program may read there. The kernel looks, so that nothing crashes.
bool can_read(void const* p) {
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  bool const can = ::write(ends[1], p, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return can;
}

/// The driver's functions, in a fresh world with 16 MiB of reserved addresses.
struct reserved : fresh {
  driver cu;
  CUdeviceptr const base = cu.reserve(16 * MiB);

  CUdeviceptr mapped(std::size_t offset, CUmemGenericAllocationHandle memory, std::size_t bytes = chunk) const {
    ok(cu.map(base + offset, bytes, 0, memory, 0));
    return base + offset;
  }
  /// Mapped and open to device 0.
  void* usable(std::size_t offset, CUmemGenericAllocationHandle memory, std::size_t bytes = chunk) const {
    CUdeviceptr const at = mapped(offset, memory, bytes);
    cu.open(at, bytes);
    return pointer(at);
  }
};

}  // namespace

TEST_CASE_FIXTURE(reserved, "memory is used through views of it") {
  auto const memory = cu.create(chunk);
  void* const p = usable(0, memory);
  ok(cudaMemset(p, 7, chunk));
  std::vector<unsigned char> read(chunk);
  ok(cudaMemcpy(read.data(), p, chunk, cudaMemcpyDeviceToHost));
  CHECK_EQ(read.front(), 7);
  CHECK_EQ(read.back(), 7);
  write(p, chunk);
  ok(cu.unmap(base, chunk));
  ok(cu.release(memory));
  ok(cu.free(base, 16 * MiB));
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(reserved, "a set of views to 0 writes what it names, seen through every view") {
  auto const memory = cu.create(chunk);
  auto* const p = static_cast<unsigned char*>(usable(0, memory));
  void* const other = usable(chunk, memory);
  ok(cudaMemset(p, 7, chunk));
  ok(cudaMemset(p + 5000, 0, chunk - 5001));
  std::vector<unsigned char> read(chunk), expected(chunk, 0);
  std::fill_n(expected.begin(), 5000, static_cast<unsigned char>(7));
  expected.back() = 7;
  ok(cudaMemcpy(read.data(), other, chunk, cudaMemcpyDeviceToHost));
  CHECK(read == expected);
}

TEST_CASE_FIXTURE(reserved, "two views of one memory hold the same bytes, also after one is gone") {
  auto const memory = cu.create(chunk);
  void* const p = usable(0, memory);
  void* const q = usable(8 * MiB, memory);
  ok(cudaMemset(p, 1, chunk));
  unsigned char byte = 0;
  ok(cudaMemcpy(&byte, q, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(byte, 1);
  ok(cu.unmap(base, chunk));
  ok(cudaMemcpy(&byte, q, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(byte, 1);
}

TEST_CASE_FIXTURE(reserved, "views side by side are one range to copies, sets and kernels") {
  usable(0, cu.create(chunk));
  usable(chunk, cu.create(2 * chunk), 2 * chunk);
  write(pointer(base), 3 * chunk);
  ok(cudaMemset(pointer(base + MiB), 3, 4 * MiB));
  unsigned char byte = 0;
  ok(cudaMemcpy(&byte, pointer(base + 5 * MiB - 1), 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(byte, 3);
  CHECK_EQ(cudaMemset(pointer(base), 0, 3 * chunk + 1), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(reserved, "nobody can use a hole, nor memory that no device has access to") {
  CHECK_THROWS_AS(write(pointer(base)), std::invalid_argument);
  auto const memory = cu.create(chunk);
  mapped(0, memory);
  CHECK_THROWS_AS(write(pointer(base)), std::invalid_argument);
  CHECK_EQ(cudaMemset(pointer(base), 0, 1), cudaErrorInvalidValue);
  cu.open(base, chunk);
  write(pointer(base));
  CHECK_THROWS_AS(write(pointer(base + chunk - 1), 2), std::invalid_argument);
  cu.open(base, chunk, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK_THROWS_AS(write(pointer(base)), std::invalid_argument);
  cu.open(base, chunk);
  ok(cu.unmap(base, chunk));
  CHECK_THROWS_AS(write(pointer(base)), std::invalid_argument);
  mapped(0, memory);  // access has to be given anew
  CHECK_THROWS_AS(write(pointer(base)), std::invalid_argument);
}

TEST_CASE_FIXTURE(reserved, "a use that begins in host memory may not run into reserved addresses") {
  CHECK_THROWS_AS(write(pointer(base - 1), 2), std::invalid_argument);
}

TEST_CASE_FIXTURE(reserved, "physical memory counts from its creation until its last handle and last view are gone") {
  std::size_t const before = free_bytes();
  auto const memory = cu.create(4 * MiB);
  CHECK_EQ(free_bytes(), before - 4 * MiB);
  CHECK_EQ(sim::live_bytes(0), 4 * MiB);
  CHECK_EQ(sim::live_allocations(), 1);
  usable(0, memory, 4 * MiB);
  usable(8 * MiB, memory, 4 * MiB);
  CHECK_EQ(free_bytes(), before - 4 * MiB);
  SUBCASE("the views go last") {
    ok(cu.release(memory));
    ok(cu.unmap(base, 4 * MiB));
    CHECK_EQ(free_bytes(), before - 4 * MiB);
    CHECK_EQ(sim::live_allocations(), 1);
    ok(cu.unmap(base + 8 * MiB, 4 * MiB));
  }
  SUBCASE("the handle goes last") {
    ok(cu.unmap(base, 4 * MiB));
    ok(cu.unmap(base + 8 * MiB, 4 * MiB));
    CHECK_EQ(free_bytes(), before - 4 * MiB);
    CHECK_EQ(sim::live_allocations(), 1);
    ok(cu.release(memory));
  }
  CHECK_EQ(free_bytes(), before);
  CHECK_EQ(sim::live_bytes(0), 0);
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(reserved, "a device has no more memory than its capacity, whoever takes it") {
  sim::set_capacity(0, 8 * MiB);
  void* p = nullptr;
  ok(cudaMalloc(&p, 3 * MiB));
  cu.create(4 * MiB);
  CUmemGenericAllocationHandle handle = 0;
  auto const on_0 = driver::memory_of(0);
  CHECK_EQ(cu.create_handle(&handle, chunk, &on_0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  cu.create(chunk, 1);
  ok(cudaFree(p));
  cu.create(chunk);
  CHECK_EQ(cudaMalloc(&p, 3 * MiB), cudaErrorMemoryAllocation);
}

TEST_CASE_FIXTURE(reserved, "the host has the memory back once it is gone") {
  auto const memory = cu.create(8 * MiB);
  std::size_t const before = host_bytes();
  ok(cudaMemset(usable(0, memory, 8 * MiB), 1, 8 * MiB));
  CHECK_GT(host_bytes(), before);
  ok(cu.release(memory));
  ok(cu.unmap(base, 8 * MiB));
  CHECK_LT(host_bytes(), before);
}

TEST_CASE_FIXTURE(reserved, "a plain access to a hole faults, as does one to memory that is not open") {
  auto const memory = cu.create(chunk);
  CHECK_FALSE(can_read(pointer(base)));
  mapped(0, memory);
  CHECK_FALSE(can_read(pointer(base)));
  cu.open(base, chunk);
  CHECK(can_read(pointer(base)));
  CHECK_FALSE(can_read(pointer(base + chunk)));
  ok(cu.unmap(base, chunk));
  CHECK_FALSE(can_read(pointer(base)));
}

TEST_CASE_FIXTURE(reserved, "many small pieces need no file descriptor each") {
  CUdeviceptr const at = cu.reserve(4096 * chunk);
  for (std::size_t i = 0; i < 4096; ++i) ok(cu.map(at + i * chunk, chunk, 0, cu.create(chunk), 0));
  cu.open(at, 4096 * chunk);
  sim::touch(nullptr, pointer(at + 4095 * chunk), 16, access::write);
}

TEST_CASE_FIXTURE(fresh,
                  "addresses are aligned as asked, at least to the granularity, and where asked if they are free") {
  driver const cu;
  std::size_t const handles = sim::live_handles();
  CUdeviceptr a = 0, b = 0, c = 0;
  ok(cu.address_reserve(&a, chunk, 0, 0, 0));
  CHECK_EQ(a % chunk, 0);
  ok(cu.address_reserve(&b, chunk, 64 * MiB, 0, 0));
  CHECK_EQ(b % (64 * MiB), 0);
  ok(cu.free(b, chunk));
  ok(cu.address_reserve(&c, chunk, 0, b, 0));
  CHECK_EQ(c, b);
  ok(cu.address_reserve(&c, chunk, 0, b, 0));
  CHECK_NE(c, b);
  CHECK_EQ(sim::live_handles(), handles + 3);
  CHECK_EQ(sim::live_allocations(), 0);
  ok(cu.address_reserve(&c, std::size_t{1} << 40, 0, 0, 0));  // costs nothing
}

TEST_CASE_FIXTURE(reserved, "wrong reservations are refused") {
  CUdeviceptr at = 0;
  CHECK_EQ(cu.address_reserve(nullptr, chunk, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.address_reserve(&at, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.address_reserve(&at, MiB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.address_reserve(&at, chunk, 3 * MiB, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.address_reserve(&at, chunk, 0, base + 1, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.address_reserve(&at, chunk, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.address_reserve(&at, std::size_t{1} << 62, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE_FIXTURE(reserved, "a range is freed as it was reserved, and once nothing is mapped in it") {
  CHECK_EQ(cu.free(base, 8 * MiB), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.free(base + chunk, 14 * MiB), CUDA_ERROR_INVALID_VALUE);
  mapped(8 * MiB, cu.create(chunk));
  CHECK_EQ(cu.free(base, 16 * MiB), CUDA_ERROR_INVALID_VALUE);
  ok(cu.unmap(base + 8 * MiB, chunk));
  ok(cu.free(base, 16 * MiB));
  CHECK_EQ(cu.free(base, 16 * MiB), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE_FIXTURE(reserved, "memory may be asked for that could be shared by a file descriptor, and is not shared") {
  auto wanted = driver::memory_of(0);
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  ok(cu.create_handle(&handle, chunk, &wanted, 0));
  int descriptor = -1;
  CHECK_EQ(cu.export_handle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
           CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(FOUND(cuMemImportFromShareableHandle)(&handle, pointer(7), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
           CUDA_ERROR_NOT_SUPPORTED);
  ok(cu.release(handle));
}

TEST_CASE_FIXTURE(reserved, "wrong physical memory is refused") {
  CUmemGenericAllocationHandle handle = 0;
  auto wanted = driver::memory_of(0);
  auto const code = [&] { return cu.create_handle(&handle, chunk, &wanted, 0); };
  SUBCASE("no place for the handle") {
    CHECK_EQ(cu.create_handle(nullptr, chunk, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  }
  SUBCASE("no bytes") { CHECK_EQ(cu.create_handle(&handle, 0, &wanted, 0), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("off granularity") { CHECK_EQ(cu.create_handle(&handle, MiB, &wanted, 0), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("flags") { CHECK_EQ(cu.create_handle(&handle, chunk, &wanted, 1), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("no properties") { CHECK_EQ(cu.create_handle(&handle, chunk, nullptr, 0), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("no type") {
    wanted.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CHECK_EQ(code(), CUDA_ERROR_INVALID_VALUE);
  }
  SUBCASE("no such device") {
    wanted.location.id = 2;
    CHECK_EQ(code(), CUDA_ERROR_INVALID_DEVICE);
  }
  SUBCASE("to be shared with other processes") {
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
    CHECK_EQ(code(), CUDA_ERROR_NOT_SUPPORTED);
  }
  SUBCASE("for other adapters of the machine") {
    wanted.allocFlags.gpuDirectRDMACapable = 1;
    CHECK_EQ(code(), CUDA_ERROR_NOT_SUPPORTED);
  }
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);  // the last error is the runtime's own
}

TEST_CASE_FIXTURE(reserved, "memory is mapped whole, in reserved addresses where nothing is mapped") {
  auto const memory = cu.create(4 * MiB);
  mapped(4 * MiB, memory, 4 * MiB);
  auto const map = [&](std::size_t offset, std::size_t bytes) { return cu.map(base + offset, bytes, 0, memory, 0); };
  SUBCASE("over a view") { CHECK_EQ(map(4 * MiB, 4 * MiB), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("into a view from below") { CHECK_EQ(map(2 * MiB, 4 * MiB), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("into a view from above") { CHECK_EQ(map(6 * MiB, 4 * MiB), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("out of the range") { CHECK_EQ(map(14 * MiB, 4 * MiB), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("where nothing is reserved") { CHECK_EQ(map(16 * MiB, chunk), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("an address off granularity") { CHECK_EQ(map(1, chunk), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("a size off granularity") { CHECK_EQ(map(0, MiB), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("no bytes") { CHECK_EQ(map(0, 0), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("more than there is") { CHECK_EQ(map(8 * MiB, 6 * MiB), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("an offset") { CHECK_EQ(cu.map(base, chunk, chunk, memory, 0), CUDA_ERROR_NOT_SUPPORTED); }
  SUBCASE("flags") { CHECK_EQ(cu.map(base, chunk, 0, memory, 1), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("no such handle") { CHECK_EQ(cu.map(base, chunk, 0, memory + 16, 0), CUDA_ERROR_INVALID_VALUE); }
  SUBCASE("a handle that was released") {
    ok(cu.release(memory));
    CHECK_EQ(map(0, 4 * MiB), CUDA_ERROR_INVALID_VALUE);
  }
  SUBCASE("next to a view is right") { CHECK_EQ(map(8 * MiB, 4 * MiB), CUDA_SUCCESS); }
}

TEST_CASE_FIXTURE(reserved, "views are unmapped and opened whole, one or several side by side") {
  auto const memory = cu.create(4 * MiB);
  mapped(0, memory, 4 * MiB);
  mapped(4 * MiB, memory, 4 * MiB);
  mapped(12 * MiB, memory, 4 * MiB);
  struct part {
    std::size_t offset, bytes;
  };
  for (part const p : {part{0, chunk}, part{chunk, chunk}, part{0, 6 * MiB}, part{chunk, 6 * MiB}, part{8 * MiB, chunk},
                       part{4 * MiB, 12 * MiB}, part{0, 16 * MiB}, part{0, 0}, part{20 * MiB, chunk}}) {
    CAPTURE(p.offset);
    CAPTURE(p.bytes);
    CHECK_EQ(cu.unmap(base + p.offset, p.bytes), CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc const access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_EQ(cu.set_access(base + p.offset, p.bytes, &access, 1), CUDA_ERROR_INVALID_VALUE);
  }
  cu.open(base, 8 * MiB);
  write(pointer(base), 8 * MiB);
  ok(cu.unmap(base, 8 * MiB));
  CHECK_EQ(cu.unmap(base, 8 * MiB), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE_FIXTURE(reserved, "access is each device's own") {
  CUmemLocation const first{CU_MEM_LOCATION_TYPE_DEVICE, 0}, second{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  auto const flags = [&](CUmemLocation const& of) {
    unsigned long long result = 99;
    ok(cu.get_access(&result, &of, base + MiB));
    return result;
  };
  mapped(0, cu.create(chunk));
  CHECK_EQ(flags(first), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc both[] = {{first, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, {second, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  ok(cu.set_access(base, chunk, both, 2));
  CHECK_EQ(flags(first), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK_EQ(flags(second), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  cu.open(base, chunk, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK_EQ(flags(first), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  sim::check_access(true);
  CHECK_THROWS_AS(write(pointer(base)), std::invalid_argument);
  ok(cudaSetDevice(1));
  write(pointer(base));
}

TEST_CASE_FIXTURE(reserved, "wrong access is refused") {
  mapped(0, cu.create(chunk));
  auto const set = [&](CUmemLocationType type, int id, unsigned flags) {
    CUmemAccessDesc const access{{type, id}, static_cast<CUmemAccess_flags>(flags)};
    return cu.set_access(base, chunk, &access, 1);
  };
  CHECK_EQ(set(CU_MEM_LOCATION_TYPE_DEVICE, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_DEVICE);
  CHECK_EQ(set(CU_MEM_LOCATION_TYPE_DEVICE, 0, 9), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(set(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(cu.set_access(base, chunk, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc const access{};
  CHECK_EQ(cu.set_access(base, chunk, &access, 0), CUDA_ERROR_INVALID_VALUE);
  unsigned long long flags = 0;
  CUmemLocation const device{CU_MEM_LOCATION_TYPE_DEVICE, 0}, none{CU_MEM_LOCATION_TYPE_DEVICE, 7};
  CHECK_EQ(cu.get_access(&flags, &device, base + chunk), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.get_access(nullptr, &device, base), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.get_access(&flags, nullptr, base), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.get_access(&flags, &none, base), CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE_FIXTURE(reserved, "a handle is released once for each time that it was made or retained") {
  auto const memory = cu.create(chunk);
  mapped(0, memory);
  CUmemGenericAllocationHandle again = 0;
  ok(cu.retain(&again, pointer(base + MiB)));
  CHECK_EQ(again, memory);
  ok(cu.release(memory));
  ok(cu.release(memory));
  CHECK_EQ(cu.release(memory), CUDA_ERROR_INVALID_VALUE);
  ok(cu.retain(&again, pointer(base)));  // the view is still there
  CHECK_EQ(again, memory);
  ok(cu.unmap(base, chunk));
  CHECK_EQ(sim::live_allocations(), 1);
  ok(cu.release(memory));
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(cu.retain(&again, pointer(base)), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.retain(nullptr, pointer(base)), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE_FIXTURE(reserved, "in which handles memory may be shared can be asked of it") {
  CUmemAllocationProp wanted{}, is{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory = 0;
  ok(cu.create_handle(&memory, chunk, &wanted, 0));
  ok(cu.properties(&is, memory));
  CHECK_EQ(is.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  ok(cu.release(memory));
}

TEST_CASE_FIXTURE(reserved, "what memory is can be asked of its handle and of its addresses") {
  auto const memory = cu.create(chunk, 1);
  CUmemAllocationProp is{};
  ok(cu.properties(&is, memory));
  CHECK_EQ(is.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  CHECK_EQ(is.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK_EQ(is.location.id, 1);
  CHECK_EQ(is.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  CHECK_EQ(cu.properties(&is, memory + 16), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.export_handle(&is, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_NOT_SUPPORTED);

  cudaPointerAttributes there{};
  ok(cudaPointerGetAttributes(&there, pointer(base)));
  CHECK_EQ(there.type, cudaMemoryTypeUnregistered);
  mapped(0, memory);
  ok(cudaPointerGetAttributes(&there, pointer(base)));
  CHECK_EQ(there.type, cudaMemoryTypeDevice);
  CHECK_EQ(there.device, 1);
  CHECK_EQ(there.devicePointer, nullptr);
  cu.open(base, chunk);
  ok(cudaPointerGetAttributes(&there, pointer(base + 1)));
  CHECK_EQ(there.devicePointer, pointer(base + 1));
  CHECK_EQ(there.hostPointer, nullptr);
}

TEST_CASE_FIXTURE(reserved, "the runtime's frees do not take mapped memory") {
  void* const p = usable(0, cu.create(chunk));
  CHECK_EQ(cudaFree(p), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeHost(p), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeAsync(p, make_stream()), cudaErrorInvalidValue);
  write(p);
}

TEST_CASE_FIXTURE(reserved, "the granularity and the attributes say what there is") {
  std::size_t bytes = 0;
  auto wanted = driver::memory_of(0);
  ok(cu.granularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_EQ(bytes, chunk);
  ok(cu.granularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CHECK_EQ(bytes, chunk);
  CHECK_EQ(cu.granularity(nullptr, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.granularity(&bytes, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
  CUdevice device = -1;
  ok(cu.device(&device, 1));
  CHECK_EQ(device, 1);
  CHECK_EQ(cu.device(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  CHECK_EQ(cu.device(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  int value = -1;
  ok(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  CHECK_EQ(value, 1);
  ok(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
  CHECK_EQ(value, 0);
  ok(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));  // the runtime's own
  CHECK_EQ(value, 32);
  CHECK_EQ(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2), CUDA_ERROR_INVALID_DEVICE);
  CHECK_EQ(cu.attribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE_FIXTURE(reserved, "devices without virtual memory say so") {
  sim::set_virtual_memory(false);
  int value = -1;
  ok(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  CHECK_EQ(value, 0);
  CUdeviceptr at = 0;
  CHECK_EQ(cu.address_reserve(&at, chunk, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  CUmemGenericAllocationHandle handle = 0;
  auto const wanted = driver::memory_of(0);
  CHECK_EQ(cu.create_handle(&handle, chunk, &wanted, 0), CUDA_ERROR_NOT_SUPPORTED);
  std::size_t bytes = 0;
  CHECK_EQ(cu.granularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_EQ(cu.map(base, chunk, 0, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
  sim::reset();
  ok(cu.attribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  CHECK_EQ(value, 1);
}

TEST_CASE_FIXTURE(reserved, "errors have names and texts") {
  char const* text = nullptr;
  ok(cu.error_name(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK_EQ(std::string_view(text), "CUDA_ERROR_OUT_OF_MEMORY");
  ok(cu.error_string(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK_EQ(std::string_view(text), cudaGetErrorString(cudaErrorMemoryAllocation));
  CHECK_EQ(cu.error_name(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(text, nullptr);
  CHECK_EQ(cu.error_string(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.error_name(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE_FIXTURE(reserved, "calls of the driver are counted, cost time and fail as those of the runtime do") {
  auto const memory = cu.create(chunk);
  CHECK_EQ(sim::calls("cuMemCreate"), 1);
  sim::fail_call("cuMemMap", 2, cudaErrorMemoryAllocation);
  mapped(0, memory);
  CHECK_EQ(cu.map(base + chunk, chunk, 0, memory, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ok(cu.unmap(base, chunk));
  mapped(0, memory);  // the failed call had done nothing
  sim::fail_call("cuMemSetAccess", 1, cudaErrorNotReady);
  CUmemAccessDesc const access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK_EQ(cu.set_access(base, chunk, &access, 1), CUDA_ERROR_NOT_READY);
  ok(cu.set_access(base, chunk, &access, 1));
  CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);
  sim::set_latency("cuMemUnmap", 26'000);
  auto const before = sim::simulated_time();
  ok(cu.unmap(base, chunk));
  CHECK_EQ(sim::simulated_time() - before, 26'000);
  sim::fail_from(1, cudaErrorIllegalAddress);
  CHECK_EQ(cu.release(memory), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  sim::clear_failure();
  ok(cu.release(memory));
}

TEST_CASE_FIXTURE(reserved, "a capture lets memory be added, as PyTorch does") {
  cudaStream_t const s = make_stream();
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  usable(0, cu.create(chunk));
  ok(cudaMemsetAsync(pointer(base), 1, chunk, s));
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(s, &graph));
  ok(cudaGraphDestroy(graph));
}

TEST_CASE_FIXTURE(reserved, "a capture forbids to take memory away, as cudaFree") {
  auto const memory = cu.create(chunk);
  usable(0, memory);
  cudaStream_t const s = make_stream();
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  cudaGraph_t graph = nullptr;
  SUBCASE("and breaks") {
    CHECK_EQ(cu.unmap(base, chunk), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  }
  SUBCASE("unless the thread's mode is relaxed") {
    auto mode = cudaStreamCaptureModeRelaxed;
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    ok(cu.unmap(base, chunk));
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    ok(cudaStreamEndCapture(s, &graph));
    ok(cudaGraphDestroy(graph));
  }
}

TEST_CASE_FIXTURE(reserved, "a reset drops all of it") {
  auto const memory = cu.create(chunk);
  usable(0, memory);
  std::size_t const handles = sim::live_handles();
  sim::reset();
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(sim::live_handles(), handles - 1);  // the range
  CHECK_EQ(cu.release(memory), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.unmap(base, chunk), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cu.free(base, 16 * MiB), CUDA_ERROR_INVALID_VALUE);
  std::size_t const all = free_bytes();
  cu.create(chunk);
  CHECK_EQ(free_bytes(), all - chunk);
}
