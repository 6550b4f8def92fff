// needs: tsan
// The same runtime for files that are compiled with the per-thread default stream.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <thread>

using namespace sim_test;

TEST_CASE_FIXTURE(fresh, "handle 0 is the calling thread's own stream") {
  auto const mine = id_of(nullptr);
  CHECK_EQ(mine, id_of(cudaStreamPerThread));
  CHECK_NE(mine, id_of(cudaStreamLegacy));
  unsigned long long others = 0;
  std::thread([&] { others = id_of(nullptr); }).join();
  CHECK_NE(others, mine);
}

TEST_CASE_FIXTURE(fresh, "the twins count under the plain names") {
  ok(cudaStreamSynchronize(nullptr));
  CHECK_EQ(sim::calls("cudaStreamSynchronize"), 1);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy takes its place in the thread's own stream") {
  void* p = nullptr;
  ok(cudaMalloc(&p, 1));
  char back = 0;
  ok(cudaMemsetAsync(p, 'a', 1, nullptr));
  ok(cudaMemcpy(&back, p, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(back, 'a');
  ok(cudaMemsetAsync(p, 'b', 1, make_stream(cudaStreamDefault)));
  ok(cudaMemcpy(&back, p, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(back, 'a');
}

TEST_CASE_FIXTURE(fresh_and_lazy, "the work of a thread's stream outlives the thread") {
  diary d;
  cudaEvent_t const e = make_event();
  std::thread([&] {
    d.mark(nullptr, 1);
    ok(cudaEventRecord(e, nullptr));
  }).join();
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  ok(cudaEventSynchronize(e));
  CHECK_EQ(d.reached(), numbers{1});
}
