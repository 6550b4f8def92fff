// needs: tsan
// Many threads use the runtime at once.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <atomic>
#include <thread>

using namespace sim_test;

namespace {

template <class Body>
void in_threads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (auto& t : threads) t.join();
}

// No doctest macros: those are not for several threads at a time.
struct failures {
  std::atomic<int> count{0};
  void expect(bool good) {
    if (!good) count.fetch_add(1);
  }
};

void allocate_use_and_free(failures& f, int rounds) {
  cudaStream_t s = nullptr;
  cudaEvent_t e = nullptr;
  f.expect(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  f.expect(cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess);
  for (int i = 0; i < rounds; ++i) {
    void* p = nullptr;
    f.expect(cudaMallocAsync(&p, 64, s) == cudaSuccess);
    f.expect(cudaMemsetAsync(p, i & 0x7f, 64, s) == cudaSuccess);
    char back[64] = {};
    f.expect(cudaMemcpyAsync(back, p, 64, cudaMemcpyDeviceToHost, s) == cudaSuccess);
    f.expect(cudaEventRecord(e, s) == cudaSuccess);
    f.expect(cudaStreamWaitEvent(cudaStreamPerThread, e, 0) == cudaSuccess);
    f.expect(cudaEventSynchronize(e) == cudaSuccess);
    f.expect(back[63] == (i & 0x7f));
    f.expect(cudaFreeAsync(p, s) == cudaSuccess);
  }
  f.expect(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  f.expect(cudaStreamDestroy(s) == cudaSuccess);
  f.expect(cudaEventDestroy(e) == cudaSuccess);
}

}  // namespace

TEST_CASE_FIXTURE(fresh, "threads with a stream each see their own bytes, in immediate mode") {
  failures f;
  in_threads(4, [&](int) { allocate_use_and_free(f, 300); });
  CHECK_EQ(f.count.load(), 0);
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(sim::calls("cudaMallocAsync"), 4 * 300);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "threads with a stream each see their own bytes, in lazy mode") {
  failures f;
  in_threads(4, [&](int) { allocate_use_and_free(f, 100); });
  ok(cudaDeviceSynchronize());
  CHECK_EQ(f.count.load(), 0);
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh, "each thread has a device and a last error of its own") {
  ok(cudaSetDevice(1));
  CHECK_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  int device = -1;
  cudaError_t last = cudaErrorUnknown;
  std::thread([&] {
    static_cast<void>(cudaGetDevice(&device));
    last = cudaGetLastError();
  }).join();
  CHECK_EQ(device, 0);
  CHECK_EQ(last, cudaSuccess);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_CASE_FIXTURE(fresh, "exactly one of many calls at once fails") {
  failures f;
  sim::fail_call(500, cudaErrorUnknown);
  in_threads(4, [&](int) {
    for (int i = 0; i < 250; ++i) {
      int device = 0;
      f.expect(cudaGetDevice(&device) == cudaSuccess);
    }
  });
  CHECK_EQ(f.count.load(), 1);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "a stream that several threads wait for runs its work once") {
  diary d;
  cudaStream_t const s = make_stream();
  numbers expected;
  for (int i = 0; i < 100; ++i) {
    d.mark(s, i);
    expected.push_back(i);
  }
  failures f;
  in_threads(4, [&](int) { f.expect(cudaStreamSynchronize(s) == cudaSuccess); });
  CHECK_EQ(f.count.load(), 0);
  CHECK_EQ(d.reached(), expected);
}
