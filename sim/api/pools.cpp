// Memory pools: their creation, their end, their attributes, and which of them a device uses.

#include "allocations/pools.hpp"
#include "api/entry.hpp"
#include "scheduler/stream_ordered.hpp"

namespace weir::sim::detail {
namespace {

using pool_pointer = std::shared_ptr<pool_state>;

bool valid(cudaMemAccessFlags flags) {
  return flags == cudaMemAccessFlagsProtNone || flags == cudaMemAccessFlagsProtRead ||
         flags == cudaMemAccessFlagsProtReadWrite;
}

// Calls `body(runtime&, pool_pointer const&)`.
template <class Body>
cudaError_t with_pool(call which, cudaMemPool_t handle, bool valid_arguments, Body body) {
  return api(which, [&](runtime& r, held_lock&) {
    pool_pointer const* const pool = r.pools.find(handle);
    if (pool == nullptr || !valid_arguments) return cudaErrorInvalidValue;
    return body(r, *pool);
  });
}

cudaError_t get_pool(call which, cudaMemPool_t* pool, int device, pool_pointer device_state::*member) {
  return api(which, [&](runtime& r, held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (pool == nullptr) return cudaErrorInvalidValue;
    *pool = (r.device(device).*member)->handle;
    return cudaSuccess;
  });
}

cudaError_t read(pool_state const& pool, cudaMemPoolAttr which, void* value) {
  auto const as_size = [value](std::uint64_t size) {
    *static_cast<std::uint64_t*>(value) = size;
    return cudaSuccess;
  };
  switch (which) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      *static_cast<int*>(value) = pool.reuse[which - cudaMemPoolReuseFollowEventDependencies];
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      return as_size(pool.release_threshold);
    case cudaMemPoolAttrReservedMemCurrent:
      return as_size(pool.reserved);
    case cudaMemPoolAttrReservedMemHigh:
      return as_size(pool.reserved_high);
    case cudaMemPoolAttrUsedMemCurrent:
      return as_size(pool.used);
    case cudaMemPoolAttrUsedMemHigh:
      return as_size(pool.used_high);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t write(pool_state& pool, cudaMemPoolAttr which, void const* value) {
  auto const reset = [value](std::uint64_t& high, std::uint64_t current) {
    if (*static_cast<std::uint64_t const*>(value) != 0) return cudaErrorInvalidValue;
    high = current;
    return cudaSuccess;
  };
  switch (which) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: {
      int const on = *static_cast<int const*>(value);
      if (on != 0 && on != 1) return cudaErrorInvalidValue;
      pool.reuse[which - cudaMemPoolReuseFollowEventDependencies] = on;
      return cudaSuccess;
    }
    case cudaMemPoolAttrReleaseThreshold:
      pool.release_threshold = *static_cast<std::uint64_t const*>(value);
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
      return reset(pool.reserved_high, pool.reserved);
    case cudaMemPoolAttrUsedMemHigh:
      return reset(pool.used_high, pool.used);
    default:
      return cudaErrorInvalidValue;  // the current sizes are not for writing
  }
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps const* properties) {
  return sim::api("cudaMemPoolCreate", [&](sim::runtime& r, sim::held_lock&) {
    if (pool == nullptr || properties == nullptr) return cudaErrorInvalidValue;
    sim::pool_home home;
    if (cudaError_t const code = sim::find_home(r, properties->allocType, properties->location, home);
        code != cudaSuccess)
      return code;
    bool const for_others = properties->handleTypes != cudaMemHandleTypeNone;
    if (for_others && home.type == cudaMemLocationTypeHost) return cudaErrorInvalidValue;
    if (for_others && (properties->handleTypes != cudaMemHandleTypePosixFileDescriptor || !home.on_device()))
      return cudaErrorNotSupported;
    auto made = std::make_shared<sim::pool_state>(home);
    made->max_bytes = properties->maxSize;
    made->handle_types = static_cast<unsigned>(properties->handleTypes);
    made->handle = *pool = r.pools.add(made);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool) {
  return sim::with_pool("cudaMemPoolDestroy", pool, true, [pool](sim::runtime& r, sim::pool_pointer const& found) {
    if (found->is_default) return cudaErrorInvalidValue;
    sim::pools_at const its = sim::find_pools(r, found->home);
    if (its.current == found) its.current = its.by_default;
    found->destroyed = true;  // its live memory stays, and goes when it is freed
    sim::trim(r, *found, 0);
    r.pools.remove(pool);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return sim::with_pool("cudaMemPoolSetAttribute", pool, value != nullptr,
                        [&](sim::runtime&, auto const& found) { return sim::write(*found, attribute, value); });
}

// Memory that was freed in an idle stream is not in use, though nobody has waited for the free.
cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return sim::api("cudaMemPoolGetAttribute", [&](sim::runtime& r, sim::held_lock& held) {
    if (attribute == cudaMemPoolAttrUsedMemCurrent) sim::finish_idle_frees(r, held);
    auto const* const found = r.pools.find(pool);
    return found == nullptr || value == nullptr ? cudaErrorInvalidValue : sim::read(**found, attribute, value);
  });
}

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return sim::with_pool("cudaMemPoolTrimTo", pool, true, [&](sim::runtime& r, auto const& found) {
    sim::trim(r, *found, keep);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t pool, cudaMemAccessDesc const* list, size_t count) {
  bool const valid_list = list != nullptr || count == 0;
  return sim::with_pool("cudaMemPoolSetAccess", pool, valid_list, [&](sim::runtime& r, auto const& found) {
    for (std::size_t i = 0; i < count; ++i) {
      int const device = list[i].location.id;
      if (list[i].location.type != cudaMemLocationTypeDevice || !sim::valid(list[i].flags))
        return cudaErrorInvalidValue;
      bool const gives = list[i].flags != cudaMemAccessFlagsProtNone;
      bool const is_far = found->home.on_device() && !r.can_reach(device, found->device);  // the host is near to all
      if (!r.has_device(device) || (gives && is_far)) return cudaErrorInvalidDevice;
      // A device's access to its own memory cannot be taken away.
      if (found->home.on_device() && device == found->device && list[i].flags != cudaMemAccessFlagsProtReadWrite)
        return cudaErrorInvalidDevice;
    }
    for (std::size_t i = 0; i < count; ++i) {
      found->access[static_cast<std::size_t>(list[i].location.id)] = list[i].flags;
    }
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  bool const of_host = location != nullptr && location->type == cudaMemLocationTypeHost;
  bool const valid =
      flags != nullptr && location != nullptr && (of_host || location->type == cudaMemLocationTypeDevice);
  return sim::with_pool("cudaMemPoolGetAccess", pool, valid, [&](sim::runtime& r, auto const& found) {
    if (of_host) {
      *flags = found->home.on_device() ? cudaMemAccessFlagsProtNone : cudaMemAccessFlagsProtReadWrite;
      return cudaSuccess;
    }
    if (!r.has_device(location->id)) return cudaErrorInvalidDevice;
    *flags = found->access[static_cast<std::size_t>(location->id)];
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return sim::get_pool("cudaDeviceGetDefaultMemPool", pool, device, &sim::device_state::default_pool);
}

cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return sim::get_pool("cudaDeviceGetMemPool", pool, device, &sim::device_state::current_pool);
}

cudaError_t CUDARTAPI cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return sim::with_pool("cudaDeviceSetMemPool", pool, true, [device](sim::runtime& r, auto const& found) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (found->home != sim::pool_home{.id = device} || found->exporter != nullptr) return cudaErrorInvalidValue;
    r.device(device).current_pool = found;
    return cudaSuccess;
  });
}

}  // extern "C"
