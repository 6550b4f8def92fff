#pragma once
// Virtual memory, internal: reserved addresses, physical memory, and the views of it that lie at such addresses.

#include "model/handle_table.hpp"
#include "model/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace weir::sim::detail {

/// All sizes and addresses are multiples of this, as on today's GPUs.
inline constexpr std::size_t granularity = std::size_t{2} << 20;

using physical_handle = struct physical_handle_of*;  // opaque

/// Memory of a device that has no address of its own. It is there while a handle or a view of it is.
struct physical_memory {
  physical_handle handle = nullptr;
  std::uint64_t number = 0;  // of this memory alone; handles are used again
  int device = 0;
  std::size_t bytes = 0;
  std::size_t place = 0;    // among the host's pages
  std::size_t handles = 1;  // created or retained, and not released
  std::size_t views = 0;
  int handle_types = 0;  // in which programs may want to share it
};

struct virtual_memory_state {
  bool supported = true;
  std::map<std::uintptr_t, std::size_t> reserved;  // bytes of each range of addresses
  std::map<std::uintptr_t, allocation> views;      // by address
  handle_table<physical_handle, std::shared_ptr<physical_memory>, 0x5600'0000'0000> physical;
  std::uint64_t physical_count = 0;

  /// Whether all these addresses lie in one range that was reserved.
  bool is_reserved(std::uintptr_t at, std::size_t bytes = 1) const;
};

}  // namespace weir::sim::detail
