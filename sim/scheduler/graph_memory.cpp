#include "scheduler/graph_memory.hpp"

#include "allocations/blocks.hpp"
#include "checker/checker.hpp"
#include "model/heap.hpp"
#include "scheduler/capture.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

// The memory is nothing else than the program's now, if it is live.
void leave_graph(runtime& r, allocation& a) {
  graph_memory_sizes& sizes = r.device(a.device).for_graphs;
  sizes.reserved -= a.bytes;
  if (!a.freeing) sizes.used -= a.bytes;
  a.graph = 0;
}

void release_memory(graph_state const& graph) {
  runtime& r = state();
  if (r.check != nullptr) r.check->graph_gone(graph.number);
  for (graph_memory const& m : graph.memory) {
    auto const found = r.allocations.find(reinterpret_cast<std::uintptr_t>(m.p));
    if (found == r.allocations.end() || found->second.graph != graph.number) continue;
    leave_graph(r, found->second);
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

// Memory that another graph left live, or leaves live once it is launched.
bool capture_free_of_other(runtime& r, timeline& t, void* p, allocation const& a) {
  bool const is_gone = a.freeing && a.graph == 0;
  graph_state& graph = *t.capture->graph;
  if (is_gone || graph.frees.contains(p)) return false;
  graph.frees[p] = a.block;
  capture_operation(
      r, t, [](held_lock&) {}, operation_kind::free);
  graph.nodes.back().frees = p;
  return true;
}

// Null unless what lies there is live and still the memory that the graph's capture saw.
allocation* find_freed_of_other(runtime& r, graph_state const& graph, void* p) {
  allocation* const a = find_live(r, p);
  return a != nullptr && a->block == graph.frees.at(p) ? a : nullptr;
}

// High watermarks.
void note_size(device_state& device) {
  graph_memory_sizes const now = device.for_graphs;
  graph_memory_sizes& high = device.most_for_graphs;
  high = {std::max(high.used, now.used), std::max(high.reserved, now.reserved)};
}

}  // namespace

std::shared_ptr<graph_state> make_graph(std::uint64_t number) {
  auto const end = [](graph_state* graph) {
    release_memory(*graph);
    delete graph;
  };
  return {new graph_state{.number = number, .open = true, .nodes = {}, .memory = {}, .frees = {}}, end};
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
  device_state& device = r.device(pool.device);
  device.for_graphs.reserved += bytes;
  note_size(device);
  auto const begin = [p, bytes, pattern = first_pattern(r)](held_lock&) { begin_use(p, bytes, pattern); };
  capture_operation(r, t, begin, operation_kind::allocation);
  return p;
}

bool capture_free(runtime& r, timeline& t, void* p) {
  auto const found = r.allocations.find(reinterpret_cast<std::uintptr_t>(p));
  if (found == r.allocations.end()) return false;
  allocation* const a = &found->second;
  if (a->left_by_graph) return capture_free_of_other(r, t, p, *a);
  if (a->freeing || a->graph != t.capture->id) return false;
  for (graph_memory& m : t.capture->graph->memory) m.freed = m.freed || m.p == p;
  begin_free(r, *a);
  capture_operation(
      r, t, [p, bytes = a->bytes](held_lock&) { forbid(p, bytes); }, operation_kind::free);
  return true;
}

void* missing_memory(runtime& r, graph_state const& graph) {
  for (auto const& [p, block] : graph.frees)
    if (find_freed_of_other(r, graph, p) == nullptr) return p;
  return nullptr;
}

work free_of_launch(runtime& r, timeline const& t, graph_state const& graph, void* p) {
  allocation* const a = find_freed_of_other(r, graph, p);
  if (a == nullptr) return [](held_lock&) {};  // while an earlier node ran, another thread freed it
  a->freed_at = {t.id, t.submitted + 1};
  return [&r, address = reinterpret_cast<std::uintptr_t>(p), number = begin_free(r, *a)](held_lock&) {
    finish_free(r, address, number);
  };
}

bool revive_memory(runtime& r, graph_state const& graph, bool frees_at_launch) {
  for (graph_memory const& m : graph.memory)
    if (!frees_at_launch && !m.freed && !allocation_of(r, m).freeing) return false;
  for (graph_memory const& m : graph.memory) {
    allocation& a = allocation_of(r, m);
    if (!m.freed && a.freeing) revive(r, a);
    note_size(r.device(a.device));
  }
  return true;
}

}  // namespace weir::sim::detail
