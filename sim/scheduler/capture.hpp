#pragma once
// Stream capture, internal: which calls a capture under way forbids, and what a capturing stream does instead of
// queueing work.

#include "model/capture.hpp"
#include "model/runtime.hpp"

#include <memory>
#include <vector>

namespace weir::sim::detail {

// ---- Whether captures under way allow a call: `cudaSuccess`, or the code to refuse with. Where CUDA says that such a
// call breaks a capture, it is broken then.
/// Work for `t`.
cudaError_t admit_work(runtime& r, timeline const& t);
/// A wait for `t`, or a query of it.
cudaError_t admit_wait(runtime& r, timeline const& t);
/// A wait for an event, or a query of it.
cudaError_t admit_wait(runtime& r, event_state const& e);
cudaError_t admit_device_wait(runtime& r, int device);
/// A call that a capture cannot record, such as `cudaMalloc`: the modes of the capture and of the thread decide.
cudaError_t admit_unsafe(runtime& r);
/// Whether memory is that of a graph which is still being captured: the program has it after a launch, and until then
/// only its own capture can free it.
bool is_being_captured(runtime const& r, allocation const& a);

// ---- a capture's beginning, end and status
cudaError_t begin_capture(runtime& r, timeline& t, cudaStreamCaptureMode mode);
cudaError_t end_capture(runtime& r, timeline& t, cudaGraph_t& graph);
/// Refused only for the legacy stream, while a blocking stream of its device captures.
cudaError_t status_of(runtime& r, timeline const& t, cudaStreamCaptureStatus& status);
/// The stream is destroyed: a capture that began on it is broken.
void leave_capture(runtime& r, timeline& t);
void forget_captures(runtime& r);

// ---- what a capturing stream does instead of queueing
cudaGraphNode_t add_node(runtime& r, graph_state& graph, work run, operation_kind kind,
                         std::vector<cudaGraphNode_t> after);
/// The operation becomes part of the graph that `t` captures.
void capture_operation(runtime& r, timeline const& t, work run, operation_kind kind);
void capture_event(timeline const& t, event_state& e);
/// Brings `t` into the event's capture, or joins two streams of one.
cudaError_t capture_wait(runtime& r, timeline& t, event_state const& e);

}  // namespace weir::sim::detail
