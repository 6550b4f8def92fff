#pragma once
// The numbers of a stack as a table for people.

#include <weir/core/bytes.hpp>
#include <weir/tools/stack_summary.hpp>
#include <weir/tools/text_formats.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace weir {
namespace detail {

inline std::string table_row(std::string const& title, std::string const& now = {}, std::string const& peak = {},
                             std::string const& total = {}) {
  std::string row = "| " + detail::table_cell(title, 33) + " |";
  for (std::string const* const text : {&now, &peak, &total})
    row += (text->size() < 11 ? std::string(12 - text->size(), ' ') : " ") + *text + " |";
  return row + "\n";
}
inline std::string number_text(std::optional<std::uint64_t> const& number, bool is_bytes) {
  if (!number) return {};
  if (is_bytes) return format_bytes(static_cast<std::size_t>(*number));
  if (*number < 100'000'000'000) return std::to_string(*number);
  char text[16];
  std::snprintf(text, sizeof text, "%.3e", static_cast<double>(*number));
  return text;
}

inline std::string tags_text(std::vector<layer_numbers> const& tags, std::string const& indent) {
  constexpr std::size_t most = 20;
  std::string text = tags.empty() ? std::string() : detail::table_row(indent + "Requested by tag");
  for (std::size_t i = 0; i < tags.size() && i < most; ++i) {
    layer_numbers const& n = tags[i];
    text += detail::table_row(indent + "  " + (n.name.empty() ? "(untagged)" : n.name),
                              detail::number_text(n.requested, true), detail::number_text(n.requested_peak, true),
                              detail::number_text(n.requested_total, true));
  }
  if (tags.size() > most) text += detail::table_row(indent + "  and " + std::to_string(tags.size() - most) + " more");
  return text;
}

/// One of the numbers of each stream that has it.
inline std::string streams_text(std::vector<layer_numbers> const& streams, std::string const& indent, char const* title,
                                std::optional<std::size_t> layer_numbers::*number) {
  constexpr std::size_t most = 20;
  std::string text;
  std::size_t shown = 0;
  for (layer_numbers const& n : streams) {
    if (!(n.*number) || ++shown > most) continue;
    if (shown == 1) text = detail::table_row(indent + title);
    text += detail::table_row(indent + "  " + n.name, detail::number_text(n.*number, true));
  }
  if (shown > most) text += detail::table_row(indent + "  and " + std::to_string(shown - most) + " more");
  return text;
}

inline std::string layer_text(layer_summary const& layer) {
  layer_numbers const& n = layer.numbers;
  std::string indent(2 * std::size_t{n.depth < 5 ? n.depth : 5}, ' ');
  std::string text = detail::table_row(indent + (n.name.empty() ? "" : n.name + ": ") + n.layer);
  indent += "  ";
  for (quantity const& each : quantities) {
    auto const now = each.now(n), peak = each.peak(n), total = each.total(n);
    if (now || peak || total)
      text += detail::table_row(indent + each.title, detail::number_text(now, each.is_bytes),
                                detail::number_text(peak, each.is_bytes), detail::number_text(total, each.is_bytes));
  }
  if (auto const share = fragmentation(n)) {
    long const tenths = std::lround(*share * 1000);  // of a percent
    text += detail::table_row(indent + "Fragmentation",
                              std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %");
  }
  return text + detail::tags_text(layer.tags, indent) +
         detail::streams_text(layer.streams, indent, "Requested by stream", &layer_numbers::requested) +
         detail::streams_text(layer.streams, indent, "Pending by stream", &layer_numbers::pending);
}

}  // namespace detail

/// A table, at most 79 columns wide, ending in a newline. Of tags the 20 that hold most.
inline std::string summary_table(stack_summary const& stack) {
  std::string const on = stack.device < 0 ? "" : "device " + std::to_string(stack.device);
  std::string const title = "weir summary" + (stack.name.empty() ? "" : " of " + stack.name);
  std::string text = detail::table_cell(title, 78 - on.size()) + " " + on;
  text.resize(text.find_last_not_of(' ') + 1);
  text += "\n" + detail::table_row("Layer", "Current", "Peak", "Total");
  for (layer_summary const& layer : stack.layers) text += detail::layer_text(layer);
  return text;
}

}  // namespace weir
