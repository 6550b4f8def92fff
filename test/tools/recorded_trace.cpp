#include <weir/tools/recorded_trace.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;

TEST_CASE("each action has its word, and a trace is a plain value") {
  CHECK(std::string(name_of(trace_action::allocate)) == "allocate");
  CHECK(std::string(name_of(trace_action::out_of_memory)) == "out_of_memory");
  CHECK(std::string(name_of(trace_action::grow)) == "grow");
  CHECK(std::string(name_of(trace_action::unmap)) == "unmap");
  CHECK(std::string(name_of(trace_action::move)) == "move");
  CHECK(std::string(name_of(trace_action::unspill)) == "unspill");
  recorded_trace const empty;
  CHECK(empty.tags.at(0).empty());
  CHECK(empty.call_stacks.at(0).empty());
  recorded_trace other = empty;
  CHECK(other == empty);
  other.events.push_back({.bytes = 1});
  CHECK(other != empty);
}

TEST_CASE("a layer is below a pool if it saw segments, and no requests") {
  using layers = std::vector<bool>;
  recorded_trace trace;
  CHECK(detail::layers_below(trace) == layers{false});
  trace.layers = {"top", "between", "below", "both"};
  trace.events = {{.layer = 0, .action = trace_action::allocate}, {.layer = 1, .action = trace_action::out_of_memory},
                  {.layer = 2, .action = trace_action::map},      {.layer = 2, .action = trace_action::out_of_memory},
                  {.layer = 3, .action = trace_action::grow},     {.layer = 3, .action = trace_action::free}};
  CHECK(detail::layers_below(trace) == layers{false, false, true, false});
  trace.events.push_back({.layer = 5, .action = trace_action::trim});  // of a trace that somebody made up
  CHECK(detail::layers_below(trace) == layers{false, false, true, false, false, true});
  trace.below = {1, 9};  // somebody knows
  CHECK(detail::layers_below(trace) == layers{false, true, false, false, false, false});
}
