#pragma once
// What was advised about managed memory and where it was prefetched to, internal. Nothing else depends on it.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <iterator>
#include <map>

namespace weir::sim::detail {

/// The hints of one byte. Devices by their numbers, the host as `cudaCpuDeviceId`.
struct managed_hint {
  bool read_mostly = false;
  int preferred = cudaInvalidDeviceId;
  unsigned accessed_by = 0;  // a bit for each device, the lowest for the host
  int last_prefetch = cudaInvalidDeviceId;

  static unsigned bit_of(int device) { return 1U << (device - cudaCpuDeviceId); }
};

/// The hints of an allocation's addresses.
class managed_hints {
 public:
  /// Calls `change(hint)` for all of [first, last).
  template <class Change>
  void change(std::uintptr_t first, std::uintptr_t last, Change change) {
    cut(first);
    cut(last);
    for (auto at = pieces_.find(first); at != pieces_.end() && at->first < last; ++at) change(at->second);
  }
  /// Whether `holds(hint)` for all of [first, last).
  template <class Holds>
  bool all_of(std::uintptr_t first, std::uintptr_t last, Holds holds) {
    bool all = true;
    change(first, last, [&](managed_hint const& hint) { all = all && holds(hint); });
    return all;
  }

 private:
  /// A piece begins at `address`, with the hints that the address has.
  void cut(std::uintptr_t address) {
    auto const after = pieces_.upper_bound(address);
    pieces_.emplace(address, after == pieces_.begin() ? managed_hint{} : std::prev(after)->second);
  }

  std::map<std::uintptr_t, managed_hint> pieces_;  // each ends where the next one begins
};

}  // namespace weir::sim::detail
