#pragma once
// What layers show of memory: the blocks that they hold now, who asked for them, and what they saw happen.

#include <weir/core/tag.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstdint>

namespace weir {

/// What a piece of a segment is just now. `pending`: freed on a stream whose work is not known to be done. `captured`:
/// free, but kept for a graph. `unmapped`: addresses of a growable range without memory behind them.
enum class memory_state : std::uint8_t { live, free, pending, captured, unmapped };

/// What happened. `grow` and `trim`: a layer that keeps memory took it from the layer below, or gave it back. `map` and
/// `unmap`: the same of memory behind addresses that the layer has already.
enum class trace_action : std::uint8_t { allocate, free, out_of_memory, grow, trim, map, unmap };

namespace detail {

/// A piece of memory that a layer hands out from, as it shows it.
struct shown_block {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;  ///< of a live one: as the caller asked
  stream_ref stream = {};     ///< of a pending one: where it was freed last, where that is one stream
  memory_state state = memory_state::free;
  bool begins_segment = false;  ///< else it follows the one shown before it, without a gap
  bool in_range = false;        ///< the segment is a growable range of addresses
};

/// Who holds a live block, as a layer shows it that knows.
struct shown_holder {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;  ///< as the caller asked
  tag_name tag = {};
  stream_ref stream = {};  ///< that it was allocated on
  std::uint64_t thread = 0;
};

/// Something that a layer saw happen.
struct shown_event {
  std::uint64_t nanoseconds = 0;  ///< since 1970
  std::uintptr_t address = 0;     ///< 0 where memory was refused
  std::size_t bytes = 0;          ///< as the caller asked
  stream_ref stream = {};
  tag_name tag = {};  ///< of the thread, when it happened
  std::uint64_t thread = 0;
  std::uint32_t call_stack = 0;  ///< 0: not kept
  trace_action action = trace_action::allocate;
};

/// What a layer shows its memory to.
class memory_visitor {
 public:
  /// All pieces of a segment one after the other, from its first address to its last.
  virtual void see(shown_block const& piece) = 0;
  virtual void see(shown_holder const& holder) = 0;

 protected:
  ~memory_visitor() = default;
};

/// What a layer shows its events to, oldest first.
class event_visitor {
 public:
  virtual void see(shown_event const& event) = 0;
  /// Before those events: how many more there were.
  virtual void see_lost(std::uint64_t events) = 0;
  /// The frames of a call stack, the innermost first, each shown by itself; `call_stack` is not 0.
  virtual void see_frame(std::uint32_t call_stack, char const* frame) = 0;

 protected:
  ~event_visitor() = default;
};

}  // namespace detail
}  // namespace weir
