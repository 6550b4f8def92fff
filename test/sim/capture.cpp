// needs: tsan
// Stream capture and graphs: what is recorded, what runs when, what is refused, and which refusals break a capture.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <memory>
#include <string>
#include <thread>
#include <utility>

using namespace sim_test;
using sim::access;
using sim::order_problem;

namespace {

void begin(cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
  ok(cudaStreamBeginCapture(s, mode));
}

cudaGraph_t end(cudaStream_t s) {
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(s, &graph));
  REQUIRE(graph != nullptr);
  return graph;
}

/// The capture on `s`, ended whatever became of it.
cudaError_t code_of_end(cudaStream_t s) {
  cudaGraph_t graph = nullptr;
  cudaError_t const code = cudaStreamEndCapture(s, &graph);
  if (graph != nullptr) ok(cudaGraphDestroy(graph));
  return code;
}

cudaStreamCaptureStatus status_of(cudaStream_t s) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ok(cudaStreamIsCapturing(s, &status));
  return status;
}

/// An executable graph of what was captured on `s`.
struct executable {
  explicit executable(cudaStream_t s) {
    cudaGraph_t const graph = end(s);
    ok(cudaGraphInstantiate(&handle, graph, 0));
    ok(cudaGraphDestroy(graph));
  }
  ~executable() { cudaGraphExecDestroy(handle); }
  executable(executable const&) = delete;
  executable& operator=(executable const&) = delete;
  void launch(cudaStream_t s) const { ok(cudaGraphLaunch(handle, s)); }

  cudaGraphExec_t handle = nullptr;
};

/// `after` comes after all that `before` has now.
void order(cudaStream_t before, cudaStream_t after) {
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, before));
  ok(cudaStreamWaitEvent(after, e, 0));
  ok(cudaEventDestroy(e));
}

cudaStreamCaptureMode exchange_mode(cudaStreamCaptureMode mode) {
  ok(cudaThreadExchangeStreamCaptureMode(&mode));
  return mode;
}

template <class F>
void in_another_thread(F f) {
  std::thread(f).join();
}

struct checking : fresh {
  checking() { sim::check_order(true); }
};

sim::order_report the_report() {
  auto const all = sim::reports();
  for (std::size_t i = 1; i < all.size(); ++i) MESSAGE(all[i].text);
  REQUIRE_EQ(all.size(), 1);
  sim::clear_reports();
  return all.front();
}

void* take(std::size_t bytes = 4096) {
  void* p = nullptr;
  ok(cudaMalloc(&p, bytes));
  return p;
}

void write(cudaStream_t s, void* p, std::size_t bytes = 4096) { sim::touch(s, p, bytes, access::write); }

}  // namespace

// ---- what is recorded, and when it runs

TEST_CASE_FIXTURE(fresh, "a capturing stream runs nothing; each launch runs it all, in order, where it is launched") {
  for (sim::mode const how : {sim::mode::immediate, sim::mode::lazy, sim::mode::random}) {
    CAPTURE(static_cast<int>(how));
    sim::set_mode(how);
    cudaStream_t const s = make_stream(), other = make_stream();
    diary d;
    begin(s);
    d.mark(s, 1);
    d.mark(s, 2);
    executable const graph(s);
    sim::run_all();
    CHECK_EQ(d.reached(), numbers{});
    d.mark(other, 3);
    graph.launch(other);
    d.mark(other, 4);
    graph.launch(other);
    ok(cudaStreamSynchronize(other));
    CHECK_EQ(d.reached(), numbers{3, 1, 2, 4, 1, 2});
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(other));
  }
}

TEST_CASE_FIXTURE(fresh, "copies and sets are captured, and read their source at each launch") {
  cudaStream_t const s = make_stream();
  auto* const p = static_cast<unsigned char*>(take(16));
  unsigned char source[16] = {1};
  begin(s);
  ok(cudaMemsetAsync(p, 7, 16, s));
  ok(cudaMemcpyAsync(p, source, 1, cudaMemcpyHostToDevice, s));
  executable const graph(s);
  p[0] = p[15] = 0;
  source[0] = 9;
  graph.launch(s);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(p[0], 9);
  CHECK_EQ(p[15], 7);
  ok(cudaFree(p));
}

TEST_CASE_FIXTURE(fresh_and_lazy, "launches of one executable graph run one after another, on whatever streams") {
  cudaStream_t const a = make_stream(), b = make_stream();
  diary d;
  begin(a);
  d.mark(a, 1);
  executable const graph(a);
  d.mark(a, 0);
  graph.launch(a);
  graph.launch(b);
  ok(cudaStreamSynchronize(b));
  CHECK_EQ(d.reached(), numbers{0, 1, 1});
}

TEST_CASE_FIXTURE(fresh_and_lazy, "an executable graph may go while its launch has yet to run") {
  cudaStream_t const s = make_stream();
  diary d;
  begin(s);
  d.mark(s, 1);
  {
    executable const graph(s);
    graph.launch(s);
  }
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh, "a wait for a captured event brings a stream in; a join lets the capture end") {
  cudaStream_t const a = make_stream(), b = make_stream();
  diary d;
  begin(a);
  d.mark(a, 1);
  order(a, b);
  CHECK_EQ(status_of(b), cudaStreamCaptureStatusActive);
  d.mark(b, 2);
  SUBCASE("joined") {
    order(b, a);
    d.mark(a, 3);
    executable const graph(a);
    CHECK_EQ(status_of(b), cudaStreamCaptureStatusNone);
    graph.launch(b);
    ok(cudaStreamSynchronize(b));
    CHECK_EQ(d.reached(), numbers{1, 2, 3});
    CHECK_EQ(sim::captures_invalidated(), 0);
  }
  SUBCASE("not joined") {
    CHECK_EQ(code_of_end(a), cudaErrorStreamCaptureUnjoined);
    CHECK_EQ(sim::captures_invalidated(), 1);
  }
  SUBCASE("given more work after the join") {
    order(b, a);
    d.mark(b, 4);
    CHECK_EQ(code_of_end(a), cudaErrorStreamCaptureUnjoined);
  }
  SUBCASE("ended on the wrong stream") {
    CHECK_EQ(code_of_end(b), cudaErrorStreamCaptureUnmatched);
    order(b, a);
    ok(code_of_end(a));
  }
  SUBCASE("the origin destroyed: all of it is over") {
    ok(cudaStreamDestroy(a));
    CHECK_EQ(status_of(b), cudaStreamCaptureStatusNone);
    CHECK_EQ(sim::captures_invalidated(), 1);
  }
}

TEST_CASE_FIXTURE(fresh, "a launch into a capturing stream becomes part of that graph") {
  cudaStream_t const s = make_stream();
  diary d;
  begin(s);
  d.mark(s, 1);
  executable const inner(s);
  begin(s);
  inner.launch(s);
  d.mark(s, 2);
  executable const outer(s);
  CHECK_EQ(d.reached(), numbers{});
  outer.launch(s);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{1, 2});
}

TEST_CASE_FIXTURE(fresh, "a capture has an id of its own, and says what it is") {
  cudaStream_t const s = make_stream();
  auto const id_of_capture = [s] {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
#if CUDART_VERSION >= 13000
    ok(cudaStreamGetCaptureInfo(s, &status, &id, nullptr, nullptr, nullptr, nullptr));
#else
    ok(cudaStreamGetCaptureInfo(s, &status, &id, nullptr, nullptr, nullptr));
#endif
    CHECK_EQ(status, status_of(s));
    return id;
  };
  CHECK_EQ(id_of_capture(), 0);
  begin(s);
  auto const first = id_of_capture();
  CHECK_NE(first, 0);
  CHECK_EQ(id_of_capture(), first);
  ok(code_of_end(s));
  begin(s);
  CHECK_NE(id_of_capture(), first);
  ok(code_of_end(s));
}

TEST_CASE_FIXTURE(fresh, "calls of captures and graphs refuse wrong arguments") {
  cudaStream_t const s = make_stream();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t execution = nullptr;
  auto wrong = static_cast<cudaStreamCaptureMode>(3);
  CHECK_EQ(cudaStreamBeginCapture(s, wrong), cudaErrorInvalidValue);
  CHECK_EQ(cudaThreadExchangeStreamCaptureMode(&wrong), cudaErrorInvalidValue);
  CHECK_EQ(cudaThreadExchangeStreamCaptureMode(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  begin(s);
  CHECK_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  CHECK_EQ(cudaStreamEndCapture(s, nullptr), cudaErrorInvalidValue);
  graph = end(s);
  CHECK_EQ(cudaGraphInstantiate(nullptr, graph, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphInstantiate(&execution, graph, cudaGraphInstantiateFlagDeviceLaunch), cudaErrorNotSupported);
  CHECK_EQ(cudaGraphInstantiate(&execution, graph, 1 << 20), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphLaunch(nullptr, s), cudaErrorInvalidValue);
  ok(cudaGraphDestroy(graph));
  CHECK_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphInstantiate(&execution, graph, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphExecDestroy(execution), cudaErrorInvalidValue);
}

// ---- memory of allocation nodes

TEST_CASE_FIXTURE(fresh, "what graphs have of a device's memory is counted, with high watermarks") {
  auto const bytes = [](cudaGraphMemAttributeType which) {
    std::uint64_t value = 77;
    ok(cudaDeviceGetGraphMemAttribute(0, which, &value));
    return value;
  };
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  {
    executable const graph(s);
    CHECK_EQ(bytes(cudaGraphMemAttrUsedMemCurrent), 0);
    CHECK_EQ(bytes(cudaGraphMemAttrReservedMemCurrent), 4096);
    graph.launch(s);
    CHECK_EQ(bytes(cudaGraphMemAttrUsedMemCurrent), 4096);
    ok(cudaFreeAsync(p, s));
  }
  CHECK_EQ(bytes(cudaGraphMemAttrReservedMemCurrent), 0);
  CHECK_EQ(bytes(cudaGraphMemAttrUsedMemHigh), 4096);
  std::uint64_t value = 1;
  CHECK_EQ(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &value), cudaErrorInvalidValue);
  value = 0;
  CHECK_EQ(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &value), cudaErrorInvalidValue);
  ok(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &value));
  CHECK_EQ(bytes(cudaGraphMemAttrUsedMemHigh), 0);
}

TEST_CASE_FIXTURE(fresh, "memory allocated and freed in a capture is the graph's until that is gone") {
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  CHECK_EQ(sim::live_allocations(), 1);
  write(s, p);
  ok(cudaFreeAsync(p, s));
  CHECK_EQ(sim::live_allocations(), 0);
  {
    executable const graph(s);
    for (int i = 0; i < 3; ++i) graph.launch(s);
    for (int i = 0; i < 100; ++i) {
      void* q = nullptr;
      ok(cudaMallocAsync(&q, 4096, s));
      CHECK_NE(q, p);
      ok(cudaFreeAsync(q, s));
    }
  }
  CHECK_EQ(sim::live_bytes(0), 0);
}

// Were each of them counted for each node of each launch, this would take minutes.
TEST_CASE_FIXTURE(fresh, "graphs with memory are launched in no time, however many other allocations there are") {
  constexpr int others = 50'000, nodes = 500, launches = 100;
  cudaStream_t const s = make_stream();
  for (int i = 0; i < others; ++i) take(256);
  void* p = nullptr;
  begin(s);
  for (int i = 0; i < nodes; ++i) ok(cudaMallocAsync(&p, 256, s));
  cudaGraph_t const graph = end(s);
  cudaGraphExec_t run = nullptr;
  ok(cudaGraphInstantiate(&run, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int i = 0; i < launches; ++i) ok(cudaGraphLaunch(run, s));
  CHECK_EQ(sim::live_bytes(0), (others + nodes) * 256);
  std::uint64_t used = 0;
  ok(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
  CHECK_EQ(used, nodes * 256);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "an allocation in a capture waits for queued frees before it fails") {
  sim::set_capacity(0, 4096);
  cudaStream_t const s = make_stream(), other = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, other));
  write(other, p);
  ok(cudaFreeAsync(p, other));
  void* q = nullptr;
  SUBCASE("which give it their room") {
    begin(s, cudaStreamCaptureModeGlobal);
    ok(cudaMallocAsync(&q, 4096, s));
    executable const graph(s);
    graph.launch(s);
    ok(cudaFreeAsync(q, s));
  }
  SUBCASE("but not where internal dependencies are forbidden") {
    cudaMemPool_t pool = nullptr;
    ok(cudaDeviceGetDefaultMemPool(&pool, 0));
    int off = 0;
    ok(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off));
    begin(s);
    CHECK_EQ(cudaMallocAsync(&q, 4096, s), cudaErrorMemoryAllocation);
    ok(code_of_end(s));
  }
}

TEST_CASE_FIXTURE(fresh, "memory of a graph is no pool's, and lies where the pool's would") {
  cudaStream_t const s = make_stream();
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 1;
  properties.maxSize = 100;
  cudaMemPool_t pool = nullptr;
  ok(cudaMemPoolCreate(&pool, &properties));
  auto const bytes = [&](cudaMemPoolAttr which) {
    std::uint64_t value = 77;
    ok(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
  };
  void* p = nullptr;
  begin(s);
  ok(cudaMallocFromPoolAsync(&p, 4096, pool, s));
  {
    executable const graph(s);
    graph.launch(s);
    CHECK_EQ(sim::live_bytes(1), 4096);
    for (cudaMemPoolAttr const which : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemHigh})
      CHECK_EQ(bytes(which), 0);
    ok(cudaMemPoolDestroy(pool));
    ok(cudaFreeAsync(p, s));
    graph.launch(s);
    ok(cudaFreeAsync(p, s));
  }
  ok(cudaSetDevice(1));
  std::size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK_EQ(free, total);
}

TEST_CASE_FIXTURE(fresh,
                  "memory allocated in a capture and not freed there is live after a launch, until it is freed") {
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  executable const graph(s);
  CHECK_EQ(sim::live_allocations(), 0);
  CHECK_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
  graph.launch(s);
  CHECK_EQ(sim::live_allocations(), 1);
  write(s, p);
  CHECK_EQ(cudaGraphLaunch(graph.handle, s), cudaErrorInvalidValue);
  ok(cudaFreeAsync(p, s));
  graph.launch(s);
  write(s, p);
  ok(cudaFree(p));
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh, "memory that a graph left live outlives the graph") {
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  {
    executable const graph(s);
    graph.launch(s);
  }
  write(s, p);
  ok(cudaFreeAsync(p, s));
}

TEST_CASE_FIXTURE(fresh,
                  "memory that a graph left live goes when its free executes, though the graph is gone by then") {
  sim::set_mode(sim::mode::lazy);
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  {
    executable const graph(s);
    graph.launch(s);
    ok(cudaStreamSynchronize(s));
    ok(cudaMemsetAsync(p, 7, 4096, s));
    ok(cudaFreeAsync(p, s));
  }
  CHECK_EQ(sim::live_bytes(0), 0);  // counted from when it is called
  void* q = nullptr;
  cudaStream_t const other = make_stream();
  ok(cudaMallocAsync(&q, 4096, other));
  CHECK_NE(q, p);  // the memset is to come
  ok(cudaStreamSynchronize(s));
  ok(cudaFreeAsync(q, other));
}

TEST_CASE_FIXTURE(fresh, "a capture frees memory of its own graph only") {
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, s));
  begin(s);
  CHECK_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
  ok(code_of_end(s));
  ok(cudaFreeAsync(p, s));
}

TEST_CASE_FIXTURE(fresh, "a graph frees what another one leaves live, once a launch of that") {
  SUBCASE("as soon as may be") {}
  SUBCASE("when it must") { sim::set_mode(sim::mode::lazy); }
  sim::set_capacity(0, 4096);
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  auto allocates = std::make_unique<executable>(s);
  begin(s);
  ok(cudaFreeAsync(p, s));
  CHECK_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);  // twice in one graph
  cudaGraph_t const graph = end(s);
  cudaGraphExec_t frees = nullptr, second = nullptr;
  ok(cudaGraphInstantiate(&frees, graph, 0));
  CHECK_EQ(cudaGraphInstantiate(&second, graph, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphLaunch(frees, s), cudaErrorInvalidValue);  // there is nothing yet
  for (int i = 0; i < 3; ++i) {
    allocates->launch(s);
    CHECK_EQ(sim::live_allocations(), 1);
    write(s, p);
    ok(cudaGraphLaunch(frees, s));
    CHECK_EQ(sim::live_allocations(), 0);
    CHECK_EQ(cudaGraphLaunch(frees, s), cudaErrorInvalidValue);
    CHECK_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
  }
  allocates->launch(s);
  allocates = nullptr;
  CHECK_EQ(sim::live_allocations(), 1);
  begin(s);
  CHECK_EQ(cudaGraphLaunch(frees, s), cudaErrorNotSupported);
  ok(code_of_end(s));
  ok(cudaGraphLaunch(frees, s));
  ok(cudaStreamSynchronize(s));
  sim::set_capacity(0, 1 << 20);
  for (int i = 0; i < 100; ++i) ok(cudaMallocAsync(&p, 2048, s));
  CHECK_EQ(cudaGraphLaunch(frees, s), cudaErrorInvalidValue);  // whoever has that address now
  ok(cudaGraphExecDestroy(frees));
  ok(cudaGraphDestroy(graph));
}

TEST_CASE_FIXTURE(fresh, "no graph frees what another one frees itself") {
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  ok(cudaFreeAsync(p, s));
  executable const own(s);
  own.launch(s);
  begin(s);
  CHECK_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
  ok(code_of_end(s));
}

TEST_CASE_FIXTURE(fresh, "memory of a capture under way is freed by that capture only") {
  cudaStream_t const s = make_stream(), other = make_stream();
  void* p = nullptr;
  begin(s);
  ok(cudaMallocAsync(&p, 4096, s));
  CHECK_EQ(cudaFreeAsync(p, other), cudaErrorInvalidValue);
  CHECK_EQ(cudaFree(p), cudaErrorInvalidValue);
  CHECK_EQ(sim::live_allocations(), 1);
  ok(code_of_end(s));
  CHECK_EQ(sim::live_allocations(), 0);
}

// ---- what is refused

TEST_CASE_FIXTURE(fresh, "waiting for a capturing stream or asking it breaks the capture, in every mode") {
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event(), outside = make_event();
  ok(cudaEventRecord(outside, make_stream()));
  auto const callback = [](cudaStream_t, cudaError_t, void*) {};
  for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed})
    for (int what = 0; what < 7; ++what) {
      CAPTURE(what);
      cudaStreamCaptureMode const mine = exchange_mode(cudaStreamCaptureModeRelaxed);
      auto const before = sim::captures_invalidated();
      begin(s, mode);
      ok(cudaEventRecord(e, s));
      if (what == 0) CHECK_EQ(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
      if (what == 1) CHECK_EQ(cudaStreamQuery(s), cudaErrorStreamCaptureUnsupported);
      if (what == 2) CHECK_EQ(cudaEventSynchronize(e), cudaErrorCapturedEvent);
      if (what == 3) CHECK_EQ(cudaEventQuery(e), cudaErrorCapturedEvent);
      if (what == 4) CHECK_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
      if (what == 5) CHECK_EQ(cudaStreamWaitEvent(s, outside, 0), cudaErrorStreamCaptureIsolation);
      if (what == 6) CHECK_EQ(cudaStreamAddCallback(s, callback, nullptr, 0), cudaErrorStreamCaptureUnsupported);
      CHECK_EQ(sim::captures_invalidated(), before + 1);
      CHECK_EQ(status_of(s), cudaStreamCaptureStatusInvalidated);
      CHECK_EQ(cudaEventRecord(outside, s), cudaErrorStreamCaptureInvalidated);
      CHECK_EQ(cudaMemsetAsync(nullptr, 0, 0, s), cudaErrorStreamCaptureInvalidated);
      CHECK_EQ(code_of_end(s), cudaErrorStreamCaptureInvalidated);
      CHECK_EQ(status_of(s), cudaStreamCaptureStatusNone);
      exchange_mode(mine);
    }
}

TEST_CASE_FIXTURE(fresh, "an event is captured until it is recorded anew") {
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  begin(s);
  ok(cudaEventRecord(e, s));
  ok(code_of_end(s));
  CHECK_EQ(cudaEventQuery(e), cudaErrorInvalidValue);
  CHECK_EQ(cudaStreamWaitEvent(s, e, 0), cudaErrorCapturedEvent);
  ok(cudaEventRecord(e, s));
  ok(cudaEventQuery(e));
  CHECK_EQ(sim::captures_invalidated(), 0);
}

TEST_CASE_FIXTURE(fresh, "two captures cannot wait for each other") {
  cudaStream_t const a = make_stream(), b = make_stream();
  cudaEvent_t const e = make_event();
  begin(a);
  begin(b);
  ok(cudaEventRecord(e, a));
  CHECK_EQ(cudaStreamWaitEvent(b, e, 0), cudaErrorStreamCaptureMerge);
  CHECK_EQ(sim::captures_invalidated(), 2);
  code_of_end(a);
  code_of_end(b);
}

TEST_CASE_FIXTURE(fresh, "while a blocking stream captures, nothing may use the legacy stream") {
  cudaEvent_t const e = make_event();
  void* const p = take();
  cudaStreamCaptureStatus status{};
  SUBCASE("blocking") {
    cudaStream_t const s = make_stream(cudaStreamDefault);
    for (int what = 0; what < 5; ++what) {
      CAPTURE(what);
      begin(s);
      CHECK_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);
      CHECK_EQ(sim::captures_invalidated(), static_cast<std::uint64_t>(what));
      if (what == 0) CHECK_EQ(cudaEventRecord(e, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
      if (what == 1) CHECK_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
      if (what == 2) CHECK_EQ(cudaMemset(p, 0, 4096), cudaErrorStreamCaptureImplicit);
      if (what == 3) CHECK_THROWS_AS(write(cudaStreamLegacy, p), std::invalid_argument);
      if (what == 4) {
        ok(cudaEventRecord(e, s));
        CHECK_EQ(cudaStreamWaitEvent(cudaStreamLegacy, e, 0), cudaErrorStreamCaptureImplicit);
      }
      CHECK_EQ(code_of_end(s), cudaErrorStreamCaptureInvalidated);
    }
  }
  SUBCASE("non-blocking, or of another device") {
    cudaStream_t const s = make_stream();
    ok(cudaSetDevice(1));
    cudaStream_t const far = make_stream(cudaStreamDefault);
    ok(cudaSetDevice(0));
    begin(s);
    begin(far);
    ok(cudaStreamIsCapturing(cudaStreamLegacy, &status));
    ok(cudaEventRecord(e, cudaStreamLegacy));
    ok(cudaStreamSynchronize(cudaStreamLegacy));
    ok(cudaMemset(p, 0, 4096));
    ok(code_of_end(far));
    ok(code_of_end(s));
  }
  ok(cudaFree(p));
}

TEST_CASE_FIXTURE(fresh, "calls that a capture cannot see are refused by the modes of the capture and of the thread") {
  constexpr auto global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                 relaxed = cudaStreamCaptureModeRelaxed;
  struct row {
    cudaStreamCaptureMode capture, thread;
    bool same_thread, refused;
  };
  row const table[] = {
      {global, global, true, true},    {global, local, true, true},    {global, relaxed, true, false},
      {local, global, true, true},     {local, local, true, true},     {local, relaxed, true, false},
      {relaxed, global, true, false},  {relaxed, local, true, false},  {relaxed, relaxed, true, false},
      {global, global, false, true},   {global, local, false, false},  {global, relaxed, false, false},
      {local, global, false, false},   {local, local, false, false},   {local, relaxed, false, false},
      {relaxed, global, false, false}, {relaxed, local, false, false}, {relaxed, relaxed, false, false},
  };
  cudaStream_t const s = make_stream();
  cudaEvent_t const e = make_event();
  static unsigned char host[64];
  ok(cudaEventRecord(e, make_stream()));
  for (row const& r : table)
    for (int what = 0; what < 7; ++what) {
      CAPTURE(static_cast<int>(r.capture));
      CAPTURE(static_cast<int>(r.thread));
      CAPTURE(r.same_thread);
      CAPTURE(what);
      auto const before = sim::captures_invalidated();
      begin(s, r.capture);
      cudaError_t code = cudaSuccess;
      auto const call = [&] {
        exchange_mode(r.thread);
        void* p = nullptr;
        if (what == 0) code = cudaMalloc(&p, 64);
        if (what == 1) code = cudaMallocHost(&p, 64);
        if (what == 2) code = cudaMallocManaged(&p, 64, cudaMemAttachGlobal);
        if (what == 3) code = cudaEventQuery(e);
        if (what == 4) code = cudaEventSynchronize(e);
        if (what == 5) code = cudaFree(nullptr);
        if (what == 6) code = cudaHostRegister(host, sizeof host, cudaHostRegisterDefault);
        exchange_mode(relaxed);
        if (what == 6 && code == cudaSuccess) ok(cudaHostUnregister(host));
        if (what == 1) ok(cudaFreeHost(p));
        if (what == 0 || what == 2) ok(cudaFree(p));
        exchange_mode(global);
      };
      r.same_thread ? call() : in_another_thread(call);
      CHECK_EQ(code, r.refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
      CHECK_EQ(sim::captures_invalidated(), before + r.refused);
      CHECK_EQ(code_of_end(s), r.refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
}

TEST_CASE_FIXTURE(fresh, "a thread's mode is given back by the exchange, and each thread has its own") {
  CHECK_EQ(exchange_mode(cudaStreamCaptureModeRelaxed), cudaStreamCaptureModeGlobal);
  CHECK_EQ(exchange_mode(cudaStreamCaptureModeThreadLocal), cudaStreamCaptureModeRelaxed);
  in_another_thread([] { CHECK_EQ(exchange_mode(cudaStreamCaptureModeRelaxed), cudaStreamCaptureModeGlobal); });
  sim::reset();
  CHECK_EQ(exchange_mode(cudaStreamCaptureModeGlobal), cudaStreamCaptureModeGlobal);
}

TEST_CASE_FIXTURE(fresh, "only a relaxed capture may be ended by another thread") {
  cudaStream_t const s = make_stream();
  begin(s, cudaStreamCaptureModeThreadLocal);
  in_another_thread([s] { CHECK_EQ(code_of_end(s), cudaErrorStreamCaptureWrongThread); });
  ok(code_of_end(s));
  begin(s, cudaStreamCaptureModeRelaxed);
  in_another_thread([s] { CHECK_EQ(code_of_end(s), cudaSuccess); });
  CHECK_EQ(sim::captures_invalidated(), 0);
}

TEST_CASE_FIXTURE(fresh, "other streams, and what is legal on a capturing one, break nothing") {
  cudaStream_t const s = make_stream(), other = make_stream();
  void* const p = take();
  begin(s, cudaStreamCaptureModeGlobal);
  unsigned flags = 0;
  ok(cudaStreamGetFlags(s, &flags));
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, other));
  ok(cudaStreamSynchronize(other));
  ok(cudaStreamQuery(other));
  write(other, p);
  ok(cudaEventDestroy(e));
  ok(cudaStreamDestroy(other));
  ok(code_of_end(s));
  CHECK_EQ(sim::captures_invalidated(), 0);
  ok(cudaFree(p));
}

TEST_CASE_FIXTURE(fresh, "a reset ends every capture and forgets every graph") {
  cudaStream_t const s = make_stream();
  begin(s);
  cudaGraph_t const graph = end(s);
  begin(s);
  CHECK_EQ(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
  sim::reset();
  CHECK_EQ(sim::captures_invalidated(), 0);
  CHECK_EQ(status_of(s), cudaStreamCaptureStatusNone);
  CHECK_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  ok(cudaStreamSynchronize(s));
}

// ---- the check of order

TEST_CASE_FIXTURE(checking, "a capture is no use of memory; its launch is, on the stream that launches") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  cudaStream_t const a = make_stream(), b = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, a));
  begin(a);
  write(a, p);
  executable const graph(a);
  CHECK_EQ(sim::report_count(), 0);
  SUBCASE("on the stream of the allocation") { graph.launch(a); }
  SUBCASE("on another, unordered") {
    graph.launch(b);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("on another, which waited") {
    order(a, b);
    graph.launch(b);
    ok(cudaFreeAsync(p, a));  // but a did not wait for the launch
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  SUBCASE("after the memory was freed") {
    sim::set_mode(sim::mode::lazy);  // nothing of it has to run
    ok(cudaFreeAsync(p, a));
    graph.launch(a);
    CHECK_EQ(the_report().kind, order_problem::use_after_free);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "branches of a capture have to be joined like streams") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* p = nullptr;
  begin(a);
  order(a, b);
  ok(cudaMallocAsync(&p, 4096, a));
  SUBCASE("unordered") {
    write(b, p);
    sim::order_report const found = the_report();
    CHECK_EQ(found.kind, order_problem::use_before_allocation);
    CHECK_NE(found.text.find("(being captured), was allocated by"), std::string::npos);
  }
  SUBCASE("ordered") {
    order(a, b);
    write(b, p);
  }
  order(b, a);
  ok(cudaFreeAsync(p, a));
  executable const graph(a);
  graph.launch(b);
  graph.launch(a);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a second launch of one executable graph comes after the first") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, a));
  begin(a);
  write(a, p);
  executable const graph(a);
  graph.launch(a);
  graph.launch(b);
  ok(cudaFreeAsync(p, b));
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a launch into a capture is no launch: it comes after none, and none comes after it") {
  sim::set_mode(sim::mode::lazy);
  cudaStream_t const a = make_stream(), b = make_stream();
  void* p = nullptr;
  ok(cudaMallocHost(&p, 4096));
  begin(a);
  write(a, p);
  executable const graph(a);
  begin(b);
  SUBCASE("the host did not wait for the launch before it") {
    graph.launch(a);
    graph.launch(b);
    executable const outer(b);
    sim::host_access(p, 4096, access::read);
    CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);
  }
  SUBCASE("the launch after it comes after the one before it") {
    graph.launch(a);
    graph.launch(b);
    executable const outer(b);
    graph.launch(b);
    ok(cudaStreamSynchronize(b));
    sim::host_access(p, 4096, access::read);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "memory that a graph only reads may be read by others meanwhile") {
  cudaStream_t const a = make_stream();
  void* const to = take();
  void* from = nullptr;
  ok(cudaMallocHost(&from, 4096));
  begin(a);
  ok(cudaMemcpyAsync(to, from, 4096, cudaMemcpyDefault, a));
  executable const inner(a);
  begin(a);
  inner.launch(a);
  SUBCASE("it only reads") {
    executable const graph(a);
    graph.launch(a);
    sim::host_access(from, 4096, access::read);
    CHECK_EQ(sim::report_count(), 0);
    sim::host_access(from, 4096, access::write);
  }
  SUBCASE("it writes, too") {
    write(a, from);
    executable const graph(a);
    graph.launch(a);
    sim::host_access(from, 4096, access::read);
  }
  CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);
}

TEST_CASE_FIXTURE(fresh, "a host function in a graph tells the host that it was launched, if that is asked for") {
  sim::check_order(true, {.host_functions_tell = true});
  sim::set_mode(sim::mode::lazy);
  cudaStream_t const a = make_stream();
  void* p = nullptr;
  ok(cudaMallocHost(&p, 4096));
  begin(a);
  write(a, p);
  ok(cudaLaunchHostFunc(
      a, [](void*) {}, nullptr));
  executable const graph(a);
  write(a, p);
  graph.launch(a);
  sim::host_access(p, 4096, access::read);
  CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);  // it has not run
  sim::run_all();
  sim::host_access(p, 4096, access::read);
  CHECK_EQ(sim::report_count(), 0);
  ok(cudaStreamSynchronize(a));
  ok(cudaFreeHost(p));
}

TEST_CASE_FIXTURE(fresh, "what a graph only reads is not written by it") {
  sim::check_order(true, {.uninitialised = true});
  cudaStream_t const a = make_stream();
  void* const from = take();
  void* const to = take();
  begin(a);
  ok(cudaMemcpyAsync(to, from, 4096, cudaMemcpyDefault, a));
  executable const graph(a);
  graph.launch(a);
  sim::touch(a, to, 4096, access::read);
  CHECK_EQ(sim::report_count(), 0);
  sim::touch(a, from, 4096, access::read);
  CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
}

namespace {

/// A graph that leaves a block of its own live, after its first launch on `a`.
struct graph_with_memory : checking {
  void make(unsigned long long flags) {
    begin(a);
    ok(cudaMallocAsync(&p, 4096, a));
    cudaGraph_t const graph = end(a);
    ok(cudaGraphInstantiate(&run, graph, flags));
    ok(cudaGraphDestroy(graph));
    ok(cudaGraphLaunch(run, a));
  }
  ~graph_with_memory() { cudaGraphExecDestroy(run); }

  cudaStream_t a = make_stream(), b = make_stream();
  cudaGraphExec_t run = nullptr;
  void* p = nullptr;
};

}  // namespace

TEST_CASE_FIXTURE(graph_with_memory, "memory that a graph leaves live is allocated by each launch, in its stream") {
  make(0);
  for (int launches = 1; launches < 4; ++launches) {
    write(a, p);
    ok(cudaFreeAsync(p, a));
    ok(cudaGraphLaunch(run, a));
    write(a, p);
    ok(cudaStreamSynchronize(a));
    ok(cudaFree(p));
    ok(cudaGraphLaunch(run, a));
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "memory that a capture leaves live is nobody's before a launch") {
  cudaStream_t const a = make_stream();
  void* p = nullptr;
  begin(a);
  ok(cudaMallocAsync(&p, 4096, a));
  cudaGraph_t graph = end(a);
  SUBCASE("a use of it is reported") {
    CHECK_EQ(cudaMemsetAsync(p, 0, 4096, a), cudaErrorInvalidValue);
    CHECK_EQ(the_report().kind, order_problem::use_after_free);
  }
  SUBCASE("and it is no allocation any more, which whoever has its address next were taken for") {
    ok(cudaGraphDestroy(std::exchange(graph, nullptr)));
    CHECK_EQ(cudaFreeAsync(p, a), cudaErrorInvalidValue);
    CHECK_EQ(the_report().kind, order_problem::double_free);
  }
  SUBCASE("a launch makes it the program's") {
    cudaGraphExec_t run = nullptr;
    ok(cudaGraphInstantiate(&run, graph, 0));
    ok(cudaGraphLaunch(run, a));
    write(a, p);
    ok(cudaFreeAsync(p, a));
    ok(cudaGraphExecDestroy(run));
  }
  if (graph != nullptr) ok(cudaGraphDestroy(graph));
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(graph_with_memory, "a stream that does not come after a launch may not use what that leaves live") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  make(0);
  for (int launches = 1; launches < 4; ++launches) {
    write(b, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
    order(b, a);
    ok(cudaFreeAsync(p, a));
    ok(cudaGraphLaunch(run, a));
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(graph_with_memory, "a launch comes after the free of what the last one left") {
  make(0);
  for (int launches = 1; launches < 4; ++launches) {
    order(a, b);
    ok(cudaFreeAsync(p, b));
    order(b, a);
    ok(cudaGraphLaunch(run, a));
    CHECK_EQ(sim::report_count(), 0);
    order(a, b);
    ok(cudaFreeAsync(p, b));
    ok(cudaGraphLaunch(run, a));
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  }
}

TEST_CASE_FIXTURE(graph_with_memory, "a launch that frees what the last one left comes after all uses of it") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  make(cudaGraphInstantiateFlagAutoFreeOnLaunch);
  order(a, b);
  write(b, p);
  SUBCASE("in order") { order(b, a); }
  SUBCASE("not") {
    ok(cudaGraphLaunch(run, a));
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  ok(cudaGraphLaunch(run, a));
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(graph_with_memory, "another graph may use what a launch left, however often it is launched") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  unsigned long long flags = 0;
  SUBCASE("and the program frees it") {}
  SUBCASE("and the next launch frees it") { flags = cudaGraphInstantiateFlagAutoFreeOnLaunch; }
  make(flags);
  begin(a);
  write(a, p);
  executable const other(a);
  for (int launches = 1; launches < 4; ++launches) {
    other.launch(a);
    if (flags == 0) ok(cudaFreeAsync(p, a));
    ok(cudaGraphLaunch(run, a));
  }
  CHECK_EQ(sim::report_count(), 0);
  other.launch(b);
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  order(b, a);
  ok(cudaFreeAsync(p, a));
  take(4096);
  other.launch(a);
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
}

TEST_CASE_FIXTURE(graph_with_memory, "a graph that frees what another one left comes after that, and after all uses") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  make(0);
  begin(b);
  ok(cudaFreeAsync(p, b));
  executable const frees(b);
  for (int launches = 1; launches < 4; ++launches) {
    write(a, p);
    order(a, b);
    frees.launch(b);
    CHECK_EQ(sim::report_count(), 0);
    CHECK_EQ(cudaGraphLaunch(frees.handle, b), cudaErrorInvalidValue);
    CHECK_EQ(the_report().kind, order_problem::double_free);
    order(b, a);
    ok(cudaGraphLaunch(run, a));
  }
  write(a, p);
  frees.launch(b);
  CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  ok(cudaGraphLaunch(run, a));
  CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  ok(cudaFreeAsync(p, a));
}

TEST_CASE_FIXTURE(checking, "a graph may be captured with what another one will have left live at its launch") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  cudaStream_t const a = make_stream(), b = make_stream();
  void *p = nullptr, *host = nullptr;
  ok(cudaMallocHost(&host, 4096));
  begin(a);
  ok(cudaMallocAsync(&p, 4096, a));
  executable const allocates(a);
  begin(a);
  write(a, p);
  ok(cudaMemsetAsync(p, 1, 4096, a));
  ok(cudaMemcpyAsync(host, p, 4096, cudaMemcpyDefault, a));
  CHECK_EQ(cudaMemsetAsync(p, 1, 4097, a), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
  executable const uses(a);
  uses.launch(a);
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
  for (int i = 0; i < 2; ++i) {
    allocates.launch(a);
    uses.launch(a);
    ok(cudaFreeAsync(p, a));
    CHECK_EQ(sim::report_count(), 0);
  }
  allocates.launch(a);
  uses.launch(b);
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  sim::clear_reports();
}

namespace {

/// A block handed out and taken back in a capture, with a graph made of that.
struct captured_block : checking {
  captured_block() {
    memory = take();
    begin(a);
    blocks.allocated(a, memory, 1024, 256);
    write(a, memory, 1024);
    blocks.freed(a, memory, 1024, 256);
  }

  sim::checked_blocks blocks{"a pool"};
  cudaStream_t a = make_stream(), b = make_stream();
  void* memory = nullptr;
};

}  // namespace

TEST_CASE_FIXTURE(captured_block, "memory freed in a capture and handed out again in it is in order") {
  blocks.allocated(a, memory, 512, 256);
  write(a, memory, 512);
  blocks.freed(a, memory, 512, 256);
  executable const graph(a);
  graph.launch(a);
  graph.launch(b);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(captured_block, "memory freed in a capture and handed out elsewhere meanwhile is a violation") {
  blocks.allocated(b, memory, 512, 256);
  CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  blocks.freed(b, memory, 512, 256);
  ok(code_of_end(a));
}

TEST_CASE_FIXTURE(captured_block, "memory of a graph that is in use elsewhere at a launch is a violation") {
  sim::set_mode(sim::mode::lazy);  // what is wrong is not done
  executable const graph(a);
  graph.launch(a);
  order(a, b);
  blocks.allocated(b, memory, 512, 256);
  write(b, memory, 512);
  CHECK_EQ(sim::report_count(), 0);  // had the graph not been launched again, no harm
  SUBCASE("live") {
    graph.launch(a);
    CHECK_EQ(the_report().kind, order_problem::use_after_free);
    order(a, b);
    blocks.freed(b, memory, 512, 256);
  }
  SUBCASE("freed, but not before the launch") {
    blocks.freed(b, memory, 512, 256);
    graph.launch(a);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  }
  SUBCASE("freed, and waited for") {
    blocks.freed(b, memory, 512, 256);
    order(b, a);
    graph.launch(a);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(captured_block, "memory handed out after a launch that it does not come after is a violation") {
  executable const graph(a);
  graph.launch(a);
  blocks.allocated(b, memory, 512, 256);
  CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  blocks.freed(b, memory, 512, 256);
}

TEST_CASE_FIXTURE(checking, "memory from outside that a capture frees has to be free of the capture's own uses") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* p = nullptr;
  bool joined = false;
  SUBCASE("joined before the free") { joined = true; }
  SUBCASE("joined after it"){} {
    sim::checked_blocks blocks("a pool");
    p = take();
    blocks.allocated(a, p, 1024, 256);
    begin(a);
    order(a, b);
    write(b, p, 1024);
    if (joined) order(b, a);
    blocks.freed(a, p, 1024, 256);
    if (!joined) CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
    order(b, a);
    ok(code_of_end(a));
    ok(cudaFree(p));
  }
  begin(a);
  ok(cudaMallocAsync(&p, 4096, a));
  executable const allocates(a);
  begin(a);
  order(a, b);
  write(b, p);
  if (joined) order(b, a);
  ok(cudaFreeAsync(p, a));
  if (!joined) CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  order(b, a);
  ok(code_of_end(a));
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a block from outside that a capture frees is used by the launch, and free after it") {
  sim::checked_blocks blocks("a pool");
  cudaStream_t const a = make_stream(), b = make_stream();
  void* const p = take();
  blocks.allocated(a, p, 1024, 256);
  write(a, p, 1024);
  begin(a);
  write(a, p, 1024);
  blocks.freed(a, p, 1024, 256);
  SUBCASE("the same memory in the same capture would not come after the work from outside") {
    blocks.allocated(a, p, 1024, 256);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
    blocks.freed(a, p, 1024, 256);
  }
  {
    executable const graph(a);
    graph.launch(a);
  }
  blocks.allocated(b, p, 1024, 256);
  CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  blocks.freed(b, p, 1024, 256);
  ok(cudaFree(p));
}
