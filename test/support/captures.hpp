#pragma once
// Captures, graphs and the check of order for tests of stacks.

#include <weir/cuda/capture.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/streams_at_work.hpp"

namespace weir::test {

inline constexpr std::array all_capture_modes{cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                              cudaStreamCaptureModeRelaxed};
inline constexpr std::array all_sim_modes{sim::mode::immediate, sim::mode::lazy, sim::mode::random};

/// A fresh simulated runtime that checks order; at its end, no capture was broken and no order either.
struct watched_world {
  explicit watched_world(sim::mode how = sim::mode::lazy) {
    sim::reset();
    sim::set_mode(how);
    sim::check_order(true);
  }
  ~watched_world() {
    expect_clean();
    sim::reset();
  }
  watched_world(watched_world const&) = delete;
  watched_world& operator=(watched_world const&) = delete;

  static void expect_clean() {
    CHECK(sim::captures_invalidated() == 0);
    for (auto const& report : sim::reports()) MESSAGE(report.text);
    CHECK(sim::report_count() == 0);
    sim::clear_reports();
  }
};

inline void begin_capture(stream_ref stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  REQUIRE(cudaStreamBeginCapture(stream.get(), mode) == cudaSuccess);
}

/// Ends one whose graph nobody wants.
inline void end_capture(stream_ref stream) {
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

/// What was captured on a stream, ready to be launched.
class captured_graph {
 public:
  explicit captured_graph(stream_ref origin) {
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(origin.get(), &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&handle_, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  }
  ~captured_graph() { cudaGraphExecDestroy(handle_); }
  captured_graph(captured_graph const&) = delete;
  captured_graph& operator=(captured_graph const&) = delete;

  void launch(stream_ref stream) const { REQUIRE(cudaGraphLaunch(handle_, stream.get()) == cudaSuccess); }

 private:
  cudaGraphExec_t handle_ = nullptr;
};

/// `after` comes after all that `before` has now. A fork or a join, where one of them captures.
inline void order(stream_ref before, stream_ref after) {
  cudaEvent_t e = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventRecord(e, before.get()) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(after.get(), e, 0) == cudaSuccess);
  REQUIRE(cudaEventDestroy(e) == cudaSuccess);
}

inline void write(stream_ref stream, void* p, std::size_t bytes) {
  sim::touch(stream.get(), p, bytes, sim::access::write);
}

inline bool is_capturing(stream_ref stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamIsCapturing(stream.get(), &status) == cudaSuccess);
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace weir::test
