#pragma once
// Stream-ordered memory, internal: allocations as operations of a stream, and which freed block a pool hands out again.

#include "model/runtime.hpp"

#include <cstddef>
#include <memory>

namespace weir::sim::detail {

/// Gives stream-ordered memory to whom comes after this place in `t`: the allocation executes.
void submit_allocation(runtime& r, held_lock& held, timeline& t, void* p);

/// A block of the pool that `t` may have, now; null if there is none. It is live then.
void* reuse(runtime& r, held_lock& held, std::shared_ptr<pool_state> const& pool, timeline& t, std::size_t bytes);

}  // namespace weir::sim::detail
