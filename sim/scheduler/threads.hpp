#pragma once
// The threads of threads mode, internal.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// Starting waits until no other thread executes operations; stopping waits until none is under way. Must not be called
/// by a thread that executes one. Starting throws what `std::thread` throws.
void start_workers(runtime& r, held_lock& held);
void stop_workers(runtime& r, held_lock& held);

}  // namespace weir::sim::detail
