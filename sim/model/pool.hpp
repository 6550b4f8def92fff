#pragma once
// Memory pools, internal: what each holds and how it may be handed out again.

#include <cuda_runtime_api.h>

#include <array>
#include <compare>
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

/// A free that is queued: of how many bytes, and its place in the work of its stream, which goes by its id.
struct pending_free {
  std::size_t bytes = 0;
  std::uint64_t stream = 0, sequence = 0;
  friend auto operator<=>(pending_free const&, pending_free const&) = default;  // NOLINT(modernize-use-nullptr)
};

/// What memory a pool gives: pinned or managed, and where it lies, or prefers to lie.
struct pool_home {
  bool managed = false;
  cudaMemLocationType type = cudaMemLocationTypeDevice;
  int id = 0;  // of a device or NUMA node; 0 where the type needs none

  bool on_device() const { return !managed && type == cudaMemLocationTypeDevice; }
  friend auto operator<=>(pool_home const&, pool_home const&) = default;  // NOLINT(modernize-use-nullptr)
};

struct pool_state {
  pool_home home;
  int device = 0;  // that live bytes are counted for
  bool is_default = false;
  bool destroyed = false;
  std::size_t max_bytes = 0;  // 0: no limit of its own
  std::array<int, 3> reuse{1, 1, 1};
  std::uint64_t release_threshold = 0;
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t used = 0, used_high = 0;
  std::array<cudaMemAccessFlags, max_devices> access{};
  std::map<pending_free, std::uintptr_t>
      pending;                   // blocks whose free is still queued: its stream may have them at once
  std::vector<kept_block> kept;  // the latest last
  cudaMemPool_t handle = nullptr;
  unsigned handle_types = 0;             // by which it may be exported
  std::uint64_t exports_as = 0;          // the number in its exported handle; 0: never exported
  std::shared_ptr<pool_state> exporter;  // of an imported pool, which allocates nothing itself

  explicit pool_state(pool_home where) : home(where), device(where.type == cudaMemLocationTypeDevice ? where.id : 0) {
    if (home.managed)
      access.fill(cudaMemAccessFlagsProtReadWrite);
    else if (home.on_device())
      access[static_cast<std::size_t>(device)] = cudaMemAccessFlagsProtReadWrite;
  }

  /// Whether it gives memory back to the system: as yet, drivers give back none of pools for other processes.
  bool gives_back() const { return destroyed || handle_types == 0; }

  /// Whether the pool may hand out freed memory in that way, one of the three `cudaMemPoolReuse...`.
  bool may_reuse(cudaMemPoolAttr way) const {
    return reuse[static_cast<std::size_t>(way - cudaMemPoolReuseFollowEventDependencies)] != 0;
  }
};

}  // namespace weir::sim::detail
