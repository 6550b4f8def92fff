#include "scheduler/capture.hpp"

#include "allocations/blocks.hpp"
#include "checker/checker.hpp"
#include "scheduler/graph_memory.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace weir::sim::detail {
namespace {

void invalidate(runtime& r, capture_state& c) {
  if (!std::exchange(c.invalidated, true)) ++r.captures_invalidated;
}

// Breaks every capture for which `condition` holds; true if there was one.
template <class Condition>
bool invalidate_if(runtime& r, Condition condition) {
  bool found = false;
  for (auto const& c : r.captures) {
    if (!condition(*c)) continue;
    invalidate(r, *c);
    found = true;
  }
  return found;
}

template <class Condition>
bool has_stream(runtime& r, capture_state const& c, Condition condition) {
  return std::any_of(c.streams.begin(), c.streams.end(), [&](auto const& s) {
    timeline const* const t = find_timeline(r, s.first);
    return t != nullptr && condition(*t);
  });
}

// The legacy stream would come after the blocking streams of its device, captured ones too.
auto conflicts_with_legacy(runtime& r, int device) {
  return [&r, device](capture_state const& c) {
    return has_stream(r, c, [device](timeline const& t) { return t.blocking() && t.device == device; });
  };
}

cudaError_t refuse_legacy(runtime& r, timeline const& t) {
  return invalidate_if(r, conflicts_with_legacy(r, t.device)) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

void join(captured_order& into, captured_order const& from) {
  for (auto const& [stream, count] : from) into[stream] = std::max(into[stream], count);
}

void enter(runtime& r, timeline& t, std::shared_ptr<capture_state> const& c) {
  t.capture = c;
  c->streams[t.id].check_id = ++r.captured_streams | std::uint64_t{1} << 63;
}

// Whether the stream that the capture began on comes after all its nodes.
bool is_joined(capture_state const& c) {
  auto const& end = c.streams.at(c.origin).after;
  return std::all_of(c.streams.begin(), c.streams.end(), [&](auto const& s) {
    auto const made = s.second.after.find(s.first);
    if (made == s.second.after.end()) return true;
    auto const seen = end.find(s.first);
    return seen != end.end() && seen->second >= made->second;
  });
}

// Ends a capture. Memory that its graph allocates and does not free is the program's only after a launch.
void close(runtime& r, capture_state& c) {
  c.ended = true;
  if (r.check != nullptr) [[unlikely]]
    r.check->capture_ended(c);
  for (auto const& [id, s] : c.streams)
    if (timeline* const t = find_timeline(r, id)) t->capture = nullptr;
  c.graph->open = false;
  for (graph_memory const& m : c.graph->memory)
    if (!m.freed) {
      allocation& a = *find_live(r, m.p);
      begin_free(r, a);
      a.kept_for_graph = a.left_by_graph = true;
    }
  if (c.invalidated) r.graphs.remove(c.handle);
  c.graph = nullptr;
  std::erase_if(r.captures, [&](auto const& other) { return other.get() == &c; });
}

}  // namespace

cudaError_t admit_work(runtime& r, timeline const& t) {
  if (r.captures.empty()) [[likely]]
    return cudaSuccess;
  if (t.capture != nullptr) return t.capture->invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  return t.legacy ? refuse_legacy(r, t) : cudaSuccess;
}

cudaError_t admit_wait(runtime& r, timeline const& t) {
  if (cudaError_t const code = admit_work(r, t); code != cudaSuccess || t.capture == nullptr) return code;
  invalidate(r, *t.capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t admit_wait(runtime& r, event_state const& e) {
  if (e.captured == nullptr) return admit_unsafe(r);
  if (e.captured->in->ended) return cudaErrorInvalidValue;  // as a GPU showed
  invalidate(r, *e.captured->in);
  return cudaErrorCapturedEvent;
}

cudaError_t admit_device_wait(runtime& r, int device) {
  bool const found = invalidate_if(r, [&](capture_state const& c) {
    return has_stream(r, c, [device](timeline const& t) { return t.device == device; });
  });
  return found ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t admit_unsafe(runtime& r) {
  if (r.captures.empty()) [[likely]]
    return cudaSuccess;
  cudaStreamCaptureMode const mine = this_thread().capture_mode;
  if (mine == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  auto const me = std::this_thread::get_id();
  bool const found = invalidate_if(r, [&](capture_state const& c) {
    if (c.thread == me) return c.mode != cudaStreamCaptureModeRelaxed;
    return mine == cudaStreamCaptureModeGlobal && c.mode == cudaStreamCaptureModeGlobal;
  });
  return found ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

bool is_being_captured(runtime const& r, allocation const& a) {
  return a.graph != 0 &&
         std::any_of(r.captures.begin(), r.captures.end(), [&](auto const& c) { return c->graph->number == a.graph; });
}

cudaGraphNode_t add_node(runtime& r, graph_state& graph, work run, operation_kind kind,
                         std::vector<cudaGraphNode_t> after) {
  // A number that nobody can take for an address, as all handles are; none is given twice.
  auto* const handle = reinterpret_cast<cudaGraphNode_t>(0x5700'0000'0000 + 16 * r.node_count++);
  graph.nodes.push_back({std::move(run), kind, handle, std::move(after)});
  return handle;
}

void capture_operation(runtime& r, timeline const& t, work run, operation_kind kind) {
  participant& its = t.capture->streams.at(t.id);
  its.next_after = {add_node(r, *t.capture->graph, std::move(run), kind, std::move(its.next_after))};
  ++its.after[t.id];
}

void capture_event(timeline const& t, event_state& e) {
  participant const& its = t.capture->streams.at(t.id);
  e.captured = std::make_shared<captured_point const>(captured_point{t.capture, its.after, its.next_after});
}

cudaError_t capture_wait(runtime& r, timeline& t, event_state const& e) {
  if (e.captured == nullptr) {  // `t` would wait for work that is no part of its graph
    invalidate(r, *t.capture);
    return cudaErrorStreamCaptureIsolation;
  }
  std::shared_ptr<capture_state> const from = e.captured->in;
  if (t.capture != nullptr && t.capture != from) {
    invalidate(r, *t.capture);
    if (!from->ended) invalidate(r, *from);
    return from->ended ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureMerge;
  }
  if (from->ended) return cudaErrorCapturedEvent;
  if (from->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (t.legacy) {
    invalidate(r, *from);
    return cudaErrorStreamCaptureImplicit;
  }
  if (t.capture == nullptr) enter(r, t, from);
  participant& its = from->streams.at(t.id);
  join(its.after, e.captured->after);
  for (cudaGraphNode_t const node : e.captured->nodes)
    if (std::find(its.next_after.begin(), its.next_after.end(), node) == its.next_after.end())
      its.next_after.push_back(node);
  return cudaSuccess;
}

void leave_capture(runtime& r, timeline& t) {
  if (t.capture == nullptr || t.capture->origin != t.id) return;
  std::shared_ptr<capture_state> const c = t.capture;  // nobody can end it any more, so it is broken
  invalidate(r, *c);
  close(r, *c);
}

void forget_captures(runtime& r) {
  while (!r.captures.empty()) {
    std::shared_ptr<capture_state> const c = r.captures.back();
    c->invalidated = true;
    close(r, *c);
  }
  r.captures_invalidated = 0;
}

cudaError_t status_of(runtime& r, timeline const& t, cudaStreamCaptureStatus& status) {
  status = cudaStreamCaptureStatusNone;
  if (t.legacy && std::any_of(r.captures.begin(), r.captures.end(),
                              [&](auto const& c) { return conflicts_with_legacy(r, t.device)(*c); }))
    return cudaErrorStreamCaptureImplicit;
  if (t.capture != nullptr)
    status = t.capture->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t begin_capture(runtime& r, timeline& t, cudaStreamCaptureMode mode) {
  if (t.legacy) return cudaErrorStreamCaptureUnsupported;
  if (t.capture != nullptr) return cudaErrorIllegalState;
  auto made = std::make_shared<capture_state>();
  made->id = ++r.capture_count;
  made->mode = mode;
  made->thread = std::this_thread::get_id();
  made->origin = t.id;
  made->graph = make_graph(made->id);
  made->handle = r.graphs.add(made->graph);
  enter(r, t, made);
  r.captures.push_back(std::move(made));
  return cudaSuccess;
}

cudaError_t end_capture(runtime& r, timeline& t, cudaGraph_t& graph) {
  std::shared_ptr<capture_state> const c = t.capture;
  if (c == nullptr) return cudaErrorIllegalState;
  if (c->origin != t.id) return cudaErrorStreamCaptureUnmatched;
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  bool const was_invalidated = c->invalidated;
  if (!was_invalidated && !is_joined(*c)) invalidate(r, *c);
  close(r, *c);
  if (c->invalidated) return was_invalidated ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  graph = c->handle;
  return cudaSuccess;
}

}  // namespace weir::sim::detail
