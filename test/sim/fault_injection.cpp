// needs: tsan
// Fault injection: failures of one call, of a name, of all from some call on; and what calls cost.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace sim_test;

TEST_CASE_FIXTURE(fresh, "from a sticky error on, every call of every thread returns it") {
  void* p = nullptr;
  sim::fail_from(2, cudaErrorIllegalAddress);
  ok(cudaMalloc(&p, 10));
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  CHECK_EQ(cudaFree(p), cudaErrorIllegalAddress);
  CHECK_EQ(cudaMalloc(&p, 10), cudaErrorIllegalAddress);
  CHECK_EQ(sim::live_allocations(), 1);
  std::thread([] {
    CHECK_EQ(cudaPeekAtLastError(), cudaErrorIllegalAddress);
    int device = 0;
    CHECK_EQ(cudaGetDevice(&device), cudaErrorIllegalAddress);
  }).join();
}

TEST_CASE_FIXTURE(fresh, "a sticky error is not cleared by asking for it, but by the test") {
  sim::fail_from(1, cudaErrorLaunchFailure);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);  // it has not happened yet
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  CHECK_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  CHECK_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  CHECK_EQ(cudaPeekAtLastError(), cudaErrorLaunchFailure);
  sim::clear_failure();
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  sim::fail_from(1, cudaErrorLaunchFailure);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  sim::reset();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_THROWS_AS(sim::fail_from(0, cudaErrorUnknown), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh,
                  "what is queued when a sticky error begins is never done, nor is it when the error is cleared") {
  sim::set_mode(sim::mode::lazy);
  unsigned char gone[16] = {}, there[16] = {};
  int calls = 0;
  auto const count = [](void* n) { ++*static_cast<int*>(n); };
  cudaStream_t s = nullptr;
  ok(cudaStreamCreate(&s));
  sim::touch(s, gone, sizeof gone, sim::access::write);
  ok(cudaLaunchHostFunc(s, count, &calls));
  sim::fail_from(1, cudaErrorIllegalAddress);
  CHECK_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
  sim::touch(s, gone, sizeof gone, sim::access::write);  // nor is what comes later
  sim::run_all();
  sim::clear_failure();
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(calls, 0);
  CHECK_EQ(std::count(std::begin(gone), std::end(gone), 0), std::ssize(gone));
  sim::touch(s, there, sizeof there, sim::access::write);
  ok(cudaLaunchHostFunc(s, count, &calls));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(calls, 1);
  CHECK_NE(std::count(std::begin(there), std::end(there), 0), std::ssize(there));
  ok(cudaStreamDestroy(s));
}

TEST_CASE_FIXTURE(fresh, "the k-th call of one name fails, whatever is called in between, and only once") {
  void* p = nullptr;
  sim::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  sim::fail_call("cudaFree", 1, cudaErrorUnknown);
  ok(cudaMalloc(&p, 10));
  ok(cudaDeviceSynchronize());
  CHECK_EQ(cudaFree(p), cudaErrorUnknown);
  CHECK_EQ(cudaMalloc(&p, 10), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ok(cudaMalloc(&p, 10));
  ok(cudaFree(p));
  CHECK_THROWS_AS(sim::fail_call("cudaMallok", 1, cudaErrorUnknown), std::invalid_argument);
  CHECK_THROWS_AS(sim::fail_call("cudaMalloc", 0, cudaErrorUnknown), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh, "every fault counts every call, also one that fails by another fault, and can be forgotten") {
  void* p = nullptr;
  sim::fail_call(1, cudaErrorUnknown);
  sim::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMalloc(&p, 10), cudaErrorUnknown);
  CHECK_EQ(cudaMalloc(&p, 10), cudaErrorMemoryAllocation);
  sim::fail_call("cudaMalloc", 1, cudaErrorUnknown);
  sim::fail_call("cudaMalloc", 1, cudaErrorNotSupported);  // a later fault of a name replaces the earlier one
  CHECK_EQ(cudaMalloc(&p, 10), cudaErrorNotSupported);
  sim::fail_call("cudaMalloc", 1, cudaErrorUnknown);
  sim::clear_failure();
  CHECK_EQ(cudaMalloc(&p, 10), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh, "each call adds what it costs to the simulated time, and nobody waits") {
  CHECK_EQ(sim::simulated_time(), 0);
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  CHECK_EQ(sim::simulated_time(), 0);
  sim::set_latency("cudaEventRecord", 1000);
  sim::set_latency("cudaMalloc", 3'600'000'000'000);
  ok(cudaEventRecord(e, s));
  ok(cudaEventQuery(e));
  ok(cudaEventRecord(e, s));
  CHECK_EQ(sim::simulated_time(), 2000);
  CHECK_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);  // what fails costs too
  CHECK_EQ(sim::simulated_time(), 3'600'000'002'000);
  sim::fail_call(2, cudaErrorUnknown);
  ok(cudaEventRecord(e, s));
  CHECK_EQ(cudaEventRecord(e, s), cudaErrorUnknown);
  CHECK_EQ(sim::simulated_time(), 3'600'000'004'000);
  sim::reset_counters();
  CHECK_EQ(sim::simulated_time(), 0);
  ok(cudaEventRecord(e, s));
  CHECK_EQ(sim::simulated_time(), 1000);
  sim::set_latency(5);  // replaces them all
  ok(cudaEventRecord(e, s));
  ok(cudaEventQuery(e));
  CHECK_EQ(sim::simulated_time(), 1010);
  sim::reset();
  ok(cudaEventRecord(e, s));
  CHECK_EQ(sim::simulated_time(), 0);
  CHECK_THROWS_AS(sim::set_latency("cudaMallok", 1), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh, "of many threads' calls one fails, and all cost") {
  sim::set_latency("cudaStreamQuery", 1);
  sim::fail_call("cudaStreamQuery", 150, cudaErrorUnknown);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k)
        if (cudaStreamQuery(nullptr) == cudaErrorUnknown) ++failed;
    });
  for (std::thread& t : threads) t.join();
  CHECK_EQ(failed, 1);
  CHECK_EQ(sim::simulated_time(), 400);
}
