#include "allocations/pools.hpp"

#include "allocations/blocks.hpp"

#include <algorithm>

namespace weir::sim::detail {

bool take_room(runtime& r, pool_state& pool, std::size_t bytes) {
  device_state& device = r.device(pool.device);
  std::size_t const spare = pool.reserved - pool.used;
  if (bytes > spare) {
    std::size_t const growth = bytes - spare;
    if (pool.max_bytes != 0 && growth > pool.max_bytes - pool.reserved) return false;
    if (device.used > device.capacity || growth > device.capacity - device.used) return false;
    device.used += growth;
    pool.reserved += growth;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  }
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  return true;
}

void give_room_back(runtime& r, pool_state& pool, std::size_t bytes) {
  pool.used -= bytes;
  if (pool.destroyed) trim(r, pool, 0);
}

bool keep(pool_state& pool, std::uintptr_t address, allocation const& freed) {
  constexpr std::size_t most_kept = 16;
  // Where a driver reuses memory on its own, the thread sanitizer would see a race between the two users. Under it
  // every block is new.
  if (streams_are_fibers) return false;
  if (pool.destroyed || pool.reserved == pool.used) return false;
  auto* const p = reinterpret_cast<void*>(address);
  if (pool.kept.size() == most_kept) pool.kept.erase(pool.kept.begin());
  auto const give_back = [](void* block, std::size_t bytes) { release_block(block, bytes, false); };
  pool.kept.push_back({{p, {freed.bytes, give_back}}, freed.freed_at.stream});
  return true;
}

void trim(runtime& r, pool_state& pool, std::uint64_t keep) {
  std::uint64_t const kept = std::max<std::uint64_t>(pool.used, std::min(pool.reserved, keep));
  r.device(pool.device).used -= pool.reserved - kept;
  if (pool.reserved != kept) pool.kept.clear();
  pool.reserved = kept;
}

void trim_pools(runtime& r) {
  r.pools.for_each([&](std::shared_ptr<pool_state> const& pool) { trim(r, *pool, pool->release_threshold); });
}

}  // namespace weir::sim::detail
