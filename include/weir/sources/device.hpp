#pragma once
// Source: device memory by cudaMalloc and cudaFree.

#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/sources/immediate_source.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <string>

namespace weir {
namespace detail {

struct device_memory {
  static constexpr char const* name = "device";
  static constexpr char const* give_call = "cudaFree";
  static constexpr bool host_accessible = false;
  static constexpr bool is_of_device_alone = true;

  static void require(int) {}  // every CUDA device has this
  static void* take(std::size_t bytes) { return try_malloc(bytes); }
  static cudaError_t give(void* p) {
    return relaxed([p] { return cudaFree(p); });
  }
  static std::string state(int device, std::size_t held) { return device_state(device, held); }
  static constexpr char const* hint = device_is_full;
};

}  // namespace detail

namespace detail {

/// Lets every other device that can do so use what `cudaMalloc` gives on `device`, now and later. Throws `cuda_error`.
inline void enable_peers(int device) {
  for_each_peer(device, [device](int other) {
    device_guard const on_device(other);
    cudaError_t const code = relaxed([device] { return cudaDeviceEnablePeerAccess(device, 0); });
    if (code != cudaErrorPeerAccessAlreadyEnabled) check(code, "cudaDeviceEnablePeerAccess");
    succeeded(code);
  });
}

}  // namespace detail

/// Gives device memory by `cudaMalloc`, ready for every stream; frees it by `cudaFree` once the stream's work is done.
/// Thread-safe. Alignment: 256 B or as asked, up to 2 MiB.
using device_resource = detail::immediate_source<detail::device_memory>;

/// Device memory by `cudaMalloc`: for segments of a pool, for devices without memory pools, for memory that is
/// exported. When not to use it: bare, for frequent allocations. Each costs microseconds to milliseconds, and
/// `deallocate` on a stream blocks the host until that stream is idle; put a `pool` on it, or use `async`.
struct device {
  int device = -1;  ///< which device; -1: the one current at `make`
  /// Every device that can reach this one's memory may use it as well: all that `cudaMalloc` gives there, for the whole
  /// process and for good, since that is how CUDA has it. Sets up those devices at `make`.
  bool peers = false;

  static constexpr char const* layer_name = "device";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<weir::device>());
    f(option::flag("peers", "peers", &weir::device::peers));
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
  device_resource operator()() const {
    int const chosen = detail::chosen_device(layer_name, detail::require_valid(*this).device);
    if (peers) detail::enable_peers(chosen);
    return device_resource(chosen);
  }
};

}  // namespace weir
