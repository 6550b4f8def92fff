#pragma once
// What happened to the memory of a program, as a value: recorded by `trace`, or read from a file.

#include <weir/core/shown_events.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir {

/// One thing that happened. Numbers of names are places in the lists of its `recorded_trace`.
struct trace_event {
  std::uint64_t nanoseconds = 0;  ///< since the trace began
  std::uint64_t address = 0;      ///< 0 for `out_of_memory`; for `move` and `unspill`, where it went
  std::uint64_t bytes = 0;        ///< as the caller asked
  std::uint64_t stream = 0;       ///< CUDA's handle as a number; 0 in host order
  std::uint64_t thread = 0;       ///< the kernel's number
  std::uint32_t layer = 0;        ///< in `layers`
  std::uint32_t tag = 0;          ///< in `tags`; 0: none
  std::uint32_t call_stack = 0;   ///< in `call_stacks`; 0: not kept
  std::int32_t device = -1;       ///< -1: memory of no device
  trace_action action = trace_action::allocate;
  std::uint32_t report = 0;  ///< of a refusal, in `reports`; 0: not kept

  friend bool operator==(trace_event const&, trace_event const&) = default;
};

/// Events of one program, the oldest first: of all `trace` layers of a stack (`weir::trace_of`), or of a file
/// (`weir::read_trace`). A plain value. What was live when the trace began is freed without having been allocated.
struct recorded_trace {
  std::uint64_t began = 0;  ///< nanoseconds since 1970; 0 where nobody knows
  std::uint64_t lost = 0;   ///< events before the first one here, that the ring had no room for any more
  std::vector<trace_event> events = {};
  std::vector<std::string> layers = {};             ///< whose events: `trace`, or its name; no two alike
  std::vector<std::string> tags = {std::string()};  ///< as they were given; the first stands for none
  std::vector<std::vector<std::string>> call_stacks = {std::vector<std::string>()};  ///< innermost frame first
  std::vector<std::string> reports = {std::string()};  ///< what the errors of refusals said; the first stands for none
  /// Numbers of layers that stand below another one here, or below a pool: what they were refused was not refused to
  /// the program, or stands above, too. Empty also where nobody knows.
  std::vector<std::uint32_t> below = {};

  friend bool operator==(recorded_trace const&, recorded_trace const&) = default;
};

namespace detail {

/// Devices in files have numbers below this, which no machine comes near. PyTorch's file has a list for each number up
/// to the last.
inline constexpr std::int32_t most_devices = 4096;

/// For each layer of a trace, at least one, whether what it was refused was not refused to the program: it stands below
/// others, or, where nobody knows, saw segments come and go and no requests.
inline std::vector<bool> layers_below(recorded_trace const& trace) {
  std::size_t layers = std::max<std::size_t>(trace.layers.size(), 1);
  for (trace_event const& e : trace.events) layers = std::max<std::size_t>(layers, std::size_t{e.layer} + 1);
  std::vector<bool> below(layers), serves(layers);
  for (std::uint32_t const layer : trace.below)
    if (layer < layers) below[layer] = true;
  if (!trace.below.empty()) return below;
  for (trace_event const& e : trace.events) {
    if (is_of_segment(e.action)) below[e.layer] = true;
    if (e.action == trace_action::allocate || e.action == trace_action::free) serves[e.layer] = true;
  }
  for (std::size_t i = 0; i < layers; ++i) below[i] = below[i] && !serves[i];
  return below;
}

}  // namespace detail

/// The word for an action in files and tables: `out_of_memory`.
inline char const* name_of(trace_action action) noexcept {
  constexpr char const* names[trace_actions] = {"allocate", "free",  "out_of_memory", "grow",  "trim",
                                                "map",      "unmap", "move",          "spill", "unspill"};
  return names[static_cast<std::size_t>(action)];
}

}  // namespace weir
