#pragma once
// A page to look at: what happened to memory over time, as one HTML file that loads nothing.

#include <weir/core/printable.hpp>
#include <weir/core/resource.hpp>
#include <weir/tools/fragmentation_over_time.hpp>
#include <weir/tools/memory_snapshot.hpp>
#include <weir/tools/memory_timeline.hpp>
#include <weir/tools/recorded_trace.hpp>
#include <weir/tools/report_template.hpp>
#include <weir/tools/snapshot.hpp>
#include <weir/tools/text_formats.hpp>
#include <weir/tools/trace_of.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace weir {

/// One recorded run of a program, as a page shows it.
struct report_run {
  std::string name = {};  ///< what the page calls it
  recorded_trace trace = {};
  memory_snapshot snapshot = {};  ///< of the moment at which the trace ended; or empty
};

namespace detail {

/// Writes the data of a page: JSON in which nothing can end the script that holds it, since `<` is escaped in texts and
/// is in nothing else.
class report_data {
 public:
  explicit report_data(std::vector<report_run> const& runs) {
    text_ = R"({"runs":)";
    list(runs, [this](report_run const& run) { add(run); });
    text_ += '}';
  }
  std::string take() { return std::move(text_); }

 private:
  void add(report_run const& run) {
    memory_timeline const timeline = timeline_of(run.trace, run.snapshot);
    trace_ = &run.trace;
    streams_.clear();
    std::uint64_t const base = lowest_address(timeline);
    auto const moment = [&](trace_moment m) { number(m == to_the_end ? timeline.moments + 1 : m); };
    auto const address = [&](std::uint64_t a) { number(a - std::min(a, base)); };

    (text_ += R"({"name":)") += json_string(run.name);
    member("began", run.trace.began / 1'000'000);  // milliseconds
    member("lost", run.trace.lost);
    bool const has_end = run.snapshot.taken != 0 || !run.snapshot.segments.empty();
    text_ += has_end ? R"(,"hasEnd":true)" : R"(,"hasEnd":false)";
    ((text_ += R"(,"base":")") += std::to_string(base)) += '"';
    texts("tags", timeline.tags);
    texts("layers", run.trace.layers);
    add_times();
    text_ += R"(,"blocks":{)";
    column("address", timeline.blocks, [&](block_life const& b) { address(b.address); });
    column("bytes", timeline.blocks, [&](block_life const& b) { number(b.bytes); });
    column("stream", timeline.blocks, [&](block_life const& b) { number(stream(b.stream)); });
    column("tag", timeline.blocks, [&](block_life const& b) { number(b.tag); });
    column("from", timeline.blocks, [&](block_life const& b) { moment(b.from); });
    column("freed", timeline.blocks, [&](block_life const& b) { moment(b.freed); });
    column("done", timeline.blocks, [&](block_life const& b) { moment(b.done); });
    text_.back() = '}';
    text_ += R"(,"segments":)";
    list(timeline.segments, [&](segment_life const& s) {
      ((text_ += R"({"layer":)") += json_string(s.layer)) += s.is_range ? R"(,"range":true)" : R"(,"range":false)";
      text_ += s.is_known ? R"(,"known":true,"mapped":)" : R"(,"known":false,"mapped":)";
      list(s.mapped, [&](extent_life const& e) {
        text_ += '[', address(e.address), text_ += ',', number(e.bytes), text_ += ',', moment(e.from), text_ += ',';
        moment(e.until), text_ += ']';
      });
      text_ += '}';
    });
    text_ += R"(,"fragmentation":)";
    list(fragmentation_over_time(timeline), [&](free_memory const& f) {
      text_ += '[', number(f.moment), text_ += ',', number(f.reserved), text_ += ',', number(f.free), text_ += ',';
      number(f.largest), text_ += ']';
    });
    add_happenings(address);
    std::vector<std::string> names;
    for (auto const& [handle, place] : streams_) {
      if (names.size() <= place) names.resize(place + 1);
      char name[24];
      std::snprintf(name, sizeof name, "0x%llx", static_cast<unsigned long long>(handle));
      names[place] = name;
    }
    texts("streams", names);
    text_ += '}';
  }

  void add_times() {
    std::uint64_t last = 0;
    text_ += R"(,"time":)";
    list(trace_->events, [&](trace_event const& e) { number(last = std::max(last, e.nanoseconds)); });
  }
  /// Everything but allocations and frees. `moment` is the state right after it.
  template <class Address>
  void add_happenings(Address address) {
    std::vector<bool> const is_below = layers_below(*trace_);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < trace_->events.size(); ++i)
      if (auto const action = trace_->events[i].action;
          action != trace_action::allocate && action != trace_action::free)
        places.push_back(i);
    text_ += R"(,"happenings":)";
    list(places, [&](std::size_t i) {
      trace_event const& e = trace_->events[i];
      bool const by_source = e.action == trace_action::out_of_memory && is_below[e.layer];
      char const* const action = by_source ? "no_segment" : name_of(e.action);
      text_ += R"({"moment":)", number(i + 1), ((text_ += R"(,"action":")") += action) += '"';
      member("bytes", e.bytes);
      member("tag", e.tag);
      member("layer", e.layer);
      member("stream", stream(e.stream));
      text_ += R"(,"address":)", address(e.address);
      if (e.report != 0) (text_ += R"(,"report":)") += json_string(trace_->reports.at(e.report));
      text_ += '}';
    });
  }

  /// Numbers in a page have 53 bits: addresses count from the lowest.
  static std::uint64_t lowest_address(memory_timeline const& timeline) {
    std::uint64_t lowest = ~std::uint64_t{0};
    for (segment_life const& s : timeline.segments) lowest = std::min(lowest, s.mapped.front().address);
    return timeline.segments.empty() ? 0 : lowest;
  }
  std::size_t stream(std::uint64_t handle) { return streams_.try_emplace(handle, streams_.size()).first->second; }

  void number(std::uint64_t n) { text_ += std::to_string(n); }
  void member(char const* key, std::uint64_t n) { ((text_ += ",\"") += key) += "\":", number(n); }
  void texts(char const* key, std::vector<std::string> const& all) {
    ((text_ += ",\"") += key) += "\":";
    list(all, [this](std::string const& each) { text_ += json_string(each); });
  }
  template <class All, class Write>
  void column(char const* key, All const& all, Write write) {
    ((text_ += '"') += key) += "\":";
    list(all, write);
    text_ += ',';
  }
  template <class All, class Write>
  void list(All const& all, Write write) {
    text_ += '[';
    bool first = true;
    for (auto const& each : all) {
      if (!first) text_ += ',';
      first = false;
      write(each);
    }
    text_ += ']';
  }

  std::string text_;
  recorded_trace const* trace_ = nullptr;
  std::map<std::uint64_t, std::size_t> streams_;  // handles, numbered by first appearance
};

}  // namespace detail

/// The page of one run, or of two to compare, as text: HTML that loads nothing and sends nothing. What the data holds
/// cannot leave its place in it. Takes host memory of some 100 bytes an event.
inline std::string report_page(std::vector<report_run> const& runs) {
  std::string page;
  for (std::string_view const part : detail::report_template) page += part;
  std::string_view const place = "@@DATA@@";
  return page.replace(page.find(place), place.size(), detail::report_data(runs).take());
}

/// Writes the page of one run, or of two to compare, to a file. Throws `std::system_error` where that cannot be
/// written.
inline void write_report(std::vector<report_run> const& runs, std::string const& path) {
  std::string const page = report_page(runs);
  auto const fail = [&] {
    throw std::system_error(errno, std::generic_category(), "weir: report '" + printable(path) + "' cannot be written");
  };
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail();
  bool const written = std::fwrite(page.data(), 1, page.size(), file) == page.size();
  if (std::fclose(file) != 0 || !written) fail();
}

/// Writes the page of a stack: what its `trace` layers recorded, and its memory as it is now. `memory` is a stack, or
/// any handle to one. A `trace` on top shows the blocks; one between the pool and its source, the segments over time.
template <resource Top>
void write_report(Top const& memory, std::string const& path, std::string const& name = "memory") {
  recorded_trace trace = trace_of(memory);
  write_report(std::vector<report_run>{{name, std::move(trace), snapshot(memory)}}, path);
}

}  // namespace weir
