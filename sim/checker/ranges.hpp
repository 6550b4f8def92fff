#pragma once
// Ranges of memory, internal: to look them up by address, and to write them in reports.

#include "checker/checker.hpp"

#include <cstdio>
#include <iterator>
#include <string>

namespace weir::sim::detail {

inline std::uintptr_t address_of(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }

inline std::string hex(std::uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

inline std::string range_text(std::uintptr_t begin, std::uintptr_t end) {
  return hex(begin) + " of " + std::to_string(end - begin) + " B";
}

// The region that holds `address`.
inline regions::iterator around(regions& all, std::uintptr_t address) {
  auto const after = all.upper_bound(address);
  if (after == all.begin()) return all.end();
  auto const found = std::prev(after);
  return address < found->second.end ? found : all.end();
}

// The first that overlaps [begin, end), in either map.
template <class Map>
typename Map::iterator overlapping(Map& all, std::uintptr_t begin, std::uintptr_t end) {
  auto found = all.upper_bound(begin);
  if (found != all.begin() && std::prev(found)->second.end > begin) --found;
  return found != all.end() && found->first < end ? found : all.end();
}

}  // namespace weir::sim::detail
