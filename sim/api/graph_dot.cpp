// A graph as text for Graphviz.

#include "api/entry.hpp"

#include <cstdio>
#include <map>
#include <string>

namespace weir::sim::detail {
namespace {

/// Its nodes, each with its number and what it is, and an arrow to each from those that it depends on.
std::string dot_of(graph_state const& graph) {
  std::map<cudaGraphNode_t, std::string> ids;
  std::string text = "digraph dot {\n";
  for (graph_node const& node : graph.nodes) {
    std::string const number = std::to_string(ids.size());
    std::string const& id = ids[node.handle] = "node_" + number;
    text += id + R"( [shape="rectangle" label=")" + number + "\\n" + type_of(node.kind).name + "\"];\n";
    for (cudaGraphNode_t const earlier : node.after) text += ids.at(earlier) + " -> " + id + ";\n";
  }
  return text + "}\n";
}

cudaError_t write(std::string const& text, char const* path) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return cudaErrorOperatingSystem;
  bool const written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? cudaSuccess : cudaErrorOperatingSystem;
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

// The flags ask for details that nodes do not have here: kernels' names and arguments, and the directions of copies.
extern "C" cudaError_t CUDARTAPI cudaGraphDebugDotPrint(cudaGraph_t graph, char const* path, unsigned) {
  return sim::api("cudaGraphDebugDotPrint", [&](sim::runtime& r, sim::held_lock&) {
    auto* const found = r.graphs.find(graph);
    if (found == nullptr || path == nullptr) return cudaErrorInvalidValue;
    return sim::write(sim::dot_of(**found), path);
  });
}
