#pragma once
// The threads of threads mode, internal.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// Starting them waits for who executes operations just now, stopping them until nothing is under way. No call for who
/// executes one. May throw what `std::thread` does.
void start_workers(runtime& r, held_lock& held);
void stop_workers(runtime& r, held_lock& held);

}  // namespace weir::sim::detail
