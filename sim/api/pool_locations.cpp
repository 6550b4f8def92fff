// Pools by location and type (toolkit 13).

#include "allocations/pools.hpp"
#include "api/entry.hpp"

#if CUDART_VERSION >= 13000

namespace weir::sim::detail {
namespace {

// Calls `body(runtime&, pool_home const&, pools_at const&)` for the memory of that location and type.
template <class Body>
cudaError_t at_location(call which, cudaMemLocation const* location, cudaMemAllocationType type, Body body) {
  return api(which, [&](runtime& r, held_lock&) {
    if (location == nullptr) return cudaErrorInvalidValue;
    pool_home home;
    if (cudaError_t const code = find_home(r, type, *location, home); code != cudaSuccess) return code;
    return body(r, home, find_pools(r, home));
  });
}

cudaError_t give(std::shared_ptr<pool_state> const& found, cudaMemPool_t* pool) {
  if (pool == nullptr) return cudaErrorInvalidValue;
  *pool = found->handle;
  return cudaSuccess;
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                                               cudaMemAllocationType type) {
  return sim::at_location("cudaMemGetDefaultMemPool", location, type,
                          [pool](auto&, auto&, sim::pools_at const& its) { return sim::give(its.by_default, pool); });
}

cudaError_t CUDARTAPI cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return sim::at_location("cudaMemGetMemPool", location, type,
                          [pool](auto&, auto&, sim::pools_at const& its) { return sim::give(its.current, pool); });
}

cudaError_t CUDARTAPI cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return sim::at_location("cudaMemSetMemPool", location, type,
                          [pool](sim::runtime& r, sim::pool_home const& home, sim::pools_at const& its) {
                            auto const* const found = r.pools.find(pool);
                            if (found == nullptr || (*found)->home != home || (*found)->exporter != nullptr)
                              return cudaErrorInvalidValue;
                            its.current = *found;
                            return cudaSuccess;
                          });
}

}  // extern "C"

#endif
