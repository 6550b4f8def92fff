#pragma once
// Memory pools, internal: what each holds and how it may be handed out again.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace weir::sim::detail {

inline constexpr int max_devices = 8;

/// Memory that is kept after its free has executed. Nobody may touch it meanwhile; `give_back` is called in the end.
struct kept_block {
  struct release {
    std::size_t bytes;
    void (*give_back)(void* p, std::size_t bytes);
    void operator()(void* p) const { give_back(p, bytes); }
  };
  std::unique_ptr<void, release> memory;
  std::uint64_t freed_on = 0;  // id of the stream
};

struct pool_state {
  int device = 0;
  bool is_default = false;
  bool destroyed = false;
  std::size_t max_bytes = 0;  // 0: no limit of its own
  std::array<int, 3> reuse{1, 1, 1};
  std::uint64_t release_threshold = 0;
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t used = 0, used_high = 0;
  std::array<cudaMemAccessFlags, max_devices> access{};
  // Blocks whose free is still queued, by stream id and size: the same stream may have them at once.
  std::multimap<std::pair<std::uint64_t, std::size_t>, std::uintptr_t> pending;
  std::vector<kept_block> kept;  // the latest last
  cudaMemPool_t handle = nullptr;

  explicit pool_state(int on_device) : device(on_device) {
    access[static_cast<std::size_t>(on_device)] = cudaMemAccessFlagsProtReadWrite;
  }

  /// Whether the pool may hand out freed memory in that way, one of the three `cudaMemPoolReuse...`.
  bool may_reuse(cudaMemPoolAttr way) const {
    return reuse[static_cast<std::size_t>(way - cudaMemPoolReuseFollowEventDependencies)] != 0;
  }
};

}  // namespace weir::sim::detail
