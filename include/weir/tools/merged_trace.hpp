#pragma once
// One trace out of several, of stacks that share a pool.

#include <weir/tools/recorded_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace detail {

/// The number of a name in a list, which gets it if it is new.
template <class Name>
std::uint32_t numbered(std::map<Name, std::uint32_t>& known, std::vector<Name>& names, Name const& name) {
  auto const [at, is_new] = known.try_emplace(name, static_cast<std::uint32_t>(names.size()));
  if (is_new) names.push_back(name);
  return at->second;
}

}  // namespace detail

/// The events of several traces by their time, of services that stand on one pool, say. Layers of one name are one
/// layer, which several traces can have seen: its events are those of the trace that has the most of it. So give each
/// `trace` a `name`, and `exact_times`: without them events of different traces are some milliseconds out of order.
/// Traces that do not know when they began are taken to have begun with the first of those that do.
inline recorded_trace merged(std::vector<recorded_trace> const& traces) {
  struct source {
    std::size_t trace = 0;
    std::size_t events = 0;
  };
  std::map<std::string, source> sources;  // by the layer's name
  recorded_trace out{.began = ~std::uint64_t{0}};
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (traces[i].began != 0) out.began = std::min(out.began, traces[i].began);
    out.lost += traces[i].lost;
    std::map<std::string, std::size_t> events;
    for (trace_event const& e : traces[i].events) ++events[traces[i].layers.at(e.layer)];
    for (auto const& [layer, n] : events)
      if (n > sources[layer].events) sources[layer] = {i, n};
  }
  if (out.began == ~std::uint64_t{0}) out.began = 0;  // nobody knows

  std::map<std::string, std::uint32_t> layers, tags{{std::string(), 0}}, reports{{std::string(), 0}};
  std::map<std::vector<std::string>, std::uint32_t> call_stacks{{std::vector<std::string>(), 0}};
  for (std::size_t i = 0; i < traces.size(); ++i) {
    recorded_trace const& trace = traces[i];
    for (trace_event e : trace.events) {
      std::string const& layer = trace.layers[e.layer];
      if (sources[layer].trace != i) continue;
      if (trace.began != 0) e.nanoseconds += trace.began - out.began;
      e.layer = detail::numbered(layers, out.layers, layer);
      e.tag = detail::numbered(tags, out.tags, trace.tags.at(e.tag));
      e.call_stack = detail::numbered(call_stacks, out.call_stacks, trace.call_stacks.at(e.call_stack));
      e.report = detail::numbered(reports, out.reports, trace.reports.at(e.report));
      out.events.push_back(e);
    }
  }
  // Where one trace knows it, it is said of the layers of all, guessed for those of the others.
  bool const is_known = std::any_of(traces.begin(), traces.end(), [](auto const& each) { return !each.below.empty(); });
  for (std::size_t i = 0; i < traces.size() && is_known; ++i) {
    std::vector<bool> const is_below = detail::layers_below(traces[i]);
    for (std::size_t layer = 0; layer < traces[i].layers.size(); ++layer) {
      auto const found = layers.find(traces[i].layers[layer]);
      if (found != layers.end() && sources[found->first].trace == i && is_below[layer])
        out.below.push_back(found->second);
    }
  }
  std::stable_sort(out.events.begin(), out.events.end(),
                   [](trace_event const& a, trace_event const& b) { return a.nanoseconds < b.nanoseconds; });
  return out;
}

}  // namespace weir
