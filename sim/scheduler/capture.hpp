#pragma once
// Stream capture, internal: what a capturing stream records, and which calls a capture under way forbids.

#include "model/state.hpp"

#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace weir::sim::detail {

/// Memory of an allocation node. It has its address from the capture on, and is there while a launch needs it.
struct graph_memory {
  void* p = nullptr;
  bool freed = false;  // by a node of the same graph
};

struct graph_node {
  work run;
  whose code = whose::stand_in;
};

/// What a capture recorded, in the order of the calls: one order that its dependencies allow.
struct graph_state {
  std::uint64_t number = 0;  // the capture's
  bool open = true;          // still being captured
  std::vector<graph_node> nodes;
  std::vector<graph_memory> memory;

  graph_state() = default;
  ~graph_state();  ///< gives the memory back; with the runtime's mutex held
  graph_state(graph_state const&) = delete;
  graph_state& operator=(graph_state const&) = delete;
};

struct graph_execution {
  std::uint64_t number = 0;
  std::shared_ptr<graph_state> graph;
  point last;  // the end of the latest launch; launches of one executable graph run one after another
};

/// A stream that takes part in a capture: how many operations of each stream its next one depends on.
struct participant {
  std::uint64_t lane = 0;  // stands for the stream in the check of order while it captures
  std::map<std::uint64_t, std::uint64_t> after;
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
  std::map<std::uint64_t, std::uint64_t> after;
};

// ---- what a call has to ask before it does anything: `cudaSuccess`, or the code to refuse with. A refusal that CUDA
// says breaks a capture has broken it then.
/// Work for `t`.
cudaError_t admit_work(runtime& r, timeline const& t);
/// A wait for `t`, or a query of it.
cudaError_t admit_wait(runtime& r, timeline const& t);
/// A wait for an event, or a query of it.
cudaError_t admit_wait(runtime& r, event_state const& e);
cudaError_t admit_device_wait(runtime& r, int device);
/// A call that capture cannot see, such as `cudaMalloc`: the modes of the capture and of the thread decide.
cudaError_t admit_unsafe(runtime& r);

// ---- what a capturing stream does instead of queueing
void capture_event(timeline const& t, event_state& e);
/// Brings `t` into the event's capture, or joins two streams of one.
cudaError_t capture_wait(runtime& r, timeline& t, event_state const& e);
void* capture_allocation(runtime& r, timeline& t, std::size_t bytes, std::shared_ptr<pool_state> pool);
/// False if `p` is no live memory of the graph that is being captured.
bool capture_free(runtime& r, timeline& t, void* p);

/// The stream is destroyed.
void leave_capture(runtime& r, timeline& t);
void forget_captures(runtime& r);

/// The id of `t` in the check of order: its own, or one of the capture that it is in.
inline std::uint64_t acting_id(timeline const& t) {
  return t.capture == nullptr ? t.id : t.capture->streams.at(t.id).lane;
}

}  // namespace weir::sim::detail
