#pragma once
// Graphs, internal: what captures recorded, and the executable graphs made of it.

#include "model/stream.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace weir::sim::detail {

/// Memory of an allocation node. It has its address from the capture on, and is there while a launch needs it.
struct graph_memory {
  void* p = nullptr;
  bool freed = false;  // by a node of the same graph
};

struct graph_node {
  work run;
  operation_kind kind = operation_kind::device_work;
};

/// What a capture recorded, in the order of the calls: one order that its dependencies allow.
struct graph_state {
  std::uint64_t number = 0;  // the capture's
  bool open = true;          // still being captured
  std::vector<graph_node> nodes;
  std::vector<graph_memory> memory;
};

struct graph_execution {
  std::uint64_t number = 0;
  std::shared_ptr<graph_state> graph;
  point last;  // the end of the latest launch; launches of one executable graph run one after another
};

}  // namespace weir::sim::detail
