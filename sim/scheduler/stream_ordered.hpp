#pragma once
// Stream-ordered memory, internal: allocations as operations of a stream, and which freed block a pool hands out again.

#include "model/runtime.hpp"

#include <cstddef>
#include <memory>

namespace weir::sim::detail {

/// Queues the allocation itself: when `t` gets there, the memory may be used.
void submit_allocation(runtime& r, held_lock& held, timeline& t, void* p);

/// Allocates a freed block of the pool that CUDA allows `t` to have; null if there is none.
void* reuse(runtime& r, held_lock& held, std::shared_ptr<pool_state> const& pool, timeline& t, std::size_t bytes);

/// Finishes allocations and frees with nothing but such in front of them: they take no time on a device.
void finish_idle_frees(runtime& r, held_lock& held);

}  // namespace weir::sim::detail
