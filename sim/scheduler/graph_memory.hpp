#pragma once
// The memory of graphs' allocation nodes, internal.

#include "model/capture.hpp"
#include "model/runtime.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weir::sim::detail {

/// A graph that gives its memory back when its last owner is gone, which has to hold the runtime's mutex then.
std::shared_ptr<graph_state> make_graph(std::uint64_t number);

/// An allocation node of the graph that `t` captures, with the properties of a pool; null if there is too little
/// memory.
void* capture_allocation(runtime& r, timeline& t, std::size_t bytes, pool_state const& pool);
/// A free node. False if `p` is neither live memory of the graph that `t` captures, nor what another graph leaves live
/// or will leave, by each launch; or if this graph frees it already.
bool capture_free(runtime& r, timeline& t, void* p);

/// What a graph frees of others that is not live now, so that it cannot be launched; null if all of it is.
void* missing_memory(runtime& r, graph_state const& graph);
/// What the launch of such a free node does.
work free_of_launch(runtime& r, timeline const& t, graph_state const& graph, void* p);

/// The graph is about to be launched: the memory that it allocates and does not free is live again. False if it is
/// still in use since the launch before, unless this launch is to free it.
bool revive_memory(runtime& r, graph_state const& graph, bool frees_at_launch);

}  // namespace weir::sim::detail
