#pragma once
// Stream captures under way, internal: which streams take part, and what each depends on.

#include "model/graph.hpp"
#include "model/stream.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace weir::sim::detail {

/// How many operations of each stream something depends on, by the stream's id.
using captured_order = std::map<std::uint64_t, std::uint64_t>;

/// A stream that takes part in a capture.
struct participant {
  std::uint64_t check_id = 0;               // its id in the check of order while it captures
  captured_order after;                     // what its next operation depends on
  std::vector<cudaGraphNode_t> next_after;  // the same as nodes: the latest ones alone
#if CUDART_VERSION >= 12030
  std::vector<cudaGraphEdgeData> edges;  // to these, for who asks: all of the default kind
#endif
};

struct capture_state {
  std::uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::uint64_t origin = 0;  // the stream it began on
  bool invalidated = false;
  bool ended = false;
  cudaGraph_t handle = nullptr;
  std::shared_ptr<graph_state> graph;
  std::map<std::uint64_t, participant> streams;
};

/// Where an event was recorded inside a capture.
struct captured_point {
  std::shared_ptr<capture_state> in;
  captured_order after;
  std::vector<cudaGraphNode_t> nodes;
};

/// The id of `t` in the check of order: its own, or one of the capture that it is in.
inline std::uint64_t acting_id(timeline const& t) {
  return t.capture == nullptr ? t.id : t.capture->streams.at(t.id).check_id;
}

}  // namespace weir::sim::detail
