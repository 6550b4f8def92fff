#pragma once
// How much memory pools hold, internal: they grow, keep freed blocks, and are trimmed.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// Says what memory a pool would give. The error is CUDA's where there is no such memory.
cudaError_t find_home(runtime const& r, cudaMemAllocationType type, cudaMemLocation const& location, pool_home& home);

/// The default pool of some memory, and the current one: made now, if nobody has asked before.
struct pools_at {
  std::shared_ptr<pool_state>& by_default;
  std::shared_ptr<pool_state>& current;
};
pools_at find_pools(runtime& r, pool_home home);

/// Makes room for an allocation of a pool; false if the pool or its device is full.
bool take_room(runtime& r, pool_state& pool, std::size_t bytes);
void give_room_back(runtime& r, pool_state& pool, std::size_t bytes);

/// Keeps a block whose free has executed, to hand it out again. False: it was not kept.
bool keep(pool_state& pool, std::uintptr_t address, allocation const& freed);

/// Gives back what the pool holds beyond `keep` bytes and does not use.
void trim(runtime& r, pool_state& pool, std::uint64_t keep);
/// Trims every pool to its release threshold, as every synchronise does.
void trim_pools(runtime& r);

}  // namespace weir::sim::detail
