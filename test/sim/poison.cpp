// Stream-ordered memory under the address sanitizer: nobody may touch it before its allocation executes and after its
// free has. Without that sanitizer all memory may be touched.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <sys/uio.h>
#include <unistd.h>

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
extern "C" int __lsan_do_recoverable_leak_check();
#endif

namespace {

constexpr std::size_t small_bytes = 1000;
constexpr std::size_t large_bytes = (std::size_t{3} << 20) + 1000;  // pages of their own, under the sanitizer

#ifdef WEIR_TEST_POISON
bool is_forbidden(char* p) {
  char byte = 0;
  iovec to{&byte, 1};
  iovec from{p, 1};
  return __asan_region_is_poisoned(p, 1) != nullptr || process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1;
}
#endif

/// 'o': all of the memory may be touched; 'x': no byte of it.
char state([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_TEST_POISON
  std::size_t const step = bytes == small_bytes ? 1 : 1000;
  std::size_t forbidden = 0, looked_at = 0;
  for (std::size_t i = 0; i < bytes; i += step, ++looked_at) forbidden += is_forbidden(static_cast<char*>(p) + i);
  forbidden += is_forbidden(static_cast<char*>(p) + bytes - 1), ++looked_at;
  return forbidden == 0 ? 'o' : forbidden == looked_at ? 'x' : '?';
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
  std::size_t bytes = small_bytes;
  two_streams() {
    SUBCASE("a small block") {}
    SUBCASE("a large block") { bytes = large_bytes; }
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
  char state(void* p) const { return ::state(p, bytes); }
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

TEST_CASE_FIXTURE(fresh, "nobody may touch what is beside a block, nor the block once it is gone") {
  std::size_t bytes = small_bytes;
  SUBCASE("a small block") {}
  SUBCASE("a large block") { bytes = large_bytes; }
  void* p = nullptr;
  ok(cudaMalloc(&p, bytes));
  auto* const first = static_cast<char*>(p);
  CHECK_EQ(state(p, bytes), 'o');
  CHECK_EQ(state(first - small_bytes / 10, small_bytes / 10), forbidden);
  CHECK_EQ(state(first + bytes, small_bytes), forbidden);
  ok(cudaFree(p));
  CHECK_EQ(state(p, bytes), forbidden);
  void* next = nullptr;
  ok(cudaMalloc(&next, bytes));
  CHECK_EQ(state(p, bytes), forbidden);  // the next block is another one, so that a late use is seen
  ok(cudaFree(next));
}

#ifdef WEIR_TEST_POISON
TEST_CASE_FIXTURE(fresh, "an object that only a block of memory names is no leak") {
  std::size_t bytes = small_bytes;
  SUBCASE("a small block") {}
  SUBCASE("a large block") { bytes = large_bytes; }
  void* p = nullptr;
  ok(cudaMallocHost(&p, bytes));
  auto** const names = static_cast<int**>(p);
  for (int i = 0; i < 100; ++i) names[i] = new int(i);
  CHECK_EQ(__lsan_do_recoverable_leak_check(), 0);
  for (int i = 0; i < 100; ++i) delete names[i];
  ok(cudaFreeHost(p));
}
#endif
