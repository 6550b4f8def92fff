#include <weir/tools/merged_trace.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {

weir::recorded_trace trace(std::uint64_t began, std::vector<std::string> layers,
                           std::vector<weir::trace_event> events) {
  return {.began = began, .lost = 1, .events = std::move(events), .layers = std::move(layers), .tags = {"", "a"}};
}
std::string text(weir::recorded_trace const& t) {
  std::string out;
  for (auto const& e : t.events)
    out += std::to_string(e.nanoseconds) + " " + std::to_string(e.address) + " " + t.layers[e.layer] +
           (e.tag == 0 ? "" : " " + t.tags[e.tag]) + "; ";
  return out;
}

}  // namespace

TEST_CASE("events come by their time, with the names they had") {
  auto first = trace(1000, {"x"}, {{.nanoseconds = 5, .address = 1, .tag = 1}, {.nanoseconds = 50, .address = 2}});
  auto second = trace(1010, {"y"}, {{.nanoseconds = 0, .address = 3, .tag = 1}, {.nanoseconds = 1, .address = 4}});
  second.tags[1] = "b";
  second.call_stacks = {{}, {"f", "main"}};
  second.events[1].call_stack = 1;
  first.reports = {"", "refused"};
  first.events[1].report = 1;
  auto const both = weir::merged({first, second});
  CHECK(text(both) == "5 1 x a; 10 3 y b; 11 4 y; 50 2 x; ");
  CHECK(both.began == 1000);
  CHECK(both.lost == 2);
  CHECK(both.reports[both.events[3].report] == "refused");
  CHECK(both.call_stacks[both.events[2].call_stack] == std::vector<std::string>{"f", "main"});
}

TEST_CASE("a trace that does not know when it began is taken to have begun with the first that does") {
  auto const log = trace(0, {"log"}, {{.nanoseconds = 3, .address = 1}, {.nanoseconds = 20, .address = 2}});
  auto const early = trace(1000, {"x"}, {{.nanoseconds = 5, .address = 3}});
  auto const late = trace(1010, {"y"}, {{.nanoseconds = 0, .address = 4}});
  auto const all = weir::merged({log, late, early});
  CHECK(text(all) == "3 1 log; 5 3 x; 10 4 y; 20 2 log; ");
  CHECK(all.began == 1000);
  CHECK(weir::merged({log, log}).began == 0);
}

TEST_CASE("a layer that several saw is taken from the one that saw most of it") {
  auto const first =
      trace(0, {"x", "pool"}, {{.nanoseconds = 1, .address = 1}, {.nanoseconds = 2, .address = 9, .layer = 1}});
  auto const second = trace(0, {"pool"}, {{.nanoseconds = 2, .address = 9}, {.nanoseconds = 7, .address = 8}});
  CHECK(text(weir::merged({first, second})) == "1 1 x; 2 9 pool; 7 8 pool; ");
  CHECK(text(weir::merged({second, first})) == "1 1 x; 2 9 pool; 7 8 pool; ");
}

TEST_CASE("a layer stands below others where it did in the trace that it is taken from") {
  auto first = trace(0, {"x", "pool"}, {{.address = 1}, {.nanoseconds = 2, .address = 9, .layer = 1}});
  first.below = {1};
  auto second = trace(0, {"y", "other"}, {{.nanoseconds = 3, .address = 8, .layer = 1}, {.nanoseconds = 4}});
  second.below = {1};
  auto const both = weir::merged({first, second});
  std::vector<std::string> below;
  for (std::uint32_t const layer : both.below) below.push_back(both.layers.at(layer));
  std::sort(below.begin(), below.end());
  CHECK(below == std::vector<std::string>{"other", "pool"});
}

TEST_CASE("where one trace knows what stands below others, the others' segments show it") {
  auto first = trace(0, {"x", "source"}, {{.address = 1}, {.nanoseconds = 2, .address = 9, .layer = 1}});
  first.below = {1};
  auto const second = trace(0, {"y", "segments"},
                            {{.nanoseconds = 3, .address = 8},
                             {.nanoseconds = 4, .address = 8, .layer = 1, .action = weir::trace_action::grow}});
  auto const both = weir::merged({first, second});
  std::vector<std::string> below;
  for (std::uint32_t const layer : both.below) below.push_back(both.layers.at(layer));
  std::sort(below.begin(), below.end());
  CHECK(below == std::vector<std::string>{"segments", "source"});
  CHECK(weir::merged({second, second}).below.empty());
}

TEST_CASE("one trace stays as it is, and none is none") {
  auto const one = trace(7, {"x"}, {{.nanoseconds = 5, .address = 1, .tag = 1}});
  CHECK(weir::merged({one}) == one);
  CHECK(weir::merged({}) == weir::recorded_trace{});
}
