// What can be asked of a graph's nodes: what each is, the graph as text, and nodes that do nothing.

#include "support.hpp"

#include <support/temporary_folder.hpp>

#include <string>
#include <vector>

using namespace sim_test;

namespace {

using nodes = std::vector<cudaGraphNode_t>;

/// A capture on a stream, which may still be under way.
struct capture {
  capture() { ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed)); }
  cudaGraph_t graph() const {
    cudaStreamCaptureStatus status{};
    cudaGraph_t found = nullptr;
#if CUDART_VERSION >= 13000
    ok(cudaStreamGetCaptureInfo(stream, &status, nullptr, &found, nullptr, nullptr, nullptr));
#else
    ok(cudaStreamGetCaptureInfo(stream, &status, nullptr, &found, nullptr, nullptr));
#endif
    return found;
  }
  cudaGraph_t end() const {
    cudaGraph_t ended = nullptr;
    ok(cudaStreamEndCapture(stream, &ended));
    return ended;
  }

  cudaStream_t stream = make_stream();
};

nodes nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  ok(cudaGraphGetNodes(graph, nullptr, &count));
  nodes all(count);
  ok(cudaGraphGetNodes(graph, all.data(), &count));
  return all;
}

std::vector<cudaGraphNodeType> types_of(cudaGraph_t graph) {
  std::vector<cudaGraphNodeType> types;
  for (cudaGraphNode_t const node : nodes_of(graph)) ok(cudaGraphNodeGetType(node, &types.emplace_back()));
  return types;
}

void do_nothing(void*) {}

}  // namespace

TEST_CASE_FIXTURE(fresh, "a node says what it does") {
  capture const c;
  void *p = nullptr, *outside = nullptr;
  ok(cudaMallocHost(&outside, 64));
  ok(cudaMallocAsync(&p, 64, c.stream));
  ok(cudaMemsetAsync(p, 1, 64, c.stream));
  ok(cudaMemcpyAsync(outside, p, 64, cudaMemcpyDeviceToHost, c.stream));
  ok(cudaMemcpy2DAsync(outside, 32, p, 32, 16, 2, cudaMemcpyDefault, c.stream));
  sim::touch(c.stream, p, 64, sim::access::read);
  ok(cudaLaunchHostFunc(c.stream, &do_nothing, nullptr));
  ok(cudaFreeAsync(p, c.stream));
  cudaGraph_t const graph = c.end();
  CHECK_EQ(types_of(graph), std::vector{cudaGraphNodeTypeMemAlloc, cudaGraphNodeTypeMemset, cudaGraphNodeTypeMemcpy,
                                        cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeKernel, cudaGraphNodeTypeHost,
                                        cudaGraphNodeTypeMemFree});
  cudaGraphNodeType type{};
  CHECK_EQ(cudaGraphNodeGetType(nodes_of(graph)[0], nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphNodeGetType(nullptr, &type), cudaErrorInvalidValue);
  cudaGraphNode_t const gone = nodes_of(graph)[0];
  ok(cudaGraphDestroy(graph));
  CHECK_EQ(cudaGraphNodeGetType(gone, &type), cudaErrorInvalidValue);
  ok(cudaFreeHost(outside));
}

TEST_CASE_FIXTURE(fresh, "a graph as text has its nodes, what they are, and what each depends on") {
  weir::test::temporary_folder const folder;
  std::string const path = folder / "graph.dot";
  capture const c;
  cudaStream_t const other = make_stream();
  cudaEvent_t const forked = make_event(), joined = make_event();
  ok(cudaLaunchHostFunc(c.stream, &do_nothing, nullptr));
  ok(cudaEventRecord(forked, c.stream));
  ok(cudaStreamWaitEvent(other, forked, 0));
  ok(cudaLaunchHostFunc(c.stream, &do_nothing, nullptr));
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 64, other));
  ok(cudaEventRecord(joined, other));
  ok(cudaStreamWaitEvent(c.stream, joined, 0));
  ok(cudaFreeAsync(p, c.stream));
  cudaGraph_t const graph = c.end();
  ok(cudaGraphDebugDotPrint(graph, path.c_str(), 0));
  CHECK_EQ(weir::test::text_of(path),
           "digraph dot {\n"
           "node_0 [shape=\"rectangle\" label=\"0\\nHOST\"];\n"
           "node_1 [shape=\"rectangle\" label=\"1\\nHOST\"];\n"
           "node_0 -> node_1;\n"
           "node_2 [shape=\"rectangle\" label=\"2\\nMEM_ALLOC\"];\n"
           "node_0 -> node_2;\n"
           "node_3 [shape=\"rectangle\" label=\"3\\nMEM_FREE\"];\n"
           "node_1 -> node_3;\n"
           "node_2 -> node_3;\n"
           "}\n");
  CHECK_EQ(cudaGraphDebugDotPrint(nullptr, path.c_str(), 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphDebugDotPrint(graph, nullptr, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphDebugDotPrint(graph, (path + "/below").c_str(), 0), cudaErrorOperatingSystem);
  CHECK_EQ(cudaGraphDebugDotPrint(graph, "/dev/full", 0), cudaErrorOperatingSystem);
  ok(cudaGraphDestroy(graph));
}

TEST_CASE_FIXTURE(fresh, "a node that does nothing can be added to a capture, behind nodes of it") {
  diary d;
  capture const c;
  d.mark(c.stream, 1);
  nodes const first = nodes_of(c.graph());
  cudaGraphNode_t empty = nullptr, second = nullptr;
  ok(cudaGraphAddEmptyNode(&empty, c.graph(), first.data(), 1));
  ok(cudaGraphAddEmptyNode(&second, c.graph(), nullptr, 0));
  nodes const twice{empty, empty}, unknown{nullptr};
  CHECK_EQ(cudaGraphAddEmptyNode(&second, c.graph(), twice.data(), 2), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphAddEmptyNode(&second, c.graph(), unknown.data(), 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphAddEmptyNode(&second, c.graph(), nullptr, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphAddEmptyNode(nullptr, c.graph(), nullptr, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaGraphAddEmptyNode(&second, nullptr, nullptr, 0), cudaErrorInvalidValue);
  d.mark(c.stream, 2);

  cudaGraph_t const graph = c.end();
  CHECK_EQ(cudaGraphAddEmptyNode(&second, graph, nullptr, 0), cudaErrorNotSupported);
  CHECK_EQ(types_of(graph),
           std::vector{cudaGraphNodeTypeHost, cudaGraphNodeTypeEmpty, cudaGraphNodeTypeEmpty, cudaGraphNodeTypeHost});
  nodes before(2);
  std::size_t count = 2;
#if CUDART_VERSION >= 13000
  ok(cudaGraphNodeGetDependencies(empty, before.data(), nullptr, &count));
#else
  ok(cudaGraphNodeGetDependencies(empty, before.data(), &count));
#endif
  CHECK_EQ(count, 1);
  CHECK_EQ(before[0], first[0]);

  cudaGraphExec_t executable = nullptr;
  ok(cudaGraphInstantiate(&executable, graph, 0));
  ok(cudaGraphLaunch(executable, c.stream));
  ok(cudaStreamSynchronize(c.stream));
  CHECK_EQ(d.reached(), numbers{1, 2});
  ok(cudaGraphExecDestroy(executable));
  ok(cudaGraphDestroy(graph));
}
