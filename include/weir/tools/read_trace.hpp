#pragma once
// Reads a trace from any of the formats that it is written in.

#include <weir/tools/json_reader.hpp>
#include <weir/tools/log_reader.hpp>
#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/pickle_reader.hpp>
#include <weir/tools/recorded_trace.hpp>
#include <weir/tools/torch_history.hpp>
#include <weir/tools/torch_segments.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weir {

/// What a file tells of memory: what happened, and what was there at the end.
struct recorded_memory {
  recorded_trace trace = {};
  memory_snapshot snapshot = {};  ///< empty where the file does not say: only PyTorch's snapshots do
};

namespace detail {

/// Gives names their numbers in a trace that is being read.
class trace_names {
 public:
  explicit trace_names(recorded_trace& trace) : trace_(trace) {}

  std::uint32_t tag(std::string const& name) { return name.empty() ? 0 : number(tags_, trace_.tags, name); }
  std::uint32_t layer(std::string const& name) { return number(layers_, trace_.layers, name); }
  std::uint32_t call_stack(std::vector<std::string> const& frames) {
    return frames.empty() ? 0 : number(call_stacks_, trace_.call_stacks, frames);
  }
  std::uint32_t report(std::string const& text) { return text.empty() ? 0 : number(reports_, trace_.reports, text); }

 private:
  template <class Name>
  static std::uint32_t number(std::map<Name, std::uint32_t>& known, std::vector<Name>& names, Name const& name) {
    auto const [found, is_new] = known.try_emplace(name, static_cast<std::uint32_t>(names.size()));
    if (is_new) names.push_back(name);
    return found->second;
  }

  recorded_trace& trace_;
  std::map<std::string, std::uint32_t> tags_, layers_, reports_;
  std::map<std::vector<std::string>, std::uint32_t> call_stacks_;
};

/// `14:02:31.004711` as nanoseconds of the day; none for another text.
inline std::optional<std::uint64_t> time_of_day(std::string_view text) {
  std::uint64_t parts[4] = {};  // hours, minutes, seconds, microseconds
  char const* at = text.data();
  char const* const end = at + text.size();
  for (std::size_t i = 0; i < 4; ++i) {
    auto const read = std::from_chars(at, end, parts[i]);
    if (read.ec != std::errc() || (i < 3 && (read.ptr == end || *read.ptr != (i < 2 ? ':' : '.')))) return std::nullopt;
    at = i < 3 ? read.ptr + 1 : read.ptr;
  }
  if (at != end || parts[0] > 24 || parts[1] > 60 || parts[2] > 60 || parts[3] > 999'999) return std::nullopt;
  return (((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1'000'000 + parts[3]) * 1000;
}

/// Times in a log have no date: what is earlier by more than an hour is the next day.
class log_clock {
 public:
  std::uint64_t since_begin(std::string_view text) {
    constexpr std::uint64_t hour = std::uint64_t{3600} * 1'000'000'000;
    std::uint64_t const now = detail::time_of_day(text).value_or(latest_ % (24 * hour));
    if (!began_) began_ = latest_ = now;
    std::uint64_t at = latest_ / (24 * hour) * (24 * hour) + now;
    if (at + hour < latest_) at += 24 * hour;
    if (at > latest_) latest_ = at;
    return latest_ - *began_;
  }

 private:
  std::optional<std::uint64_t> began_;
  std::uint64_t latest_ = 0;
};

inline std::uint64_t stream_of_log(std::string_view text) {
  if (text == "0") return reinterpret_cast<std::uintptr_t>(cudaStreamLegacy);
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t handle = 0;
  std::from_chars(text.data(), text.data() + text.size(), handle, 16);  // 0 for what is no number
  return handle;
}

inline recorded_trace read_log(text_lines& in, log_columns const& columns) {
  recorded_trace trace;
  trace_names names(trace);
  log_clock clock;
  std::map<std::uint64_t, trace_event> live;
  while (auto const text = in.next()) {
    if (text->empty()) continue;
    log_columns::line const line = columns.read(in, *text);
    std::uint64_t thread = 0;
    std::from_chars(line.thread.data(), line.thread.data() + line.thread.size(), thread);
    trace_event e{.nanoseconds = clock.since_begin(line.time),
                  .address = line.address,
                  .bytes = line.bytes,
                  .stream = detail::stream_of_log(line.stream),
                  .thread = thread,
                  .layer = names.layer("log"),
                  .tag = names.tag(detail::from_csv_field(line.tag))};
    if (line.is == line.fails) e.action = trace_action::out_of_memory;
    if (line.is == line.frees) e.action = trace_action::free;
    // Nothing was allocated or freed there.
    if (line.is == line.allocates ? line.bytes == 0 : line.is == line.frees && line.address == 0) continue;
    trace.events.push_back(e);
  }
  return trace;
}

/// Whether there is anything that was allocated, came or went. A stack records nothing else, but for frees that were
/// wrong, which may well be of no bytes.
inline bool tells_something(trace_event const& e) {
  return e.bytes != 0 || (e.action != trace_action::allocate && !is_of_segment(e.action));
}

/// One event of JSON lines; members that it does not know are left out.
inline trace_event read_json_event(text_lines const& in, std::string_view line, trace_names& names) {
  trace_event e;
  bool has_action = false;
  auto const whole = [&](json_object_reader::member const& m, int base = 10) {
    return in.number(m.text, m.name.c_str(), base);
  };
  auto const device = [&](json_object_reader::member const& m) {
    if (whole(m) >= most_devices) in.damaged("device is " + text_lines::start_of(m.text) + "; no machine has so many");
    return static_cast<std::int32_t>(whole(m));
  };
  json_object_reader(in, line).for_each_member([&](json_object_reader::member const& m) {
    if (m.name == "ns") e.nanoseconds = whole(m);
    if (m.name == "address") e.address = whole(m, 16);
    if (m.name == "bytes") e.bytes = whole(m);
    if (m.name == "stream") e.stream = whole(m, 16);
    if (m.name == "thread") e.thread = whole(m);
    if (m.name == "device" && m.text != "null") e.device = device(m);
    if (m.name == "tag") e.tag = names.tag(m.text);
    if (m.name == "layer") e.layer = names.layer(m.text);
    if (m.name == "report") e.report = names.report(m.text);
    if (m.name == "frames") e.call_stack = names.call_stack(m.list);
    if (m.name != "action") return;
    for (unsigned i = 0; i < trace_actions; ++i)
      if (auto const action = static_cast<trace_action>(i); m.text == name_of(action)) {
        e.action = action;
        has_action = true;
      }
    if (!has_action) in.damaged("action is '" + text_lines::start_of(m.text) + "'; no event is called so");
  });
  if (!has_action) in.damaged("has no 'action'");
  return e;
}

inline recorded_trace read_json_lines(text_lines& in, std::string_view header) {
  recorded_trace trace;
  trace_names names(trace);
  std::uint64_t version = 0;
  json_object_reader(in, header).for_each_member([&](json_object_reader::member const& m) {
    if (m.name == "weir_trace") version = in.number(m.text, "weir_trace");
    if (m.name == "began") trace.began = in.number(m.text, "began");
    if (m.name == "lost") trace.lost = in.number(m.text, "lost");
    if (m.name != "layers" && m.name != "below") return;
    for (std::string const& name : m.list) {
      std::uint32_t const layer = names.layer(name);
      if (m.name == "below") trace.below.push_back(layer);
    }
  });
  if (version != 1) in.damaged("is no trace of version 1: \"weir_trace\" is not 1");
  while (auto const line = in.next()) {
    if (line->empty()) continue;
    trace_event const e = detail::read_json_event(in, *line, names);
    if (detail::tells_something(e)) trace.events.push_back(e);
  }
  if (trace.layers.empty()) trace.layers.emplace_back("trace");
  return trace;
}

/// An event without a time, or with an earlier one than the event before it, has that one's. What was there before the
/// first has 0. Returns the first time; 0 where there is none.
inline std::uint64_t complete_times(device_history& history) {
  constexpr std::uint64_t most = ~std::uint64_t{0} / 1000;
  std::uint64_t first = 0, latest = 0;
  for (device_history::event& e : history.events) {
    e.microseconds = latest = std::max(latest, std::min(e.microseconds, most));
    if (first == 0) first = latest;
  }
  return first;
}

/// Requests are of a layer above the one whose segments come and go. A file tells of one device after another; here
/// they are together, by their times.
inline recorded_trace torch_trace(std::vector<device_history> histories) {
  recorded_trace trace;
  trace_names names(trace);
  std::uint32_t const top = names.layer("PyTorch");
  std::size_t events = 0;
  for (device_history const& history : histories) events += history.events.size();
  trace.events.reserve(events);
  // By where they are in the file: one may be in many entries.
  std::unordered_map<char const*, std::uint32_t> tags, reports;
  auto const numbered = [](auto& known, std::string_view text, auto number) {
    if (text.empty()) return std::uint32_t{0};
    auto const [at, is_new] = known.try_emplace(text.data());
    if (is_new) at->second = number(std::string(text));
    return at->second;
  };
  std::uint64_t began = 0;  // microseconds, as early as any device's
  for (device_history& history : histories)
    if (std::uint64_t const first = complete_times(history); began == 0 || (first != 0 && first < began)) began = first;
  trace.began = began * 1000;
  for (device_history& history : histories) {
    for (device_history::event const& e : std::exchange(history.events, {})) {
      trace.events.push_back(
          {.nanoseconds = e.microseconds > began ? (e.microseconds - began) * 1000 : 0,
           .address = e.address,
           .bytes = e.bytes,
           .stream = e.stream,
           .layer = is_of_segment(e.action) ? names.layer("PyTorch: segments") : top,
           .tag = numbered(tags, e.category, [&](std::string const& s) { return names.tag(s); }),
           .device = static_cast<std::int32_t>(history.device),
           .action = e.action,
           .report = numbered(reports, e.report, [&](std::string const& s) { return names.report(s); })});
    }
  }
  if (histories.size() > 1)
    std::stable_sort(trace.events.begin(), trace.events.end(),
                     [](trace_event const& a, trace_event const& b) { return a.nanoseconds < b.nanoseconds; });
  return trace;
}
/// In a file that Python wrote a value takes two bytes on the whole, and an entry or a block twelve or more.
inline recorded_memory read_torch(std::string_view bytes, std::string const& name) try {
  pickle const in(bytes, {.values = bytes.size() / 2});
  std::size_t const most = bytes.size() / 10;
  recorded_trace trace = detail::torch_trace(detail::torch_histories(in, most));
  return {std::move(trace), detail::torch_segments(in, most)};
} catch (damaged_pickle const& e) {
  throw damaged_trace(name + ": " + e.what());
}

}  // namespace detail

/// Reads a file from its bytes; its beginning says which format it is: RMM's log, with or without weir's `Tag`, JSON
/// lines (`trace_json_lines`), or a memory snapshot of PyTorch's or weir's (`torch_memory`), of which it takes the
/// segments at the end, too, and the events of all devices by their times. `name` is the file's, for errors. Throws
/// `damaged_trace` at the first thing that is wrong. A log may free what it never allocated. Allocations of no bytes
/// are left out, and so are segments of none, and lines of a log that free a null pointer. Takes some 10 times the
/// bytes of host memory for what programs write, and at most 50 times for what somebody made up to take much.
inline recorded_memory read_memory(std::string_view bytes, std::string const& name = "trace") {
  if (bytes.starts_with('\x80')) return detail::read_torch(bytes, name);
  detail::text_lines in(bytes, name);
  std::string_view const header = in.next().value_or("");
  if (auto const columns = detail::log_columns::of(header)) return {detail::read_log(in, *columns), {}};
  if (header.starts_with('{')) return {detail::read_json_lines(in, header), {}};
  if (bytes.empty()) in.damaged("is empty; a trace without events has a first line, too");
  in.damaged("is neither '" + std::string(detail::log_columns::plain) +
             "' nor an object with \"weir_trace\" nor the beginning of a pickle of protocol 2 to 5");
}

/// The same, for who needs only what happened.
inline recorded_trace read_trace(std::string_view bytes, std::string const& name = "trace") {
  return weir::read_memory(bytes, name).trace;
}

}  // namespace weir
