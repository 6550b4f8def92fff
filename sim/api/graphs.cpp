// Graphs: made executable, launched and destroyed.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/graph_memory.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

bool has_executable(runtime& r, std::shared_ptr<graph_state> const& graph) {
  bool found = false;
  r.executions.for_each([&](graph_execution const& e) { found = found || e.graph == graph; });
  return found;
}

cudaError_t instantiate(call which, cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return api(which, [&](runtime& r, held_lock&) {
    auto* const found = r.graphs.find(graph);
    if (made == nullptr || found == nullptr || (*found)->open) return cudaErrorInvalidValue;
    constexpr unsigned long long known = cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
                                         cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUseNodePriority;
    if ((flags & ~known) != 0) return cudaErrorInvalidValue;
    if ((flags & cudaGraphInstantiateFlagDeviceLaunch) != 0)
      return cudaErrorNotSupported;  // kernels launch nothing here
    // Two executable graphs would use, or free, the same memory at the same addresses.
    if ((*found)->has_memory_nodes() && has_executable(r, *found)) return cudaErrorInvalidValue;
    *made =
        r.executions.add({++r.execution_count, *found, (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0, {}});
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t graph_launch(cudaGraphExec_t execution, cudaStream_t stream) {
  return api("cudaGraphLaunch", [&](runtime& r, held_lock& held) {
    timeline* t = find_stream(r, stream);
    graph_execution* const found = r.executions.find(execution);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (found == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    std::shared_ptr<graph_state> const graph = found->graph;
    if (t->capture != nullptr && graph->has_memory_nodes()) return cudaErrorNotSupported;
    if (void* const missing = missing_memory(r, *graph)) {
      if (r.check != nullptr) r.check->refused_free(t, missing);
      return cudaErrorInvalidValue;
    }
    if (!revive_memory(r, *graph, found->frees_at_launch)) return cudaErrorInvalidValue;
    std::shared_ptr<host_function_place const> place;
    if (r.check != nullptr) [[unlikely]]
      place = std::make_shared<host_function_place const>(r.check->launched(*t, found->number, graph->number));
    std::uint64_t const id = t->id;
    bool const captured = t->capture != nullptr;
    if (!captured && (streams_are_fibers || !done(r, found->last))) wait_for(r, *t, found->last);
    for (graph_node const& node : graph->nodes) {
      // While a node ran without the lock, another thread may have destroyed the stream.
      if ((t = find_timeline(r, id)) == nullptr) return cudaSuccess;
      work const free = node.frees == nullptr ? work() : free_of_launch(r, *t, *graph, node.frees);
      auto const run = [&r, graph, &node, free, place](held_lock& lock) {
        bool const tells = node.kind == operation_kind::host_function && place != nullptr && r.check != nullptr;
        if (tells) r.check->host_function_begins(*place);
        node.frees == nullptr ? node.run(lock) : free(lock);
      };
      submit(r, held, *t, run, node.kind);
    }
    graph_execution* const still_there = r.executions.find(execution);
    t = find_timeline(r, id);
    if (!captured && still_there != nullptr && t != nullptr)
      still_there->last = streams_are_fibers ? record(r, held, *t, nullptr) : t->end();
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return sim::instantiate("cudaGraphInstantiate", made, graph, flags);
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                                    unsigned long long flags) {
  return sim::instantiate("cudaGraphInstantiateWithFlags", made, graph, flags);
}

// Launches that are under way go on, and keep the graph alive.
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t execution) {
  return sim::api("cudaGraphExecDestroy", [&](sim::runtime& r, sim::held_lock&) {
    sim::graph_execution const* const found = r.executions.find(execution);
    if (found == nullptr) return cudaErrorInvalidValue;
    if (r.check != nullptr) r.check->execution_gone(found->number);
    r.executions.remove(execution);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  return sim::api("cudaGraphDestroy", [&](sim::runtime& r, sim::held_lock&) {
    auto* const found = r.graphs.find(graph);
    if (found == nullptr || (*found)->open) return cudaErrorInvalidValue;
    r.graphs.remove(graph);
    return cudaSuccess;
  });
}

}  // extern "C"
