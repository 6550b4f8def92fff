#pragma once
// What memory a stack holds at one moment, piece by piece, as a value.

#include <weir/core/shown_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir {

/// A piece of a segment.
struct memory_block {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;  ///< of a live one: bytes as the caller asked, at most `bytes`; else 0
  std::uint64_t stream = 0;     ///< live: allocated on; pending: freed on; CUDA's handle as a number. 0: not known
  std::uint64_t thread = 0;     ///< of a live one: which allocated it; 0: not known
  memory_state state = memory_state::free;
  std::string tag = {};  ///< of a live one, as it was given; empty: none, or not known

  friend bool operator==(memory_block const&, memory_block const&) = default;
};

/// Memory in one piece that a layer holds and hands out from. Its blocks follow each other without a gap.
struct memory_segment {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;   ///< of a growable range: up to the end of what has memory, `unmapped` blocks included
  std::int32_t device = -1;  ///< -1: memory of no device
  bool is_range = false;     ///< a growable range of addresses: it may have `unmapped` blocks
  std::string layer = {};    ///< who holds it: `pool`, or `search: pool`
  std::vector<memory_block> blocks = {};

  friend bool operator==(memory_segment const&, memory_segment const&) = default;
};

/// The segments of all layers of a stack that keep memory (`weir::snapshot`), or of a file. A plain value. Each segment
/// is of one moment; all of them are not where several layers or arenas hold memory. A layer's segments can lie in a
/// block of a layer below, which is shown too.
struct memory_snapshot {
  std::uint64_t taken = 0;                    ///< nanoseconds since 1970
  std::vector<memory_segment> segments = {};  ///< of the outermost layer first; of each layer by rising address

  friend bool operator==(memory_snapshot const&, memory_snapshot const&) = default;
};

/// The word for a state in files and tables: `pending`.
inline char const* name_of(memory_state state) noexcept {
  constexpr char const* names[] = {"live", "free", "pending", "captured", "unmapped"};
  return names[static_cast<std::size_t>(state)];
}

}  // namespace weir
