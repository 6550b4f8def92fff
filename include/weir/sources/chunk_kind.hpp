#pragma once
// Which memory a source of virtual memory asks the driver for, and which devices may use it.

#include <weir/cuda/driver.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace weir::detail {

inline CUmemLocation physical_location(int device) noexcept {
  CUmemLocation place{};
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  place.id = device;
  return place;
}

/// What the driver is asked for, once it is known to give it. Throws `std::invalid_argument` if it does not, or maps
/// only multiples of something that `chunk_bytes` is none of.
inline CUmemAllocationProp chunk_kind(int device, memory_handle handle_type, std::size_t chunk_bytes) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = physical_location(device);
  if (handle_type == memory_handle::posix_fd) {
    require_driver_ability(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                           "exports no memory by file descriptors; leave handle_type at none");
    kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  std::size_t const granularity = granularity_of(device, kind);
  if (chunk_bytes % granularity != 0)
    throw std::invalid_argument("weir: virtual_memory: chunk_bytes is " + std::to_string(chunk_bytes) + "; device " +
                                std::to_string(device) + " maps multiples of " + std::to_string(granularity));
  return kind;
}

/// Who may read and write chunks of a device: that, and with `peers` every device that can reach it.
inline std::vector<CUmemAccessDesc> chunk_users(int device, bool peers) {
  std::vector<CUmemAccessDesc> found{{physical_location(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  auto const let_in = [&](int peer) { found.push_back({physical_location(peer), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}); };
  if (peers) for_each_peer(device, let_in);
  return found;
}

}  // namespace weir::detail
