#include "model/virtual_memory.hpp"

#include <iterator>

namespace weir::sim::detail {

bool virtual_memory_state::is_reserved(std::uintptr_t at, std::size_t bytes) const {
  auto const after = reserved.upper_bound(at);
  if (after == reserved.begin()) return false;
  auto const& [begin, size] = *std::prev(after);
  return at - begin < size && bytes <= size - (at - begin);
}

}  // namespace weir::sim::detail
