// The record of what a program takes of the devices' memory and gives back.

#include "driver.hpp"
#include "support.hpp"

#include <support/temporary_folder.hpp>
#include <weir/sim/sim.hpp>
#include <weir/tools/read_trace.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

using namespace sim_test;
using weir::trace_action;

namespace {

struct recorded : fresh_and_lazy {
  weir::test::temporary_folder const folder;
  std::string const file = folder / "trace.json";  // not there yet

  weir::recorded_trace trace() const { return weir::read_trace(weir::test::text_of(file)); }
};

/// While one lives, no file of the process can have more than that many bytes.
struct full_disk {
  explicit full_disk(std::size_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before);
    ::rlimit const limit{bytes, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~full_disk() {
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  full_disk(full_disk const&) = delete;
  full_disk& operator=(full_disk const&) = delete;

  ::rlimit before{};
};

std::uint64_t address(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

TEST_CASE_FIXTURE(recorded, "what is taken and given back is there, with its device, bytes and kind") {
  sim::trace_memory(file);
  ok(cudaSetDevice(1));
  void* p = nullptr;
  ok(cudaMalloc(&p, 4096));
  ok(cudaFree(p));
  auto const trace = this->trace();
  REQUIRE_EQ(trace.events.size(), 2);
  CHECK_EQ(trace.events[0].action, trace_action::allocate);
  CHECK_EQ(trace.events[1].action, trace_action::free);
  for (weir::trace_event const& e : trace.events) {
    CHECK_EQ(e.address, address(p));
    CHECK_EQ(e.bytes, 4096);
    CHECK_EQ(e.device, 1);
    CHECK_EQ(trace.tags.at(e.tag), "cudaMalloc");
  }
}

TEST_CASE_FIXTURE(recorded, "stream-ordered memory is given back when its free executes") {
  sim::trace_memory(file);
  cudaStream_t const stream = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, stream));
  ok(cudaFreeAsync(p, stream));
  CHECK_EQ(trace().events.size(), 1);
  ok(cudaStreamSynchronize(stream));
  CHECK_EQ(trace().events.size(), 2);
  ok(cudaStreamDestroy(stream));
}

TEST_CASE_FIXTURE(recorded, "virtual memory is taken where it is mapped, and given back where it is unmapped") {
  sim::trace_memory(file);
  driver const cu;
  CUdeviceptr const base = cu.reserve(2 * chunk);
  CUmemGenericAllocationHandle const memory = cu.create(chunk);
  ok(cu.map(base, chunk, 0, memory, 0));
  auto const trace = this->trace();
  REQUIRE_EQ(trace.events.size(), 1);
  CHECK_EQ(trace.events[0].address, base);
  CHECK_EQ(trace.events[0].bytes, chunk);
  CHECK_EQ(trace.tags.at(trace.events[0].tag), "cuMemCreate");
  ok(cu.unmap(base, chunk));
  CHECK_EQ(this->trace().events.back().action, trace_action::free);
}

TEST_CASE_FIXTURE(recorded, "what is refused is there, whoever was asked") {
  sim::set_capacity(0, 1 << 20);
  sim::trace_memory(file);
  void* p = nullptr;
  CHECK_EQ(cudaMalloc(&p, 2 << 20), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMallocAsync(&p, 2 << 20, nullptr), cudaErrorMemoryAllocation);
  auto const trace = this->trace();
  REQUIRE_EQ(trace.events.size(), 2);
  for (weir::trace_event const& e : trace.events) {
    CHECK_EQ(e.action, trace_action::out_of_memory);
    CHECK_EQ(e.bytes, 2 << 20);
  }
  CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_CASE_FIXTURE(recorded, "memory of the host makes no line, nor does a program that allocates nothing a file") {
  sim::trace_memory(file);
  void* p = nullptr;
  ok(cudaMallocHost(&p, 4096));
  ok(cudaFreeHost(p));
  ok(cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
  ok(cudaFree(p));
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE_FIXTURE(recorded, "a file that is there already is left as it is") {
  std::ofstream(file) << "of another process";
  sim::trace_memory(file);
  void* p = nullptr;
  ok(cudaMalloc(&p, 4096));
  ok(cudaFree(p));
  CHECK_EQ(weir::test::text_of(file), "of another process");
}

TEST_CASE_FIXTURE(recorded, "a reset ends it") {
  sim::trace_memory(file);
  void* p = nullptr;
  ok(cudaMalloc(&p, 4096));
  sim::reset();
  ok(cudaMalloc(&p, 4096));
  ok(cudaFree(p));
  CHECK_EQ(trace().events.size(), 1);
}

TEST_CASE_FIXTURE(recorded, "a forked child adds nothing to its parent's record") {
  sim::trace_memory(file);
  void* p = nullptr;
  ok(cudaMalloc(&p, 4096));
  if (::pid_t const child = ::fork(); child == 0) {
    void* q = nullptr;
    ::_exit(cudaMalloc(&q, 64) == cudaSuccess ? 0 : 1);
  } else {
    int status = -1;
    CHECK_EQ(::waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
  }
  ok(cudaFree(p));
  CHECK_EQ(trace().events.size(), 2);
}

TEST_CASE_FIXTURE(recorded, "where the disk is full it ends behind a whole line, and says so") {
  sim::trace_memory(file);
  void* p = nullptr;
  ok(cudaMalloc(&p, 4096));
  {
    full_disk const full(std::filesystem::file_size(file) + 20);  // not enough for another line
    ok(cudaFree(p));
  }
  ok(cudaMalloc(&p, 4096));
  ok(cudaFree(p));
  CHECK_EQ(trace().events.size(), 1);
}
