// Allocations of the simulated runtime's own can be told from the program's.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <cstdlib>
#include <new>

using namespace sim_test;

namespace {

int in_calls = 0, elsewhere = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  ++(sim::in_runtime_call() ? in_calls : elsewhere);
  if (void* const p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE_FIXTURE(fresh_and_lazy, "what a call allocates is the runtime's; what a host function allocates is not") {
  cudaStream_t const stream = make_stream();
  in_calls = elsewhere = 0;
  ok(cudaLaunchHostFunc(
      stream, [](void*) { ::operator delete(::operator new(1)); }, nullptr));
  CHECK(in_calls > 0);  // the operation is queued
  CHECK_EQ(elsewhere, 0);
  ok(cudaStreamSynchronize(stream));
  CHECK_EQ(elsewhere, 1);
  ok(cudaStreamDestroy(stream));
}
