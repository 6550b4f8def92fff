#include "allocations/pools.hpp"

#include "allocations/blocks.hpp"

#include <algorithm>

namespace weir::sim::detail {
namespace {

/// What a pool's memory counts against: its device, or the host.
struct charged {
  std::size_t& used;
  std::size_t capacity;
};
charged charged_for(runtime& r, pool_state const& pool) {
  if (!pool.home.on_device()) return {r.host_used, r.host_capacity};
  device_state& device = r.device(pool.device);
  return {device.used, device.capacity};
}

}  // namespace

cudaError_t find_home(runtime const& r, cudaMemAllocationType type, cudaMemLocation const& location, pool_home& home) {
  home = {false, location.type, 0};
#if CUDART_VERSION >= 13000
  home.managed = type == cudaMemAllocationTypeManaged;
  if (home.managed && location.type == cudaMemLocationTypeNone) return cudaSuccess;
#endif
  if (type != cudaMemAllocationTypePinned && !home.managed) return cudaErrorInvalidValue;
  switch (location.type) {
    case cudaMemLocationTypeDevice:
      home.id = location.id;
      return r.has_device(location.id) ? cudaSuccess : cudaErrorInvalidDevice;
    case cudaMemLocationTypeHost:
      return cudaSuccess;
    case cudaMemLocationTypeHostNuma:  // there is one node
      return location.id == 0 ? cudaSuccess : cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidValue;
  }
}

pools_at find_pools(runtime& r, pool_home home) {
  if (home.on_device()) {
    device_state& device = r.device(home.id);
    return {device.default_pool, device.current_pool};
  }
  home_pools& found = r.other_pools[home];
  if (found.default_pool == nullptr) {
    found.default_pool = found.current_pool = std::make_shared<pool_state>(home);
    found.default_pool->is_default = true;
    found.default_pool->handle = r.pools.add(found.default_pool);
  }
  return {found.default_pool, found.current_pool};
}

bool take_room(runtime& r, pool_state& pool, std::size_t bytes) {
  charged const whole = charged_for(r, pool);
  std::size_t const spare = pool.reserved - pool.used;
  if (bytes > spare) {
    std::size_t const growth = bytes - spare;
    if (pool.max_bytes != 0 && growth > pool.max_bytes - pool.reserved) return false;
    if (whole.used > whole.capacity || growth > whole.capacity - whole.used) return false;
    whole.used += growth;
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
  if (!pool.gives_back() || pool.exporter != nullptr) return;
  std::uint64_t const kept = std::max<std::uint64_t>(pool.used, std::min(pool.reserved, keep));
  charged_for(r, pool).used -= pool.reserved - kept;
  if (pool.reserved != kept) pool.kept.clear();
  pool.reserved = kept;
}

void trim_pools(runtime& r) {
  r.pools.for_each([&](std::shared_ptr<pool_state> const& pool) { trim(r, *pool, pool->release_threshold); });
}

}  // namespace weir::sim::detail
