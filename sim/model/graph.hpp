#pragma once
// Graphs, internal: what captures recorded, and the executable graphs made of it.

#include "model/stream.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace weir::sim::detail {

/// Memory of an allocation node. It has its address from the capture on, and is there while a launch needs it.
struct graph_memory {
  void* p = nullptr;
  bool freed = false;  // by a node of the same graph
};

/// Bytes of allocation nodes' memory.
struct graph_memory_sizes {
  std::size_t used = 0, reserved = 0;
};

struct node_type {
  cudaGraphNodeType value;
  char const* name;
};

/// What CUDA calls each kind, in their order.
inline constexpr node_type node_types[] = {
    {cudaGraphNodeTypeKernel, "KERNEL"},      {cudaGraphNodeTypeMemcpy, "MEMCPY"},
    {cudaGraphNodeTypeMemset, "MEMSET"},      {cudaGraphNodeTypeHost, "HOST"},
    {cudaGraphNodeTypeMemAlloc, "MEM_ALLOC"}, {cudaGraphNodeTypeMemFree, "MEM_FREE"},
    {cudaGraphNodeTypeEmpty, "EMPTY"},
};
inline node_type const& type_of(operation_kind kind) { return node_types[static_cast<std::size_t>(kind)]; }

struct graph_node {
  work run;
  operation_kind kind = operation_kind::device_work;
  cudaGraphNode_t handle = nullptr;
  std::vector<cudaGraphNode_t> after;  // the nodes that it depends on
  void* frees = nullptr;               // memory of another graph; each launch frees what is there then
};

/// What a capture recorded, in the order of the calls: one order that its dependencies allow.
struct graph_state {
  std::uint64_t number = 0;  // the capture's
  bool open = true;          // still being captured
  std::vector<graph_node> nodes;
  std::vector<graph_memory> memory;
  std::map<void*, std::uint64_t> frees;  // memory of other graphs that it frees, and the number of each block

  bool has_memory_nodes() const { return !memory.empty() || !frees.empty(); }
};

struct graph_execution {
  std::uint64_t number = 0;
  std::shared_ptr<graph_state> graph;
  bool frees_at_launch = false;  // what an earlier launch allocated and nobody freed
  point last;                    // the end of the latest launch; launches of one executable graph run one after another
};

}  // namespace weir::sim::detail
