#pragma once
// Probes: stream capture and graphs: what is recorded, what is refused, and which refusals break the capture. What is
// called the guide is the section on prohibited operations and invalidation of stream capture in NVIDIA's programming
// guide; the other answers are in the comments of cuda_runtime_api.h and driver_types.h.

#include "probe.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace probes {

/// A capture that ends with the probe, whatever became of it: one that stays open would spoil the probes after it.
class capture {
 public:
  capture(verdict& v, cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) : stream_(s) {
    v.ok("a capture begins", cudaStreamBeginCapture(s, mode));
  }
  ~capture() {
    if (!ended_) static_cast<void>(end());
    if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
  }
  capture(capture const&) = delete;
  capture& operator=(capture const&) = delete;

  cudaError_t end() {
    ended_ = true;
    return cudaStreamEndCapture(stream_, &graph_);
  }
  cudaStream_t on() const { return stream_; }
  cudaGraph_t graph() const { return graph_; }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

class executable {
 public:
  executable(verdict& v, capture& c) {
    v.ok("the capture ends", c.end());
    v.ok("its graph is instantiated", cudaGraphInstantiate(&handle_, c.graph(), 0));
  }
  ~executable() { static_cast<void>(cudaGraphExecDestroy(handle_)); }
  executable(executable const&) = delete;
  executable& operator=(executable const&) = delete;

  cudaError_t launch(cudaStream_t s) const { return cudaGraphLaunch(handle_, s); }

 private:
  cudaGraphExec_t handle_ = nullptr;
};

inline void expect_status(verdict& v, char const* whose, cudaStream_t s, cudaStreamCaptureStatus expected) {
  cudaStreamCaptureStatus status{};
  v.ok(whose, cudaStreamIsCapturing(s, &status));
  v.equal<int>(whose, status, expected);
}

/// The guide: after an invalid operation, further use of the streams is an error "until stream capture is ended", which
/// will "also return an error value and a NULL graph".
inline void expect_broken(verdict& v, capture& c) {
  event const e;
  expect_status(v, "the status of a broken capture", c.on(), cudaStreamCaptureStatusInvalidated);
  v.code("work for a broken capture", cudaEventRecord(e, c.on()), cudaErrorStreamCaptureInvalidated);
  v.code("the end of a broken capture", c.end(), cudaErrorStreamCaptureInvalidated);
  v.yes("a broken capture gives no graph", c.graph() == nullptr);
  expect_status(v, "the status after the end", c.on(), cudaStreamCaptureStatusNone);
  v.ok("the stream, after the end", cudaStreamSynchronize(c.on()));
}

inline void expect_whole(verdict& v, capture& c) {
  expect_status(v, "the status of a capture", c.on(), cudaStreamCaptureStatusActive);
  v.ok("the end of a capture", c.end());
  v.yes("a capture gives a graph", c.graph() != nullptr);
}

/// A call in each mode of a capture; it is never allowed.
template <class Call>
void expect_refused(verdict& v, char const* what, cudaError_t with, Call call) {
  for (auto const mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    stream const s;
    capture c(v, s, mode);
    v.code(what, call(cudaStream_t{s}), with);
    expect_broken(v, c);
  }
}

// ---- what is recorded

// "all operations pushed into the stream will not be executed, but will instead be captured into a graph"
inline void captured_work_runs_when_launched(verdict& v) {
  flag f;
  stream const s, other;
  capture c(v, s);
  v.ok("work", f.raise(s));
  v.ok("look", f.look(s));
  executable const graph(v, c);
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.no("done before a launch", f.was_up());
  v.ok("launch", graph.launch(other));
  v.ok("synchronise", cudaStreamSynchronize(other));
  v.yes("done by the launch", f.was_up());
}

inline void each_launch_runs_host_functions(verdict& v) {
  stream const s;
  int calls = 0;
  capture c(v, s);
  v.ok("cudaLaunchHostFunc", cudaLaunchHostFunc(
                                 s, [](void* data) { ++*static_cast<int*>(data); }, &calls));
  executable const graph(v, c);
  v.equal("calls before a launch", calls, 0);
  v.ok("launch", graph.launch(s));
  v.ok("launch", graph.launch(s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal("calls", calls, 2);
}

inline void empty_captures_give_graphs(verdict& v) {
  stream const s;
  capture c(v, s);
  executable const graph(v, c);
  v.yes("a graph", c.graph() != nullptr);
  v.ok("launch", graph.launch(s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

#if CUDART_VERSION >= 13000
// "dependencies_out: ... the next node to be captured in the stream will depend on this set of nodes, absent operations
// such as event wait which modify this set."
inline void captures_say_what_comes_next_after_what(verdict& v) {
  flag f;
  stream const s, other;
  event const forked, joined;
  capture c(v, s);
  auto const next_after = [&](cudaStream_t on) {
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    cudaGraphNode_t const* nodes = nullptr;
    std::size_t count = 77;
    v.ok("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(on, &status, &id, &graph, &nodes, nullptr, &count));
    v.yes("a graph", graph != nullptr);
    return std::vector<cudaGraphNode_t>(nodes, nodes + count);
  };
  v.equal<std::size_t>("before any node", next_after(s).size(), 0);
  v.ok("record", cudaEventRecord(forked, s));
  v.ok("wait", cudaStreamWaitEvent(other, forked, 0));
  v.ok("work", f.raise(s));
  v.ok("work", f.raise(s));
  auto const last = next_after(s);
  v.equal<std::size_t>("after work", last.size(), 1);
  v.equal<std::size_t>("the other stream", next_after(other).size(), 0);
  v.ok("work", f.look(other));
  v.ok("record", cudaEventRecord(joined, other));
  v.ok("wait", cudaStreamWaitEvent(s, joined, 0));
  auto const both = next_after(s);
  v.equal<std::size_t>("after the join", both.size(), 2);
  v.yes("the stream's own last node is one", std::find(both.begin(), both.end(), last[0]) != both.end());
  v.ok("end", c.end());

  std::size_t count = 0;
  v.ok("cudaGraphGetNodes", cudaGraphGetNodes(c.graph(), nullptr, &count));
  v.equal<std::size_t>("nodes", count, 3);
  v.ok("cudaGraphGetRootNodes", cudaGraphGetRootNodes(c.graph(), nullptr, &count));
  v.equal<std::size_t>("roots", count, 2);
  cudaGraphNode_t before[2] = {last[0], last[0]};
  count = 2;
  v.ok("cudaGraphNodeGetDependencies", cudaGraphNodeGetDependencies(last[0], before, nullptr, &count));
  v.equal<std::size_t>("dependencies", count, 1);
  v.yes("behind the last one there is nothing", before[1] == nullptr);
  v.ok("cudaGraphNodeGetDependentNodes", cudaGraphNodeGetDependentNodes(before[0], nullptr, nullptr, &count));
  v.equal<std::size_t>("dependent nodes", count, 1);
  v.code("no graph", cudaGraphGetNodes(nullptr, nullptr, &count), cudaErrorInvalidValue);
}

// "Returns cudaErrorIllegalState if the stream is not capturing."
inline void dependencies_are_those_of_a_capture(verdict& v) {
  stream const s;
  v.code("no capture", cudaStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 0), cudaErrorIllegalState);
}
#endif

// cudaGraphNodeGetType: "Returns the node type". cudaGraphAddEmptyNode: "a new node which performs no operation".
inline void nodes_say_what_they_are(verdict& v) {
  flag f;
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  v.ok("cudaMemsetAsync", cudaMemsetAsync(p, 0, 4096, s));
  v.ok("work", f.look(s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  v.ok("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, nullptr, nullptr, nullptr));
#else
  v.ok("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, nullptr, nullptr));
#endif
  cudaGraphNode_t empty = nullptr;
  v.ok("cudaGraphAddEmptyNode", cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
  v.ok("end", c.end());
  cudaGraphNodeType type{};
  v.ok("cudaGraphNodeGetType", cudaGraphNodeGetType(empty, &type));
  v.equal("an empty node", int{type}, int{cudaGraphNodeTypeEmpty});
  cudaGraphNode_t nodes[5] = {};
  std::size_t count = 5;
  v.ok("cudaGraphGetNodes", cudaGraphGetNodes(c.graph(), nodes, &count));
  v.equal<std::size_t>("nodes", count, 5);
  int of_a_kind[] = {0, 0, 0, 0};
  constexpr cudaGraphNodeType kinds[] = {cudaGraphNodeTypeMemAlloc, cudaGraphNodeTypeMemset, cudaGraphNodeTypeMemcpy,
                                         cudaGraphNodeTypeMemFree};
  for (cudaGraphNode_t const node : nodes) {
    v.ok("cudaGraphNodeGetType", cudaGraphNodeGetType(node, &type));
    for (int i = 0; i < 4; ++i) of_a_kind[i] += type == kinds[i];
  }
  for (int const count_of_kind : of_a_kind) v.equal("nodes of a kind", count_of_kind, 1);
}

// "write to path a DOT formatted description of the graph"
inline void graphs_can_be_written_as_text(verdict& v) {
  flag f;
  stream const s;
  capture c(v, s);
  v.ok("work", f.raise(s));
  v.ok("end", c.end());
  std::string const file_name = std::filesystem::temp_directory_path() / ("weir_probe_" + std::to_string(::getpid()));
  char const* const path = file_name.c_str();
  v.ok("cudaGraphDebugDotPrint", cudaGraphDebugDotPrint(c.graph(), path, 0));
  char begin[7] = {};
  if (std::FILE* const file = std::fopen(path, "r")) {
    v.yes("the text's first word", std::fread(begin, 1, 7, file) == 7 && std::memcmp(begin, "digraph", 7) == 0);
    std::fclose(file);
  } else {
    v.yes("a file", false);
  }
  std::remove(path);
  v.code("no graph", cudaGraphDebugDotPrint(nullptr, path, 0), cudaErrorInvalidValue);
  v.fails("no folder", cudaGraphDebugDotPrint(c.graph(), "/nowhere/graph.dot", 0));
}

// cudaGraphInstantiateFlagAutoFreeOnLaunch: "Automatically free memory allocated in a graph before relaunching."
inline void graphs_can_free_memory_when_launched_again(verdict& v) {
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  v.ok("end", c.end());
  cudaGraphExec_t executable = nullptr;
  v.ok("cudaGraphInstantiateWithFlags",
       cudaGraphInstantiateWithFlags(&executable, c.graph(), cudaGraphInstantiateFlagAutoFreeOnLaunch));
  v.ok("launch", cudaGraphLaunch(executable, s));
  v.ok("launch again, though nobody freed the memory", cudaGraphLaunch(executable, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("cudaGraphExecDestroy", cudaGraphExecDestroy(executable));
}

// The guide: placing a stream into or out of capture mode severs the dependency between items added before and after.
inline void pending_work_is_no_part_of_a_capture(verdict& v) {
  flag f;
  stream const s;
  gate g(v, s);
  capture c(v, s);
  v.ok("work", f.raise(s));
  v.ok("end", c.end());
  v.code("the work before the capture", cudaStreamQuery(s), cudaErrorNotReady);
  g.open();
  v.ok("look", f.look(s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.no("what was captured is done", f.was_up());
}

inline void waits_bring_streams_into_a_capture(verdict& v) {
  stream const s, other;
  event const forked, joined;
  capture c(v, s);
  v.ok("record", cudaEventRecord(forked, s));
  v.ok("wait", cudaStreamWaitEvent(other, forked, 0));
  expect_status(v, "the other stream", other, cudaStreamCaptureStatusActive);
  cudaStreamCaptureStatus status{};
  unsigned long long mine = 0, others = 0;
  v.ok("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(s, &status, &mine));
  v.ok("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(other, &status, &others));
  v.equal("the other stream's capture", others, mine);
  v.ok("record", cudaEventRecord(joined, other));
  v.ok("wait", cudaStreamWaitEvent(s, joined, 0));
  expect_whole(v, c);
  expect_status(v, "the other stream, after the end", other, cudaStreamCaptureStatusNone);
}

// "an id for the capture sequence, which is unique over the lifetime of the process"
inline void captures_have_ids(verdict& v) {
  stream const s;
  unsigned long long ids[2] = {};
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  v.ok("before", cudaStreamGetCaptureInfo(s, &status, &ids[0]));
  v.equal<int>("status before", status, cudaStreamCaptureStatusNone);
  for (unsigned long long& id : ids) {
    capture c(v, s);
    v.ok("during", cudaStreamGetCaptureInfo(s, &status, &id));
    v.equal<int>("status during", status, cudaStreamCaptureStatusActive);
    expect_whole(v, c);
  }
  v.no("the same id", ids[0] == ids[1]);
}

// ---- memory of a graph

// cudaGraphLaunch: with unfreed allocations of a previous launch, "the launch will fail with cudaErrorInvalidValue".
// cudaGraphAddMemAllocNode: the address "remains fixed"; what no node frees can be passed to cudaFreeAsync.
inline void memory_of_a_graph_is_freed_between_launches(verdict& v) {
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  executable const graph(v, c);
  for (int i = 0; i < 2; ++i) {
    v.ok("launch", graph.launch(s));
    v.ok("use", cudaMemsetAsync(p, 1, 4096, s));
    v.code("launch while the memory is live", graph.launch(s), cudaErrorInvalidValue);
    v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  }
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// cudaGraphAddMemAllocNode: what is not freed in the same graph can be freed by "launching a graph with a free node for
// that allocation".
inline void memory_of_a_graph_is_freed_by_another(verdict& v) {
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  executable const allocates(v, c);
  capture d(v, s);
  v.ok("cudaFreeAsync in another capture", cudaFreeAsync(p, s));
  v.fails("cudaFreeAsync again", cudaFreeAsync(p, s));
  executable const frees(v, d);
  for (int i = 0; i < 2; ++i) {
    v.ok("launch", allocates.launch(s));
    v.ok("use", cudaMemsetAsync(p, 1, 4096, s));
    v.ok("launch of the graph that frees", frees.launch(s));
  }
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// cudaMallocAsync: during capture "the allocation is owned by the graph instead of the memory pool".
inline void memory_of_a_graph_is_no_pools(verdict& v) {
  cudaMemPool_t pool = nullptr;
  v.ok("cudaDeviceGetMemPool", cudaDeviceGetMemPool(&pool, 0));
  auto const used = [&] {
    std::uint64_t bytes = 0;
    v.ok("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes));
    return bytes;
  };
  std::uint64_t const before = used();
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  executable const graph(v, c);
  v.ok("launch", graph.launch(s));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal("what the pool has in use", used(), before);
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

inline void memory_that_a_graph_frees_lets_it_be_launched_again(verdict& v) {
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  v.ok("use", cudaMemsetAsync(p, 1, 4096, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  executable const graph(v, c);
  v.ok("launch", graph.launch(s));
  v.ok("launch", graph.launch(s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// cudaFreeAsync: during capture it "must therefore be passed the address of a graph allocation".
inline void captures_free_memory_of_graphs_only(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  {
    capture c(v, s);
    v.fails("cudaFreeAsync of other memory", cudaFreeAsync(p, s));
  }
  v.ok("cudaFreeAsync, after the capture", cudaFreeAsync(p, s));
  v.ok("synchronise", cudaStreamSynchronize(s));
}

// What is not allocated before a launch is nothing that could be freed outside of the capture.
inline void memory_of_a_capture_under_way_is_freed_in_it_only(verdict& v) {
  stream const s, other;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  v.fails("cudaFreeAsync on another stream", cudaFreeAsync(p, other));
  cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
  v.ok("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&relaxed));
  v.fails("cudaFree", cudaFree(p));
  v.ok("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&relaxed));
  v.ok("cudaFreeAsync in the capture", cudaFreeAsync(p, s));
  v.ok("end", c.end());
}

// cudaGraphAddMemFreeNode: cudaErrorInvalidValue for "an allocation twice in the same graph".
inline void graphs_free_memory_once(verdict& v) {
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  v.fails("cudaFreeAsync again", cudaFreeAsync(p, s));
}

// "If graph contains any allocation or free nodes, there can be at most one executable graph in existence for that
// graph at a time."
inline void graphs_with_memory_have_one_executable(verdict& v) {
  stream const s;
  void* p = nullptr;
  capture c(v, s);
  v.ok("cudaMallocAsync", cudaMallocAsync(&p, 4096, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
  cudaGraphExec_t second = nullptr;
  {
    executable const first(v, c);
    v.fails("a second one", cudaGraphInstantiate(&second, c.graph(), 0));
  }
  v.ok("one after the first", cudaGraphInstantiate(&second, c.graph(), 0));
  v.ok("destroy", cudaGraphExecDestroy(second));
}

// ---- what is refused

// cudaErrorStreamCaptureUnsupported: "The operation is not permitted when the stream is capturing."
inline void capturing_streams_cannot_be_waited_for(verdict& v) {
  auto const refused = cudaErrorStreamCaptureUnsupported;
  expect_refused(v, "synchronise", refused, [](cudaStream_t s) { return cudaStreamSynchronize(s); });
  expect_refused(v, "query", refused, [](cudaStream_t s) { return cudaStreamQuery(s); });
}

// No comment says so. An H100 with driver 580.159.04 refuses the id of a capturing stream and breaks the capture;
// NVIDIA's documentation of `is_stream_capturing` in CCCL says that of the device as well.
inline void capturing_streams_do_not_say_who_they_are(verdict& v) {
  expect_refused(v, "the id of a capturing stream", cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) {
    unsigned long long id = 0;
    return cudaStreamGetId(s, &id);
  });
#if CUDART_VERSION >= 12080
  expect_refused(v, "the device of a capturing stream", cudaErrorStreamCaptureUnsupported, [](cudaStream_t s) {
    int device = 0;
    return cudaStreamGetDevice(s, &device);
  });
#endif
}

// The guide: nor a broader handle, "such as a device or context handle when any associated stream is in capture mode".
inline void capturing_devices_cannot_be_waited_for(verdict& v) {
  expect_refused(v, "cudaDeviceSynchronize", cudaErrorStreamCaptureUnsupported,
                 [](cudaStream_t) { return cudaDeviceSynchronize(); });
}

// cudaErrorCapturedEvent: "not permitted on an event which was last recorded in a capturing stream".
inline void captured_events_cannot_be_waited_for(verdict& v) {
  event const e;
  expect_refused(v, "query", cudaErrorCapturedEvent, [&](cudaStream_t s) {
    v.ok("record", cudaEventRecord(e, s));
    return cudaEventQuery(e);
  });
  expect_refused(v, "synchronise", cudaErrorCapturedEvent, [&](cudaStream_t s) {
    v.ok("record", cudaEventRecord(e, s));
    return cudaEventSynchronize(e);
  });
}

inline void events_are_captured_until_recorded_anew(verdict& v) {
  stream const s;
  event const e;
  {
    capture c(v, s);
    v.ok("record", cudaEventRecord(e, s));
    expect_whole(v, c);
  }
  v.code("query after the capture", cudaEventQuery(e), cudaErrorInvalidValue);
  v.ok("record", cudaEventRecord(e, s));
  v.ok("synchronise", cudaEventSynchronize(e));
  v.ok("query", cudaEventQuery(e));
}

// cudaStreamAddCallback and, in the guide, cudaStreamAttachMemAsync are not supported in captures.
inline void callbacks_and_attachments_are_not_captured(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.ok("cudaMallocManaged", cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
  {
    capture c(v, s);
    v.fails("cudaStreamAddCallback", cudaStreamAddCallback(
                                         s, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0));
  }
  {
    capture c(v, s);
    v.fails("cudaStreamAttachMemAsync", cudaStreamAttachMemAsync(s, p, 0, cudaMemAttachSingle));
  }
  v.ok("cudaFree", cudaFree(p));
}

// ---- calls that a capture cannot see: the modes of the capture and of the thread decide

/// cudaMalloc during a capture of that mode, in a thread of this one, which may be the one that captures.
inline void expect_malloc(verdict& v, char const* what, cudaStreamCaptureMode of_capture,
                          cudaStreamCaptureMode of_thread, bool in_same_thread, bool refused) {
  stream const s;
  void* p = nullptr;
  {
    capture c(v, s, of_capture);
    auto const allocate = [&] {
      cudaStreamCaptureMode mode = of_thread;
      v.ok("the thread's mode is set", cudaThreadExchangeStreamCaptureMode(&mode));
      v.code(what, cudaMalloc(&p, 4096), refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
      v.ok("the thread's mode is set back", cudaThreadExchangeStreamCaptureMode(&mode));
    };
    in_same_thread ? allocate() : std::thread(allocate).join();
    refused ? expect_broken(v, c) : expect_whole(v, c);
  }
  if (p != nullptr) v.ok("cudaFree", cudaFree(p));
}

// "If the local thread has an ongoing capture sequence that was not initiated with cudaStreamCaptureModeRelaxed", it
// "is prohibited from potentially unsafe API calls", if its own mode is not relaxed.
inline void own_captures_forbid_unsafe_calls(verdict& v) {
  constexpr auto global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                 relaxed = cudaStreamCaptureModeRelaxed;
  expect_malloc(v, "global capture", global, global, true, true);
  expect_malloc(v, "local capture", local, global, true, true);
  expect_malloc(v, "relaxed capture", relaxed, global, true, false);
  expect_malloc(v, "global capture, local thread", global, local, true, true);
  expect_malloc(v, "global capture, relaxed thread", global, relaxed, true, false);
  expect_malloc(v, "local capture, relaxed thread", local, relaxed, true, false);
}

// "... or if any other thread has a concurrent capture sequence initiated with cudaStreamCaptureModeGlobal"; in the
// other modes "concurrent capture sequences in other threads are ignored".
inline void other_threads_captures_forbid_unsafe_calls_if_global(verdict& v) {
  constexpr auto global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                 relaxed = cudaStreamCaptureModeRelaxed;
  expect_malloc(v, "global capture", global, global, false, true);
  expect_malloc(v, "local capture", local, global, false, false);
  expect_malloc(v, "relaxed capture", relaxed, global, false, false);
  expect_malloc(v, "global capture, local thread", global, local, false, false);
  expect_malloc(v, "global capture, relaxed thread", global, relaxed, false, false);
}

inline void free_is_an_unsafe_call(verdict& v) {
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 4096));
  {
    stream const s;
    capture c(v, s, cudaStreamCaptureModeGlobal);
    v.code("cudaFree", cudaFree(p), cudaErrorStreamCaptureUnsupported);
    expect_broken(v, c);
  }
  v.ok("cudaFree, after the capture", cudaFree(p));
}

// "overwrites *mode with the previous mode for the thread"; global "is the default mode".
inline void each_thread_has_its_mode(verdict& v) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  v.ok("exchange", cudaThreadExchangeStreamCaptureMode(&mode));
  v.equal<int>("the mode to begin with", mode, cudaStreamCaptureModeGlobal);
  std::thread([&] {
    cudaStreamCaptureMode others = cudaStreamCaptureModeRelaxed;
    v.ok("exchange in another thread", cudaThreadExchangeStreamCaptureMode(&others));
    v.equal<int>("another thread's mode to begin with", others, cudaStreamCaptureModeGlobal);
  }).join();
  v.ok("exchange", cudaThreadExchangeStreamCaptureMode(&mode));
  v.equal<int>("the mode that was set", mode, cudaStreamCaptureModeRelaxed);
}

// ---- the legacy stream

// The guide: while a stream that was not created with cudaStreamNonBlocking is captured, "any attempted use of the
// legacy stream is invalid", and so are synchronous calls. cudaStreamIsCapturing: the capture "is not invalidated".
inline void legacy_stream_is_unusable_while_a_blocking_one_captures(verdict& v) {
  flag f;
  event const e;
  void* p = nullptr;
  v.ok("cudaMalloc", cudaMalloc(&p, 1));
  for (int what = 0; what < 4; ++what) {
    stream const blocking(cudaStreamDefault);
    capture c(v, blocking);
    cudaStreamCaptureStatus status{};
    v.code("cudaStreamIsCapturing", cudaStreamIsCapturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);
    v.code("cudaStreamGetCaptureInfo", cudaStreamGetCaptureInfo(cudaStreamLegacy, &status),
           cudaErrorStreamCaptureImplicit);
    expect_status(v, "the blocking stream", blocking, cudaStreamCaptureStatusActive);
    if (what == 0) v.code("record", cudaEventRecord(e, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    if (what == 1) v.code("work", f.raise(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    if (what == 2) v.code("synchronise", cudaStreamSynchronize(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    if (what == 3) {
      char to = 0;
      v.code("cudaMemcpy", cudaMemcpy(&to, p, 1, cudaMemcpyDeviceToHost),
             {cudaErrorStreamCaptureImplicit, cudaErrorStreamCaptureUnsupported});
    }
    expect_broken(v, c);
  }
  v.ok("cudaFree", cudaFree(p));
}

inline void legacy_stream_works_while_a_non_blocking_one_captures(verdict& v) {
  flag f;
  stream const s;
  capture c(v, s);
  expect_status(v, "the legacy stream", cudaStreamLegacy, cudaStreamCaptureStatusNone);
  v.ok("work", f.raise(cudaStreamLegacy));
  v.ok("look", f.look(cudaStreamLegacy));
  v.ok("synchronise", cudaStreamSynchronize(cudaStreamLegacy));
  v.yes("done", f.was_up());
  expect_whole(v, c);
}

// "Capture may not be initiated if stream is cudaStreamLegacy", and "only if the stream is not already in capture
// mode".
inline void captures_begin_on_idle_streams_only(verdict& v) {
  v.fails("the legacy stream", cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeRelaxed));
  stream const s;
  capture c(v, s);
  v.fails("a capturing stream", cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
}

// ---- what crosses a capture's border

// cudaErrorStreamCaptureIsolation: "A dependency would have been created which crosses the capture sequence boundary."
inline void captures_wait_for_no_work_from_outside(verdict& v) {
  stream const s, outside;
  event const e;
  v.ok("record", cudaEventRecord(e, outside));
  capture c(v, s);
  v.code("wait", cudaStreamWaitEvent(s, e, 0), cudaErrorStreamCaptureIsolation);
  expect_broken(v, c);
}

// cudaErrorStreamCaptureMerge: "would have resulted in a merge of two independent capture sequences".
inline void captures_cannot_be_merged(verdict& v) {
  stream const a, b;
  event const e;
  capture first(v, a), second(v, b);
  v.ok("record", cudaEventRecord(e, a));
  v.code("wait", cudaStreamWaitEvent(b, e, 0), cudaErrorStreamCaptureMerge);
  expect_broken(v, second);
}

// cudaErrorStreamCaptureUnjoined: "contains a fork that was not joined to the primary stream".
inline void forks_have_to_be_joined(verdict& v) {
  flag f;
  stream const s, other;
  event const e;
  capture c(v, s);
  v.ok("record", cudaEventRecord(e, s));
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.ok("work on the fork", f.raise(other));
  v.code("end", c.end(), cudaErrorStreamCaptureUnjoined);
  v.yes("no graph", c.graph() == nullptr);
  expect_status(v, "the stream", s, cudaStreamCaptureStatusNone);
  expect_status(v, "the fork", other, cudaStreamCaptureStatusNone);
}

// cudaErrorStreamCaptureUnmatched: "The capture was not initiated in this stream."
inline void captures_end_where_they_began(verdict& v) {
  stream const s, other, idle;
  event const e;
  cudaGraph_t graph = nullptr;
  v.fails("a stream that does not capture", cudaStreamEndCapture(idle, &graph));
  capture c(v, s);
  v.ok("record", cudaEventRecord(e, s));
  v.ok("wait", cudaStreamWaitEvent(other, e, 0));
  v.code("a stream that was brought in", cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
}

// cudaErrorStreamCaptureWrongThread: a sequence "not initiated with cudaStreamCaptureModeRelaxed ... was passed to
// cudaStreamEndCapture in a different thread".
inline void captures_end_in_their_thread_if_not_relaxed(verdict& v) {
  stream const s;
  for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    capture c(v, s, mode);
    cudaGraph_t graph = nullptr;
    std::thread([&] {
      v.code("another thread", cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureWrongThread);
    }).join();
  }
  capture c(v, s);
  std::thread([&] { v.ok("another thread, relaxed", c.end()); }).join();
  v.yes("a graph", c.graph() != nullptr);
}

inline constexpr probe capture_probes[] = {
    {"captured_work_runs_when_launched", needs::nothing, &captured_work_runs_when_launched},
    {"each_launch_runs_host_functions", needs::nothing, &each_launch_runs_host_functions},
    {"empty_captures_give_graphs", needs::nothing, &empty_captures_give_graphs},
#if CUDART_VERSION >= 13000
    {"captures_say_what_comes_next_after_what", needs::nothing, &captures_say_what_comes_next_after_what},
    {"dependencies_are_those_of_a_capture", needs::nothing, &dependencies_are_those_of_a_capture},
#endif
    {"nodes_say_what_they_are", needs::nothing, &nodes_say_what_they_are},
    {"graphs_can_be_written_as_text", needs::nothing, &graphs_can_be_written_as_text},
    {"graphs_can_free_memory_when_launched_again", needs::nothing, &graphs_can_free_memory_when_launched_again},
    {"pending_work_is_no_part_of_a_capture", needs::pending_work, &pending_work_is_no_part_of_a_capture},
    {"waits_bring_streams_into_a_capture", needs::nothing, &waits_bring_streams_into_a_capture},
    {"captures_have_ids", needs::nothing, &captures_have_ids},
    {"memory_of_a_graph_is_freed_between_launches", needs::nothing, &memory_of_a_graph_is_freed_between_launches},
    {"memory_of_a_graph_is_freed_by_another", needs::nothing, &memory_of_a_graph_is_freed_by_another},
    {"memory_of_a_graph_is_no_pools", needs::nothing, &memory_of_a_graph_is_no_pools},
    {"memory_that_a_graph_frees_lets_it_be_launched_again", needs::nothing,
     &memory_that_a_graph_frees_lets_it_be_launched_again},
    {"captures_free_memory_of_graphs_only", needs::nothing, &captures_free_memory_of_graphs_only},
    {"memory_of_a_capture_under_way_is_freed_in_it_only", needs::nothing,
     &memory_of_a_capture_under_way_is_freed_in_it_only},
    {"graphs_free_memory_once", needs::nothing, &graphs_free_memory_once},
    {"graphs_with_memory_have_one_executable", needs::nothing, &graphs_with_memory_have_one_executable},
    {"capturing_streams_cannot_be_waited_for", needs::nothing, &capturing_streams_cannot_be_waited_for},
    {"capturing_streams_do_not_say_who_they_are", needs::nothing, &capturing_streams_do_not_say_who_they_are},
    {"capturing_devices_cannot_be_waited_for", needs::nothing, &capturing_devices_cannot_be_waited_for},
    {"captured_events_cannot_be_waited_for", needs::nothing, &captured_events_cannot_be_waited_for},
    {"events_are_captured_until_recorded_anew", needs::nothing, &events_are_captured_until_recorded_anew},
    {"callbacks_and_attachments_are_not_captured", needs::nothing, &callbacks_and_attachments_are_not_captured},
    {"own_captures_forbid_unsafe_calls", needs::nothing, &own_captures_forbid_unsafe_calls},
    {"other_threads_captures_forbid_unsafe_calls_if_global", needs::nothing,
     &other_threads_captures_forbid_unsafe_calls_if_global},
    {"free_is_an_unsafe_call", needs::nothing, &free_is_an_unsafe_call},
    {"each_thread_has_its_mode", needs::nothing, &each_thread_has_its_mode},
    {"legacy_stream_is_unusable_while_a_blocking_one_captures", needs::nothing,
     &legacy_stream_is_unusable_while_a_blocking_one_captures},
    {"legacy_stream_works_while_a_non_blocking_one_captures", needs::nothing,
     &legacy_stream_works_while_a_non_blocking_one_captures},
    {"captures_begin_on_idle_streams_only", needs::nothing, &captures_begin_on_idle_streams_only},
    {"captures_wait_for_no_work_from_outside", needs::nothing, &captures_wait_for_no_work_from_outside},
    {"captures_cannot_be_merged", needs::nothing, &captures_cannot_be_merged},
    {"forks_have_to_be_joined", needs::nothing, &forks_have_to_be_joined},
    {"captures_end_where_they_began", needs::nothing, &captures_end_where_they_began},
    {"captures_end_in_their_thread_if_not_relaxed", needs::nothing, &captures_end_in_their_thread_if_not_relaxed},
};

}  // namespace probes
