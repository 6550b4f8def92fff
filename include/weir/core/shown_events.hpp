#pragma once
// What layers show of what passed them: who holds a block, and what they recorded.

#include <weir/core/tag.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/tick_clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

/// What happened. `grow` and `trim`: a layer that keeps memory took it from the layer below, or gave it back. `map` and
/// `unmap`: the same of memory behind addresses that it has already. `move`: a pool took idle chunks elsewhere instead
/// of more memory. `spill` and `unspill`: the contents of a `spillable` went to the host, and came back.
enum class trace_action : std::uint8_t { allocate, free, out_of_memory, grow, trim, map, unmap, move, spill, unspill };
inline constexpr unsigned trace_actions = 10;  ///< how many there are

/// Of a block that somebody asks for.
constexpr bool is_request(trace_action action) noexcept { return action <= trace_action::out_of_memory; }
/// Of the memory that blocks lie in.
constexpr bool is_of_segment(trace_action action) noexcept {
  return action >= trace_action::grow && action <= trace_action::unmap;
}

namespace detail {

/// A stream as a number: CUDA's handle; 0 in host order.
inline std::uint64_t stream_number(stream_ref stream) noexcept {
  return stream.is_host_order() ? 0 : reinterpret_cast<std::uintptr_t>(stream.get());
}

/// Who holds a live block.
struct shown_holder {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;  ///< as the caller asked
  tag_name tag = {};
  std::uint64_t stream = 0;  ///< that it was allocated on
  std::uint64_t thread = 0;
};

/// Something that a layer saw happen.
struct shown_event {
  std::uint64_t ticks = 0;     ///< see `tick_moment`
  std::uintptr_t address = 0;  ///< 0 where memory was refused
  std::size_t bytes = 0;       ///< as the caller asked
  std::uint64_t stream = 0;
  tag_name tag = {};  ///< of the thread, when it happened
  std::uint32_t thread = 0;
  std::uint32_t call_stack = 0;  ///< 0: not kept
  std::uint32_t report = 0;      ///< of a refusal: the number of its report; 0: not kept
  trace_action action = trace_action::allocate;
};

/// What a layer shows its events to.
class event_visitor {
 public:
  /// Before all events: when the layer was made, and how many events it has forgotten.
  virtual void see_begin(tick_moment const& made, std::uint64_t forgotten) = 0;
  /// Oldest first.
  virtual void see(shown_event const& event) = 0;
  /// After all events: the frames of a call stack, the innermost first, one by one. `call_stack` is not 0.
  virtual void see_frame(std::uint32_t call_stack, char const* frame) = 0;
  /// After all events: the report of a refusal, if it is kept still.
  virtual void see_report(std::uint32_t report, std::string const& text) = 0;

 protected:
  ~event_visitor() = default;
};

}  // namespace detail
}  // namespace weir
