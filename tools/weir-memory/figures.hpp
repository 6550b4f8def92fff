#pragma once
// What a trace comes to, as text for people: one trace, or two beside each other.

#include <weir/core/bytes.hpp>
#include <weir/core/printable.hpp>
#include <weir/tools/memory_timeline.hpp>
#include <weir/tools/recorded_trace.hpp>
#include <weir/tools/text_formats.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weir::memory_tool {

/// Bytes and blocks of one tag at the peak.
struct holder {
  std::string tag;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
};

struct figures {
  std::size_t events = 0, tags = 0, streams = 0, threads = 0;
  std::uint64_t nanoseconds = 0;  ///< from the first event to the last
  std::uint64_t allocations = 0;  ///< and blocks that were there before
  std::uint64_t peak = 0;         ///< bytes live
  trace_moment peak_moment = 0;
  std::uint64_t peak_nanoseconds = 0;  ///< after the first event
  std::uint64_t at_end = 0;            ///< bytes live
  std::uint64_t blocks_at_end = 0;
  std::uint64_t largest = 0;         ///< bytes of the largest block
  std::uint64_t refused = 0;         ///< requests
  std::uint64_t lost = 0;            ///< events before the first
  std::vector<holder> holders = {};  ///< at the peak, the largest first
};

inline figures figures_of(recorded_trace const& trace) {
  memory_timeline const timeline = timeline_of(trace);
  figures f{.events = trace.events.size(), .lost = trace.lost};
  std::set<std::pair<std::int32_t, std::uint64_t>> streams;
  std::set<std::uint64_t> threads;
  std::vector<bool> const is_below = detail::layers_below(trace);
  for (trace_event const& e : trace.events) {
    if (!is_request(e.action)) continue;
    // Each device has default streams of its own, whose handles are the smallest numbers; others are one stream each.
    streams.emplace(e.stream <= 2 ? std::max(e.device, 0) : 0, e.stream);
    threads.insert(e.thread);
    f.refused += e.action == trace_action::out_of_memory && !is_below[e.layer];
  }
  f.streams = streams.size();
  f.threads = threads.size();
  auto const time_at = [&](trace_moment m) {
    return m == 0 || trace.events[m - 1].nanoseconds < trace.events[0].nanoseconds
               ? 0
               : trace.events[m - 1].nanoseconds - trace.events[0].nanoseconds;
  };
  auto const peak = peak_of(timeline);
  f.peak = peak.bytes;
  f.peak_moment = peak.moment;
  f.peak_nanoseconds = time_at(peak.moment);
  f.nanoseconds = time_at(timeline.moments);
  std::map<std::uint32_t, holder> by_tag;
  std::set<std::uint32_t> tags;
  for (block_life const& b : timeline.blocks) {
    ++f.allocations;
    f.largest = std::max(f.largest, b.bytes);
    if (b.tag != 0) tags.insert(b.tag);
    if (b.freed > timeline.moments) ++f.blocks_at_end, f.at_end += b.bytes;
    if (b.from > peak.moment || b.freed <= peak.moment) continue;
    holder& h = by_tag[b.tag];
    h.bytes += b.bytes;
    ++h.blocks;
  }
  f.tags = tags.size();
  for (auto& [tag, h] : by_tag) {
    h.tag = tag == 0 ? "(no tag)" : timeline.tags[tag];
    f.holders.push_back(h);
  }
  std::stable_sort(f.holders.begin(), f.holders.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return f;
}

inline std::string time_text(std::uint64_t nanoseconds) {
  char text[32];
  if (nanoseconds < 1'000'000)
    std::snprintf(text, sizeof text, "%.1f us", static_cast<double>(nanoseconds) / 1e3);
  else if (nanoseconds < 1'000'000'000)
    std::snprintf(text, sizeof text, "%.2f ms", static_cast<double>(nanoseconds) / 1e6);
  else
    std::snprintf(text, sizeof text, "%.3f s", static_cast<double>(nanoseconds) / 1e9);
  return text;
}

/// `1 block`, `2 blocks`.
inline std::string counted(std::uint64_t n, char const* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

inline std::string summary_text(std::string const& name, figures const& f, std::size_t most_holders = 12) {
  auto const n = [](std::uint64_t number) { return std::to_string(number); };
  auto const line = [](char const* what, std::string const& value) {
    return detail::table_cell(what, 20) + value + "\n";
  };
  auto const of = [](std::uint64_t bytes) { return format_bytes(bytes) + " (" + std::to_string(bytes) + " B)"; };
  std::string out = printable(name) + "\n";
  bool const has_times = f.nanoseconds != 0;  // some traces only know the order
  out += line("events", n(f.events) + (has_times ? " in " + time_text(f.nanoseconds) : "") + ", " +
                            counted(f.streams, "stream") + ", " + counted(f.threads, "thread") + ", " +
                            counted(f.tags, "tag"));
  if (f.lost != 0) out += line("lost", n(f.lost) + " events before those");
  out += line("peak in use", of(f.peak) + " at event " + n(f.peak_moment) +
                                 (has_times ? ", after " + time_text(f.peak_nanoseconds) : ""));
  out += line("in use at the end", of(f.at_end) + " in " + counted(f.blocks_at_end, "block"));
  out += line("allocations", n(f.allocations) + ", the largest of " + format_bytes(f.largest));
  out += line("out of memory", counted(f.refused, "time"));
  out += "who holds the peak\n";
  for (std::size_t i = 0; i < f.holders.size() && i < most_holders; ++i) {
    holder const& h = f.holders[i];
    char share[24];
    std::snprintf(share, sizeof share, "%5.1f %%  ", 100 * static_cast<double>(h.bytes) / static_cast<double>(f.peak));
    out += "  " + detail::table_cell(h.tag, 32) + "  " + detail::table_cell(format_bytes(h.bytes), 12) + share +
           counted(h.blocks, "block") + "\n";
  }
  if (f.holders.size() > most_holders) out += "  and " + n(f.holders.size() - most_holders) + " more\n";
  return out;
}

/// Two traces beside each other, and by how much the second differs.
inline std::string comparison_text(std::string const& name_a, figures const& a, std::string const& name_b,
                                   figures const& b) {
  auto const row = [](std::string const& what, std::string const& x, std::string const& y, std::string const& change) {
    return detail::table_cell(what, 30) + detail::table_cell(x, 16) + detail::table_cell(y, 16) + change + "\n";
  };
  auto const numbers = [&](std::string const& what, std::uint64_t x, std::uint64_t y, auto text) {
    std::string change = x == y ? "same" : (y > x ? "+" : "-") + text(y > x ? y - x : x - y);
    if (x != 0 && x != y) {
      char share[32];
      std::snprintf(share, sizeof share, " (%+.1f %%)",
                    100 * (static_cast<double>(y) - static_cast<double>(x)) / static_cast<double>(x));
      change += share;
    }
    return row(what, text(x), text(y), change);
  };
  auto const bytes = [](std::uint64_t n) { return format_bytes(n); };
  auto const count = [](std::uint64_t n) { return std::to_string(n); };
  std::string out = row("", name_a, name_b, "change");
  out += numbers("peak in use", a.peak, b.peak, bytes);
  out += numbers("in use at the end", a.at_end, b.at_end, bytes);
  out += numbers("allocations", a.allocations, b.allocations, count);
  out += numbers("largest", a.largest, b.largest, bytes);
  out += numbers("out of memory", a.refused, b.refused, count);
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> by_tag;
  for (holder const& h : a.holders) by_tag[h.tag].first = h.bytes;
  for (holder const& h : b.holders) by_tag[h.tag].second = h.bytes;
  out += "at the peak\n";
  for (auto const& [tag, held] : by_tag) out += numbers("  " + tag, held.first, held.second, bytes);
  return out;
}

}  // namespace weir::memory_tool
