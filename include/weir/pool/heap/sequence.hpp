#pragma once
// The numbers by which a pool tells free lists, and the order of frees, apart.

#include <weir/version.hpp>

#include <cstdint>

namespace weir::detail {

/// A list of free blocks: what one stream freed, or one stream in one capture. `shared` has what is done: it is
/// everyone's, and no stream's.
enum class list_id : std::uint16_t {};
inline constexpr list_id shared{};

/// When a block was freed. Rises over all lists of a pool; `none` comes before every free.
enum class sequence_number : std::uint64_t { none };

constexpr sequence_number next(sequence_number s) noexcept {
  return sequence_number{static_cast<std::uint64_t>(s) + 1};
}

}  // namespace weir::detail
