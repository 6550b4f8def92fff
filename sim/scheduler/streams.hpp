#pragma once
// Finds streams by their handles, and ends them, internal.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// The stream of a handle other than 0 for the calling thread and its current device; null if there is none.
timeline* find_stream(runtime& r, cudaStream_t handle);

/// The stream gets no more work; it is forgotten once its work is done.
void end_stream(runtime& r, timeline* t);

}  // namespace weir::sim::detail
