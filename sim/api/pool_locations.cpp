// Pools by location and type (toolkit 13). Only those of device memory exist here.

#include "api/entry.hpp"

#if CUDART_VERSION >= 13000

namespace weir::sim::detail {
namespace {

using pool_pointer = std::shared_ptr<pool_state>;

// Whether CUDA has such pools; the simulated runtime has fewer.
bool exists(cudaMemLocation const* location, cudaMemAllocationType type) {
  if (location == nullptr) return false;
  bool const managed = type == cudaMemAllocationTypeManaged;
  if (type != cudaMemAllocationTypePinned && !managed) return false;
  return location->type == cudaMemLocationTypeDevice || location->type == cudaMemLocationTypeHost ||
         location->type == cudaMemLocationTypeHostNuma || (managed && location->type == cudaMemLocationTypeNone);
}

// Calls `body(runtime&, device_state&)` for the device of that location.
template <class Body>
cudaError_t at_location(call which, cudaMemLocation const* location, cudaMemAllocationType type, Body body) {
  return api(which, [&](runtime& r, held_lock&) {
    if (!exists(location, type)) return cudaErrorInvalidValue;
    if (type != cudaMemAllocationTypePinned || location->type != cudaMemLocationTypeDevice)
      return cudaErrorNotSupported;
    if (!r.has_device(location->id)) return cudaErrorInvalidDevice;
    return body(r, r.device(location->id));
  });
}

cudaError_t get(call which, cudaMemPool_t* pool, cudaMemLocation const* location, cudaMemAllocationType type,
                pool_pointer device_state::*member) {
  return at_location(which, location, type, [&](runtime&, device_state& device) {
    if (pool == nullptr) return cudaErrorInvalidValue;
    *pool = (device.*member)->handle;
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                                               cudaMemAllocationType type) {
  return sim::get("cudaMemGetDefaultMemPool", pool, location, type, &sim::device_state::default_pool);
}

cudaError_t CUDARTAPI cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return sim::get("cudaMemGetMemPool", pool, location, type, &sim::device_state::current_pool);
}

cudaError_t CUDARTAPI cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return sim::at_location("cudaMemSetMemPool", location, type, [&](sim::runtime& r, sim::device_state& device) {
    sim::pool_pointer const* const found = r.pools.find(pool);
    if (found == nullptr || (*found)->device != location->id) return cudaErrorInvalidValue;
    device.current_pool = *found;
    return cudaSuccess;
  });
}

}  // extern "C"

#endif
