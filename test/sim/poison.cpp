// Stream-ordered memory under the address sanitizer: nobody may touch it before its allocation executes and after its
// free has. Without that sanitizer all memory may be touched.

#include "support.hpp"

#include <weir/sim/sim.hpp>

using namespace sim_test;

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_TEST_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_TEST_POISON 1
#endif
#endif
#ifdef WEIR_TEST_POISON  // as in <sanitizer/asan_interface.h>
extern "C" void* __asan_region_is_poisoned(void* p, std::size_t bytes);
#endif

namespace {

constexpr std::size_t bytes = 1000;

/// 'o': all of the memory may be touched; 'x': no byte of it.
char state([[maybe_unused]] void* p) {
#ifdef WEIR_TEST_POISON
  std::size_t forbidden = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    forbidden += __asan_region_is_poisoned(static_cast<char*>(p) + i, 1) != nullptr;
  return forbidden == 0 ? 'o' : forbidden == bytes ? 'x' : '?';
#else
  return 'o';
#endif
}
#ifdef WEIR_TEST_POISON
constexpr char forbidden = 'x';
#else
constexpr char forbidden = 'o';
#endif

/// Whose default pool keeps what is freed.
struct two_streams : fresh_and_lazy {
  cudaStream_t a = make_stream(), b = make_stream();
  cudaEvent_t event = make_event();
  two_streams() {
    cudaMemPool_t pool = nullptr;
    ok(cudaDeviceGetDefaultMemPool(&pool, 0));
    std::uint64_t most = ~std::uint64_t{0};
    ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most));
  }
  void* allocate(cudaStream_t s) {
    void* p = nullptr;
    ok(cudaMallocAsync(&p, bytes, s));
    return p;
  }
};

}  // namespace

TEST_CASE_FIXTURE(two_streams, "memory may be touched from when its allocation executes until its free does") {
  void* const p = allocate(a);
  CHECK_EQ(state(p), forbidden);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(state(p), forbidden);
  ok(cudaStreamSynchronize(a));
  CHECK_EQ(state(p), 'o');
  ok(cudaFreeAsync(p, a));
  CHECK_EQ(state(p), 'o');
  ok(cudaStreamSynchronize(a));
  CHECK_EQ(state(p), forbidden);
}

TEST_CASE_FIXTURE(two_streams, "memory that is handed out again may be touched once that allocation has executed") {
  void* const p = allocate(a);
  ok(cudaFreeAsync(p, a));
  ok(cudaStreamSynchronize(a));
  REQUIRE_EQ(allocate(b), p);
  CHECK_EQ(state(p), forbidden);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(state(p), 'o');
}

TEST_CASE_FIXTURE(two_streams,
                  "between a free and the allocation that took the memory over before it, nobody may touch it") {
  void* const p = allocate(a);
  ok(cudaFreeAsync(p, a));
  ok(cudaEventRecord(event, a));
  ok(cudaStreamWaitEvent(b, event, 0));
  REQUIRE_EQ(allocate(b), p);
  ok(cudaStreamSynchronize(a));
  CHECK_EQ(state(p), forbidden);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(state(p), 'o');
}

TEST_CASE_FIXTURE(two_streams, "memory that the host frees before its allocation executes is not given out") {
  void* const p = allocate(a);
  ok(cudaFree(p));
  SUBCASE("to nobody") {}
  SUBCASE("to the next that gets it") {
    CHECK_EQ(allocate(b), p);
    ok(cudaStreamSynchronize(a));
    CHECK_EQ(state(p), forbidden);
    ok(cudaStreamSynchronize(b));
    CHECK_EQ(state(p), 'o');
    ok(cudaFree(p));
  }
  ok(cudaDeviceSynchronize());
  CHECK_EQ(state(p), forbidden);
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(two_streams, "memory of a graph may be touched where a launch has it") {
  ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  void* const p = allocate(a);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t execution = nullptr;
  ok(cudaStreamEndCapture(a, &graph));
  ok(cudaGraphInstantiate(&execution, graph, 0));
  CHECK_EQ(state(p), forbidden);
  for (int i = 0; i < 2; ++i) {
    ok(cudaGraphLaunch(execution, a));
    CHECK_EQ(state(p), forbidden);
    ok(cudaStreamSynchronize(a));
    CHECK_EQ(state(p), 'o');
    ok(cudaFreeAsync(p, a));
    ok(cudaStreamSynchronize(a));
    CHECK_EQ(state(p), forbidden);
  }
}
