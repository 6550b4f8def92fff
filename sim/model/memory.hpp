#pragma once
// Allocations of every kind, internal.

#include "model/managed_hints.hpp"
#include "model/pool.hpp"
#include "model/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weir::sim::detail {

enum class memory_kind { device, async, managed, pinned, mapped };

struct physical_memory;

struct allocation {
  using device_set = std::array<bool, max_devices>;

  std::size_t bytes = 0;
  memory_kind kind = memory_kind::device;
  int device = 0;
  unsigned flags = 0;                // of pinned memory, as asked for
  std::shared_ptr<pool_state> pool;  // of stream-ordered memory
  bool freeing = false;              // the free was called; the memory goes when it executes
  bool kept_for_graph = false;       // the free executed, and the next launch of its graph needs the memory
  point freed_at;                    // the place of the free, for stream-ordered memory
  std::uint64_t free_number = 0;     // of its free: another allocation may take the block over before that executes
  std::uint64_t block = 0;           // the number of the block; blocks and frees are numbered together
  std::uint64_t graph = 0;     // of an allocation node: the capture's id; the address is the graph's until it is gone
  bool left_by_graph = false;  // no node of that graph frees it: one of another graph may, and the program

  std::shared_ptr<physical_memory> physical;  // of a view: what it is mapped to
  device_set open_to{};                       // of a view: the devices that have access

  managed_hints hints;  // of managed memory

  std::vector<std::shared_ptr<pool_state>> imported_by;  // one for each import that has not been freed

  bool managed() const { return kind == memory_kind::managed || (pool != nullptr && pool->home.managed); }
  bool on_host() const {
    return kind == memory_kind::pinned || managed() || (pool != nullptr && !pool->home.on_device());
  }
};

}  // namespace weir::sim::detail
