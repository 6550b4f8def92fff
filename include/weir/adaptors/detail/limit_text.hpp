#pragma once
// What a limit says of itself: in reports, and where it refuses.

#include <weir/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::detail {

/// What is said of. Bytes.
struct limit_state {
  std::string const& label;   ///< its name and what it is
  std::size_t most = 0;       ///< the budget
  std::size_t held = 0;       ///< charged
  std::size_t in_graphs = 0;  ///< of that: freed, and kept for captured graphs
  std::size_t kept = 0;       ///< of that: freed, and kept for good
  std::size_t peak = 0;       ///< the most that was charged
  std::uint64_t refused = 0;  ///< requests
  std::size_t soft = 0;       ///< the soft limit; the most if there is none
  std::uint64_t crossed = 0;  ///< times
  std::size_t reserve = 0;    ///< that the limits below keep for it
  std::size_t reserve_left = 0;
  bool has_pool_below = false;  ///< or another layer that keeps what it takes of its upstream
};

/// For its line in a report.
inline std::string text_of(limit_state const& s) {
  std::string text =
      format_bytes(s.most) + ", " + format_bytes(s.held) + " charged" +
      (s.in_graphs == 0 ? "" : " (" + format_bytes(s.in_graphs) + " of it captured)") + ", " +
      (s.held > s.most ? format_bytes(s.held - s.most) + " too much" : format_bytes(s.most - s.held) + " left") +
      "; peak " + format_bytes(s.peak) + ", " + std::to_string(s.refused) + " refused";
  if (s.soft != ~std::size_t{0})
    text += "; went above " + format_bytes(s.soft) + " " + std::to_string(s.crossed) + " times";
  if (s.reserve != 0) text += "; " + format_bytes(s.reserve_left) + " left of a reserve of " + format_bytes(s.reserve);
  if (s.kept != 0) text += "; " + format_bytes(s.kept) + " were kept for good";
  return text;
}

/// Why a request that would be charged with `charge`, 0 where that is more than any, has no room, and what to do.
inline std::string refusal_hint(limit_state const& s, std::size_t charge) {
  std::size_t const others = s.in_graphs < s.held ? s.held - s.in_graphs : 0;
  if (charge == 0 || charge > s.most)
    return "the request is larger than the whole budget of " + s.label + " (" + format_bytes(s.most) +
           "): ask for less at a time (with_retry), or raise it (set_max_bytes)";
  if (others + charge <= s.most)
    return "the budget of " + s.label + " is held by captured graphs: weir::release_captured when they are gone";
  if (others - (s.kept < others ? s.kept : others) + charge <= s.most)
    return "the budget of " + s.label + " is held by what was kept for good, " +
           (s.has_pool_below ? "where a free could not be finished: raise it (set_max_bytes), or make the stack anew"
                             : "as sources keep what is freed in a capture: put a pool below it");
  return "the budget of " + s.label + " is used up: free something, or raise it (set_max_bytes)";
}
/// The same for the reserve of `above`, a limit above.
inline std::string reserve_hint(limit_state const& s, char const* above) {
  return std::string("this is the reserve_bytes of ") + above + ", and the budget of " + s.label + " has " +
         format_bytes(s.held < s.most ? s.most - s.held : 0) +
         " left: reserve less, free something, or raise it (set_max_bytes)";
}

/// Why there can be no reserve: `between` names the layer that keeps requests from the limit below; empty: there is
/// none.
inline std::string no_reserve_text(std::size_t bytes, std::string const& between) {
  return "weir: limit: reserve_bytes is " + std::to_string(bytes) + "; it is taken from a limit below, and " +
         (between.empty() ? "there is none before the first pool, scrub or source"
                          : "'" + between + "' stands between: not all requests arrive there as they are sent; put a " +
                                "limit on '" + between + "' for it to be taken from, or this one below");
}
/// A budget of `bytes` is less than `least`: what that is.
inline std::string small_budget_text(std::string const& label, std::size_t bytes, std::size_t least, char const* what) {
  return "weir: " + label + ": a budget of " + std::to_string(bytes) + " B; it must be at least " +
         std::to_string(least) + " B, which is " + what;
}
inline std::string granularity_text(std::string const& label, std::size_t own, std::size_t above) {
  return "weir: " + label + ": a limit above with reserve_bytes has a granularity of " + std::to_string(above) +
         " B, this one of " + std::to_string(own) + " B; they must be the same";
}

}  // namespace weir::detail
