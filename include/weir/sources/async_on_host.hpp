#pragma once
// Sources: CUDA's stream-ordered allocator on memory that the host reaches too (toolkit 13 and newer).

#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace weir {
namespace detail {

#if CUDART_VERSION >= 13000

struct managed_pool {
  static constexpr char const* name = "async_managed";
  static constexpr char const* hint = "neither the device nor the host has as much: free something, or ask for less";
  static constexpr char const* otherwise = "has no pools of managed memory; use managed with a pool on it";

  static cudaMemPoolProps properties(int device) {
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypeManaged;
    props.location.type = cudaMemLocationTypeDevice;  // where pages prefer to be
    props.location.id = device;
    return props;
  }
  static void open(memory_pool&) {}  // everybody reaches it
};

struct pinned_pool {
  static constexpr char const* name = "async_pinned";
  static constexpr char const* hint =
      "the host has no more memory that may be locked: free something, or use weir::host";
  static constexpr char const* otherwise = "has no pools of pinned memory; use pinned with a pool on it";

  static cudaMemPoolProps properties(int) {
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeHost;
    return props;
  }
  /// At first only the host reaches it.
  static void open(memory_pool& pool) {
    for (int device = 0, count = device_count(); device < count; ++device) pool.let_in(device);
  }
};

/// A pool that is there before the resource which allocates from it.
template <class Kind>
struct own_pool {
  own_pool(int device, std::size_t max_bytes, std::size_t release_threshold) : pool(created(device, max_bytes)) {
    pool.set(cudaMemPoolAttrReleaseThreshold, release_threshold);
    Kind::open(pool);
  }
  static memory_pool created(int device, std::size_t max_bytes) try {
    cudaMemPoolProps props = Kind::properties(device);
    props.maxSize = max_bytes;
    return memory_pool::create(props);
  } catch (cuda_error const& refused) {
    if (refused.code() != cudaErrorNotSupported) throw;
    throw std::invalid_argument(std::string("weir: ") + Kind::name + ": device " + std::to_string(device) + " " +
                                Kind::otherwise);
  }

  memory_pool pool;
};

#else

struct managed_pool {
  static constexpr char const* name = "async_managed";
};
struct pinned_pool {
  static constexpr char const* name = "async_pinned";
};

#endif

}  // namespace detail

/// As `async_resource`, on a pool of its own of memory that host and devices reach. In stream order: the host may touch
/// the memory once it has waited for the stream.
template <class Kind>
class async_on_host_resource;

/// The options of `async_managed` and `async_pinned`.
template <class Kind>
struct async_on_host {
  int device = -1;  ///< which managed pages prefer, and whose streams serve `host_order`; -1: the current at `make`
  std::size_t release_threshold = std::numeric_limits<std::size_t>::max();  ///< as for `async`
  std::size_t max_bytes = 0;  ///< most that the pool may hold, rounded up by CUDA; 0: what the system allows

  static constexpr char const* layer_name = Kind::name;
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<async_on_host>());
    f(option::bytes("release_threshold", "release_threshold", &async_on_host::release_threshold));
    f(option::bytes("max", "max_bytes", &async_on_host::max_bytes));
  }
  std::string problem() const { return option::first_problem(*this); }
  bool valid() const { return problem().empty(); }
  async_on_host_resource<Kind> operator()() const {
    detail::require_valid(*this);
    return {detail::chosen_device(layer_name, device), max_bytes, release_threshold};
  }
};

/// Managed memory in stream order, from a pool of CUDA's whose pages prefer `device`. Needs toolkit 13.
/// When not to use it: where `managed` with a `pool` on it serves, which keeps more and needs no toolkit 13.
using async_managed = async_on_host<detail::managed_pool>;

/// Page-locked host memory in stream order, from a pool of CUDA's that every device reaches. Needs toolkit 13.
/// When not to use it: where `pinned` with a `pool` on it serves.
using async_pinned = async_on_host<detail::pinned_pool>;

#if CUDART_VERSION >= 13000

template <class Kind>
class async_on_host_resource : private detail::own_pool<Kind>, public async_resource {
 public:
  static constexpr bool host_accessible = true;
  static constexpr char const* layer_name = Kind::name;

  /// Throws `std::invalid_argument` for wrong options, or where CUDA has no such pools.
  async_on_host_resource(int device, std::size_t max_bytes, std::size_t release_threshold)
      : detail::own_pool<Kind>(device, max_bytes, release_threshold),
        async_resource(async{.device = device, .pool = this->detail::own_pool<Kind>::pool.get()}, Kind::name, max_bytes,
                       Kind::hint) {}
};

#else

template <class Kind>
class async_on_host_resource {
  static_assert(!sizeof(Kind*),
                "weir: async_managed and async_pinned need CUDA's toolkit 13; use managed or pinned with a pool on it");
};

#endif

using async_managed_resource = async_on_host_resource<detail::managed_pool>;
using async_pinned_resource = async_on_host_resource<detail::pinned_pool>;

}  // namespace weir
