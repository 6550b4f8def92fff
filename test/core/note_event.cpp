#include <weir/core/note_event.hpp>

#include <weir/adaptors/trace.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/tools/trace_of.hpp>

#include <doctest/doctest.h>
#include <support/test_source.hpp>

#include <string>

using namespace weir;
using namespace weir::test;

namespace {

int place = 0;

/// `trace 5`, for each event: whose, and how many bytes.
template <class Memory>
std::string recorded(Memory const& memory) {
  recorded_trace const trace = trace_of(memory);
  std::string text;
  for (trace_event const& e : trace.events) {
    CHECK(e.action == trace_action::move);
    CHECK(e.address == reinterpret_cast<std::uintptr_t>(&place));
    text += trace.layers[e.layer] + " " + std::to_string(e.bytes) + "; ";
  }
  return text;
}
template <class Memory>
void note(Memory& memory, std::size_t bytes) {
  detail::note_event(memory, trace_action::move, &place, bytes, host_order);
}

}  // namespace

TEST_CASE("an event is for the first layer at or below that records some") {
  source_state state;
  auto memory = make(source{&state} | trace{.name = "low"} | trace{.name = "high"});
  note(memory, 5);
  note(memory.upstream(), 6);
  CHECK(recorded(memory) == "high: trace 5; low: trace 6; ");
}

TEST_CASE("it passes what records nothing, and handles") {
  source_state state;
  auto memory = make(source{&state});
  note(memory, 5);
  CHECK(recorded(memory).empty());
  auto shared = make(share(memory) | trace{});
  auto handle = share(shared);
  note(handle, 7);
  CHECK(recorded(shared) == "trace 7; ");
}

TEST_CASE("a stack whose type is forgotten is told, too") {
  source_state state;
  any_resource erased(source{&state} | trace{});
  note(erased, 8);
  CHECK(recorded(erased) == "trace 8; ");
}
