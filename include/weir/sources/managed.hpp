#pragma once
// Source: managed memory, which moves between host and devices by itself.

#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/sources/immediate_source.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <string>

namespace weir {
namespace detail {

struct managed_memory {
  static constexpr char const* name = "managed";
  static constexpr char const* give_call = "cudaFree";
  static constexpr bool host_accessible = true;
  static constexpr bool is_of_device_alone = false;

  static void require(int device) {
    require_ability(name, device, cudaDevAttrManagedMemory,
                    "cannot allocate managed memory (cudaDevAttrManagedMemory is 0); use device or pinned");
  }
  static void* take(std::size_t bytes) { return try_malloc_managed(bytes); }
  static cudaError_t give(void* p) {
    return relaxed([p] { return cudaFree(p); });
  }
  static std::string state(int device, std::size_t) { return device_state(device); }
  static constexpr char const* hint = "neither the devices nor the host have as much: free something, or ask for less";
};

}  // namespace detail

/// Gives memory by `cudaMallocManaged` that the host and every device can reach; frees it once the stream's work is
/// done. Thread-safe. Alignment: 256 B or as asked, up to 2 MiB.
using managed_resource = detail::immediate_source<detail::managed_memory>;

/// Managed memory: one pointer for host and devices, and more of it than a device holds.
/// When not to use it: where every microsecond counts, since pages move when they are first touched; and where the
/// device has no concurrent managed access (`cudaDevAttrConcurrentManagedAccess`) the host must not touch it while
/// kernels run.
struct managed {
  int device = -1;  ///< which device is current when it allocates; -1: the one current at `make`

  static constexpr char const* layer_name = "managed";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<weir::managed>());
  }

  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    return option::first_problem(*this);
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
  template <class = void>
  managed_resource operator()() const {
    return managed_resource(detail::require_valid(*this).device);
  }
};

}  // namespace weir
