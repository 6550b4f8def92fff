#pragma once
// What layers show of the memory that they hold, piece by piece.

#include <weir/version.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {

/// What a piece of a segment is just now. `pending`: freed on a stream whose work is not known to be done. `captured`:
/// free, but kept for a graph. `unmapped`: addresses of a growable range without memory behind them.
enum class memory_state : std::uint8_t { live, free, pending, captured, unmapped };

namespace detail {

/// A piece of memory that a layer hands out from, as it shows it.
struct shown_block {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;  ///< of a live one: as the caller asked
  std::uint64_t stream = 0;   ///< of a pending one: where it was freed last, where that is one stream
  memory_state state = memory_state::free;
  bool begins_segment = false;  ///< else it follows the one shown before it, without a gap
  bool in_range = false;        ///< the segment is a growable range of addresses
};

struct shown_holder;  // in shown_events.hpp

/// What a layer shows its memory to.
class memory_visitor {
 public:
  /// All pieces of a segment one after the other, from its first address to its last.
  virtual void see(shown_block const& piece) = 0;
  virtual void see(shown_holder const& holder) = 0;

 protected:
  ~memory_visitor() = default;
};

}  // namespace detail
}  // namespace weir
