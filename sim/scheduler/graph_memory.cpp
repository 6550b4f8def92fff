#include "scheduler/graph_memory.hpp"

#include "allocations/blocks.hpp"
#include "checker/checker.hpp"
#include "model/heap.hpp"
#include "scheduler/capture.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

void release_memory(graph_state const& graph) {
  runtime& r = state();
  if (r.check != nullptr) r.check->graph_gone(graph.number);
  for (graph_memory const& m : graph.memory) {
    auto const found = r.allocations.find(reinterpret_cast<std::uintptr_t>(m.p));
    if (found == r.allocations.end() || found->second.graph != graph.number) continue;
    found->second.graph = 0;
    // Otherwise a free that is still queued finishes it.
    if (found->second.kept_for_graph || m.freed) finish_free(r, found->first, found->second.free_number, true);
  }
}

allocation& allocation_of(runtime& r, graph_memory const& m) {
  return r.allocations.at(reinterpret_cast<std::uintptr_t>(m.p));
}

// The graph owns its memory, and not the pool that it was asked of: that says where the memory lies and who reaches it.
std::shared_ptr<pool_state> pool_of_graph(pool_state const& like) {
  auto own = std::make_shared<pool_state>(like.home);
  own->access = like.access;
  own->destroyed = true;  // holds what is live in it and nothing else
  return own;
}

// High watermarks.
void note_size(runtime& r, int device) {
  graph_memory_sizes const now = memory_of_graphs(r, device);
  graph_memory_sizes& high = r.device(device).most_for_graphs;
  high = {std::max(high.used, now.used), std::max(high.reserved, now.reserved)};
}

}  // namespace

std::shared_ptr<graph_state> make_graph(std::uint64_t number) {
  auto const end = [](graph_state* graph) {
    release_memory(*graph);
    delete graph;
  };
  return {new graph_state{.number = number, .open = true, .nodes = {}, .memory = {}}, end};
}

void* capture_allocation(runtime& r, timeline& t, std::size_t bytes, pool_state const& pool) {
  allocation made;
  made.bytes = bytes;
  made.kind = memory_kind::async;
  made.device = pool.device;
  made.pool = pool_of_graph(pool);
  made.graph = t.capture->id;
  t.capture->graph->memory.reserve(t.capture->graph->memory.size() + 1);
  void* const p = make_allocation(r, std::move(made));
  if (p == nullptr) return nullptr;
  t.capture->graph->memory.push_back({p, false});
  note_size(r, t.device);
  auto const begin = [p, bytes, pattern = next_pattern(r)](held_lock&) { begin_use(p, bytes, pattern); };
  capture_operation(r, t, begin, operation_kind::allocation);
  return p;
}

bool capture_free(runtime& r, timeline& t, void* p) {
  allocation* const a = find_live(r, p);
  if (a == nullptr || a->graph != t.capture->id) return false;
  for (graph_memory& m : t.capture->graph->memory) m.freed = m.freed || m.p == p;
  begin_free(r, *a);
  capture_operation(
      r, t, [p, bytes = a->bytes](held_lock&) { forbid(p, bytes); }, operation_kind::free);
  return true;
}

bool revive_memory(runtime& r, graph_state const& graph, bool frees_at_launch) {
  for (graph_memory const& m : graph.memory)
    if (!frees_at_launch && !m.freed && !allocation_of(r, m).freeing) return false;
  for (graph_memory const& m : graph.memory) {
    allocation& a = allocation_of(r, m);
    if (!m.freed && a.freeing) revive(r, a);
    note_size(r, a.device);
  }
  return true;
}

graph_memory_sizes memory_of_graphs(runtime const& r, int device) {
  graph_memory_sizes sizes;
  for (auto const& [address, a] : r.allocations) {
    if (a.graph == 0 || a.device != device) continue;
    sizes.reserved += a.bytes;
    if (!a.freeing) sizes.used += a.bytes;
  }
  return sizes;
}

}  // namespace weir::sim::detail
