// What can be asked of a graph's nodes: which there are, what each is, and which come after which. One that does
// nothing can be added to a capture.

#include "api/entry.hpp"
#include "scheduler/capture.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weir::sim::detail {
namespace {

using nodes = std::vector<cudaGraphNode_t>;

// Without a place for them, says how many there are; otherwise fills the place, with nulls behind the last one, and
// says how many it stored.
cudaError_t give(nodes const& found, cudaGraphNode_t* to, std::size_t* count) {
  if (to != nullptr) {
    std::size_t const room = std::exchange(*count, std::min(*count, found.size()));
    std::copy_n(found.begin(), *count, to);
    std::fill(to + *count, to + room, nullptr);
  } else {
    *count = found.size();
  }
  return cudaSuccess;
}

/// The nodes of a graph of which `wanted(graph_node const&)` is true.
template <class Wanted>
cudaError_t nodes_of(call which, cudaGraph_t graph, cudaGraphNode_t* to, std::size_t* count, Wanted wanted) {
  return api(which, [&](runtime& r, held_lock&) {
    auto* const found = r.graphs.find(graph);
    if (found == nullptr || count == nullptr) return cudaErrorInvalidValue;
    nodes all;
    for (graph_node const& node : (*found)->nodes)
      if (wanted(node)) all.push_back(node.handle);
    return give(all, to, count);
  });
}

bool depends_on(graph_node const& node, cudaGraphNode_t other) {
  return std::find(node.after.begin(), node.after.end(), other) != node.after.end();
}

/// `visit(graph_node const&, graph_state const&)` for the node with that handle, in whichever graph it is.
template <class Visit>
cudaError_t with_node(call which, cudaGraphNode_t handle, Visit visit) {
  return api(which, [&](runtime& r, held_lock&) {
    cudaError_t code = cudaErrorInvalidValue;
    r.graphs.for_each([&](std::shared_ptr<graph_state> const& graph) {
      for (graph_node const& node : graph->nodes)
        if (node.handle == handle) code = visit(node, *graph);
    });
    return code;
  });
}

/// `neighbours(graph_node const&, graph_state const&)` of that node.
template <class Neighbours>
cudaError_t neighbours_of(call which, cudaGraphNode_t handle, cudaGraphNode_t* to, std::size_t* count,
                          Neighbours neighbours) {
  return with_node(which, handle, [&](graph_node const& node, graph_state const& in) {
    return count == nullptr ? cudaErrorInvalidValue : give(neighbours(node, in), to, count);
  });
}

cudaError_t dependencies(call which, cudaGraphNode_t node, cudaGraphNode_t* to, std::size_t* count) {
  return neighbours_of(which, node, to, count, [](graph_node const& n, graph_state const&) { return n.after; });
}

cudaError_t dependents(call which, cudaGraphNode_t node, cudaGraphNode_t* to, std::size_t* count) {
  return neighbours_of(which, node, to, count, [](graph_node const& n, graph_state const& in) {
    nodes after;
    for (graph_node const& other : in.nodes)
      if (depends_on(other, n.handle)) after.push_back(other.handle);
    return after;
  });
}

bool are_nodes_of(graph_state const& graph, nodes const& some) {
  return std::all_of(some.begin(), some.end(), [&](cudaGraphNode_t wanted) {
    return std::count(some.begin(), some.end(), wanted) == 1 &&
           std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](auto& node) { return node.handle == wanted; });
  });
}

#if CUDART_VERSION >= 12030
// All edges here are of the default kind, which is all zeros.
cudaError_t with_edges(cudaError_t code, cudaGraphEdgeData* edges, std::size_t const* count) {
  if (code == cudaSuccess && edges != nullptr) std::memset(edges, 0, *count * sizeof *edges);
  return code;
}
#endif

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* to, size_t* count) {
  return sim::nodes_of("cudaGraphGetNodes", graph, to, count, [](auto&) { return true; });
}

cudaError_t CUDARTAPI cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* to, size_t* count) {
  return sim::nodes_of("cudaGraphGetRootNodes", graph, to, count, [](auto& node) { return node.after.empty(); });
}

cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return sim::with_node("cudaGraphNodeGetType", node, [&](sim::graph_node const& found, sim::graph_state const&) {
    if (type == nullptr) return cudaErrorInvalidValue;
    *type = sim::type_of(found.kind).value;
    return cudaSuccess;
  });
}

// Only while the graph is captured: later it may be under way, and graphs built by hand are not simulated.
cudaError_t CUDARTAPI cudaGraphAddEmptyNode(cudaGraphNode_t* made, cudaGraph_t graph, cudaGraphNode_t const* after,
                                            size_t count) {
  return sim::api("cudaGraphAddEmptyNode", [&](sim::runtime& r, sim::held_lock&) {
    auto* const found = r.graphs.find(graph);
    if (made == nullptr || found == nullptr || (after == nullptr && count != 0)) return cudaErrorInvalidValue;
    sim::nodes const dependencies(after, after + count);
    if (!sim::are_nodes_of(**found, dependencies)) return cudaErrorInvalidValue;
    if (!(*found)->open) return cudaErrorNotSupported;
    *made = sim::add_node(
        r, **found, [](sim::held_lock&) {}, sim::operation_kind::nothing, dependencies);
    return cudaSuccess;
  });
}

#if CUDART_VERSION >= 13000
cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                                                   size_t* count) {
  return sim::with_edges(sim::dependencies("cudaGraphNodeGetDependencies", node, to, count), edges, count);
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* to,
                                                     cudaGraphEdgeData* edges, size_t* count) {
  return sim::with_edges(sim::dependents("cudaGraphNodeGetDependentNodes", node, to, count), edges, count);
}
#else
cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* to, size_t* count) {
  return sim::dependencies("cudaGraphNodeGetDependencies", node, to, count);
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* to, size_t* count) {
  return sim::dependents("cudaGraphNodeGetDependentNodes", node, to, count);
}
#endif

}  // extern "C"
