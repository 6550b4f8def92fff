#pragma once
// CUDA's own allocators through weir's bare sources.

#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>

#include <cstddef>

namespace bench {

template <class Source>
class bare {
 public:
  static constexpr bool streams = false, threads = false;
  static constexpr std::size_t most_live = 1000;
  void* allocate(std::size_t, std::size_t bytes) { return memory_.allocate(weir::stream_ref(), bytes); }
  void deallocate(std::size_t, void* p, std::size_t bytes) { memory_.deallocate(weir::stream_ref(), p, bytes); }

 private:
  weir::made_by<Source> memory_ = weir::make(Source{});
};
struct bare_async : bare<weir::async> {
  static constexpr char const* name = "bare async (cudaMallocAsync)";
};
struct bare_device : bare<weir::device> {
  static constexpr char const* name = "bare device (cudaMalloc)";
};

}  // namespace bench
