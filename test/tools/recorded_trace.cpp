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
