#pragma once
// Events, internal: the latest snapshot of a stream's work that each holds.

#include "model/stream.hpp"
#include "model/vector_clock.hpp"

#include <chrono>
#include <cstdint>
#include <memory>

namespace weir::sim::detail {

struct captured_point;

using clock = std::chrono::steady_clock;

struct event_state {
  std::uint64_t number = 0;  // in the order of creation
  int device = 0;
  bool timed = true;
  bool recorded = false;
  bool dies_with_reset = false;                    // an injected failure refused its destruction
  point at;                                        // the latest snapshot
  vector_clock seen;                               // what the snapshot comes after; only while order is checked
  mark recorded_by;                                // the latest record, only while order is checked
  std::uint64_t recorded_on = 0;                   // its stream; the slot may be another stream's by now
  bool waited_for = false;                         // since that
  std::shared_ptr<clock::time_point> reached;      // set when the snapshot's work is done; timed events only
  std::shared_ptr<captured_point const> captured;  // set: the latest record was captured
};

}  // namespace weir::sim::detail
