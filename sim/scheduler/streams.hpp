#pragma once
// Streams by their handles, and their end, internal.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// The stream of a handle other than 0 for the calling thread and its current device; null if there is none.
timeline* find_stream(runtime& r, cudaStream_t handle);

/// The stream gets no more work.
void end_stream(runtime& r, timeline* t);

}  // namespace weir::sim::detail
