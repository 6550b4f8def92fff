#pragma once
// A trace and a snapshot as text: RMM's CSV, and JSON.

#include <weir/core/printable.hpp>
#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/recorded_trace.hpp>
#include <weir/tools/summary_json.hpp>
#include <weir/tools/text_formats.hpp>

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace weir {
namespace detail {

inline constexpr std::string_view log_header = "Thread,Time,Action,Pointer,Size,Stream,Tag\n";

/// Local time, as RMM writes it: `14:02:31.004711`.
inline std::string clock_text(std::uint64_t since_1970) {
  auto const seconds = static_cast<::time_t>(since_1970 / 1'000'000'000);
  ::tm local{};
  ::localtime_r(&seconds, &local);
  char text[40];
  std::snprintf(text, sizeof text, "%02d:%02d:%02d.%06d", local.tm_hour, local.tm_min, local.tm_sec,
                static_cast<int>(since_1970 / 1000 % 1'000'000));
  return text;
}
/// As `logging` does: 0 is the default stream, 0x0 none.
inline std::string log_stream(std::uint64_t stream) {
  return stream == reinterpret_cast<std::uintptr_t>(cudaStreamLegacy) ? "0" : detail::hex_text(stream);
}

inline std::string json_event(recorded_trace const& trace, trace_event const& e) {
  std::string text = "{";
  text += detail::json_member("ns", std::to_string(e.nanoseconds)) +
          detail::json_member("action", detail::json_string(name_of(e.action))) +
          detail::json_member("layer", detail::json_string(trace.layers[e.layer])) +
          detail::json_member("device", detail::json_device(e.device)) +
          detail::json_member("address", detail::json_string(detail::hex_text(e.address))) +
          detail::json_member("bytes", std::to_string(e.bytes)) +
          detail::json_member("stream", detail::json_string(detail::hex_text(e.stream))) +
          detail::json_member("thread", std::to_string(e.thread));
  if (e.tag != 0) text += detail::json_member("tag", detail::json_string(trace.tags[e.tag]));
  if (e.report != 0) text += detail::json_member("report", detail::json_string(trace.reports[e.report]));
  if (e.call_stack != 0) {
    text += "\"frames\":[";
    for (std::string const& frame : trace.call_stacks[e.call_stack]) text += detail::json_string(frame) + ",";
    text.back() = ']';
    text += ',';
  }
  text.back() = '}';
  return text + "\n";
}

inline std::string json_block(memory_block const& b) {
  std::string text = "{";
  text += detail::json_member("address", detail::json_string(detail::hex_text(b.address))) +
          detail::json_member("bytes", std::to_string(b.bytes)) +
          detail::json_member("state", detail::json_string(name_of(b.state)));
  if (b.requested != 0) text += detail::json_member("requested", std::to_string(b.requested));
  if (b.stream != 0) text += detail::json_member("stream", detail::json_string(detail::hex_text(b.stream)));
  if (b.thread != 0) text += detail::json_member("thread", std::to_string(b.thread));
  if (!b.tag.empty()) text += detail::json_member("tag", detail::json_string(b.tag));
  return text;
}
inline std::string json_segment(memory_segment const& s) {
  std::string text = "{";
  text += detail::json_member("address", detail::json_string(detail::hex_text(s.address))) +
          detail::json_member("bytes", std::to_string(s.bytes)) +
          detail::json_member("device", detail::json_device(s.device)) +
          detail::json_member("is_range", s.is_range ? "true" : "false") +
          detail::json_member("layer", detail::json_string(s.layer)) +
          detail::json_member("blocks", detail::json_array(s.blocks, json_block));
  return text;
}

inline std::string json_names(std::vector<std::string> const& names) {
  std::string text = "[";
  for (std::string const& name : names) (text += text.size() == 1 ? "" : ",") += json_string(name);
  return text + "]";
}

}  // namespace detail

/// A trace in RMM's log format, `Thread,Time,Action,Pointer,Size,Stream`, with a last column `Tag`, as `logging` writes
/// it: the requests at the outermost layer that recorded some. Times are local.
inline std::string trace_csv(recorded_trace const& trace) {
  std::uint32_t outermost = ~std::uint32_t{0};
  for (trace_event const& e : trace.events)
    if (is_request(e.action)) outermost = std::min(outermost, e.layer);
  std::string text(detail::log_header);
  for (trace_event const& e : trace.events) {
    if (!is_request(e.action) || e.layer != outermost) continue;
    text += std::to_string(e.thread) + "," + detail::clock_text(trace.began + e.nanoseconds) + "," +
            (e.action == trace_action::out_of_memory ? "allocate failure" : name_of(e.action)) + "," +
            detail::hex_text(e.address) + "," + std::to_string(e.bytes) + "," + detail::log_stream(e.stream) + "," +
            csv_field(trace.tags[e.tag]) + "\n";
  }
  return text;
}

/// A trace as JSON lines: a first line about the trace and its layers, outermost first, then one object for each event.
/// Addresses and streams are texts in hexadecimal digits, since JavaScript's numbers are too short for them; `ns`
/// counts from `began`. `read_trace` reads it back. Valid whatever the bytes of names and tags: what is no UTF-8 in
/// them becomes U+FFFD.
inline std::string trace_json_lines(recorded_trace const& trace) {
  std::vector<std::string> below;
  for (std::uint32_t const layer : trace.below)
    if (layer < trace.layers.size()) below.push_back(trace.layers[layer]);
  std::string text = "{\"weir_trace\":1," + detail::json_member("began", std::to_string(trace.began)) +
                     detail::json_member("lost", std::to_string(trace.lost)) +
                     "\"layers\":" + detail::json_names(trace.layers);
  if (!below.empty()) text += ",\"below\":" + detail::json_names(below);
  text += "}\n";
  for (trace_event const& e : trace.events) text += detail::json_event(trace, e);
  return text;
}

/// A snapshot as one JSON object in one line, without a newline at its end; written as `trace_json_lines` does.
inline std::string snapshot_json(memory_snapshot const& snapshot) {
  return "{\"weir_snapshot\":1," + detail::json_member("taken", std::to_string(snapshot.taken)) +
         "\"segments\":" + detail::json_array(snapshot.segments, detail::json_segment) + "}";
}

}  // namespace weir
