#pragma once
// Source: page-locked host memory, which devices reach and copies run from at full speed.

#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/sources/immediate_source.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <string>

namespace weir {
namespace detail {

struct pinned_memory {
  static constexpr char const* name = "pinned";
  static constexpr char const* give_call = "cudaFreeHost";
  static constexpr bool host_accessible = true;
  static constexpr bool is_of_device_alone = false;

  static void require(int device) {
    require_ability(name, device, cudaDevAttrCanMapHostMemory,
                    "cannot reach host memory (cudaDevAttrCanMapHostMemory is 0); use host for the host alone");
  }
  static void* take(std::size_t bytes) { return try_malloc_host(bytes); }
  static cudaError_t give(void* p) {
    return relaxed([p] { return cudaFreeHost(p); });
  }
  static constexpr char const* hint =
      "the host has no more memory that may be locked: free something, or use weir::host";
  static std::string state(int, std::size_t) {
    return "page-locked host memory; the operating system sets how much there is";
  }
};

}  // namespace detail

/// Gives page-locked host memory by `cudaHostAlloc`, usable by every device; frees it once the stream's work is done.
/// Thread-safe. Alignment: 256 B or as asked, up to 2 MiB.
using pinned_resource = detail::immediate_source<detail::pinned_memory>;

/// Page-locked host memory: for asynchronous copies to and from devices, and small data that kernels read in place.
/// When not to use it: bare, for frequent allocations (locking pages costs from tens of microseconds up; put a `pool`
/// on it), or for a large part of the machine's memory, which the operating system then cannot page.
struct pinned {
  int device = -1;  ///< whose context locks the pages; -1: the device current at `make`

  static constexpr char const* layer_name = "pinned";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<weir::pinned>());
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
  pinned_resource operator()() const {
    return pinned_resource(detail::require_valid(*this).device);
  }
};

}  // namespace weir
