#include <weir/adaptors/trace.hpp>

#include <weir/core/resource_ref.hpp>
#include <weir/tools/recorded_trace.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const legacy;
using traced = trace_resource<source_resource>;
static_assert(resource<traced>);
static_assert(device_accessible<traced> && host_accessible<traced> && host_ordered<traced>);
static_assert(!growable<traced>);

/// `allocate 1000`, one a line; and the frames of call stacks.
struct reader final : detail::event_visitor {
  void see_begin(detail::tick_moment const&, std::uint64_t) override {}
  void see(detail::shown_event const& e) override {
    text += name_of(e.action) + (" " + std::to_string(e.bytes)) + "\n";
    addresses.push_back(e.address);
    last_stack = e.call_stack;
    if (e.report != 0) refusals.push_back(e.report);
  }
  void see_frame(std::uint32_t call_stack, char const* frame) override {
    frames += std::to_string(call_stack) + " " + frame + "\n";
  }

  void see_report(std::uint32_t report, std::string const& said) override { reports[report] = said; }

  std::string text, frames;
  std::vector<std::uintptr_t> addresses;
  std::vector<std::uint32_t> refusals;
  std::map<std::uint32_t, std::string> reports;
  std::uint32_t last_stack = 0;
};
template <class Memory>
reader read(Memory const& memory) {
  reader out;
  memory.show_events(out);
  return out;
}

}  // namespace

TEST_CASE("wrong options are refused") {
  CHECK(trace{.events = 0}.problem() == "trace: events is 0; it must be 1 to 268435456");
  CHECK(trace{.frames = 65}.problem() == "trace: frames is 65; it must be at most 64");
  CHECK(trace{}.valid());
  source_state state;
  CHECK_THROWS_AS(static_cast<void>(make(source{&state} | trace{.events = 0})), std::invalid_argument);
}

TEST_CASE("allocations, frees and refusals are recorded, and nothing else") {
  source_state state;
  auto memory = make(source{&state} | trace{.events = 100});
  void* const p = memory.allocate(legacy, 1000);
  CHECK(memory.allocate(legacy, 0) == nullptr);
  memory.deallocate(legacy, nullptr, 0);
  state.fail = failing::out_of_memory;
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(legacy, 2000)), out_of_memory);
  state.fail = failing::null;
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(legacy, 3000)), out_of_memory);
  state.fail = failing::other;
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(legacy, 4000)), std::logic_error);
  memory.deallocate(legacy, p, 1000);
  reader const seen = read(memory);
  CHECK(seen.text == "allocate 1000\nout_of_memory 2000\nout_of_memory 3000\nfree 1000\n");
  CHECK(seen.addresses[0] == reinterpret_cast<std::uintptr_t>(p));
  CHECK(seen.addresses[1] == 0);
  CHECK(memory.count() == 4);
  memory.clear();
  CHECK(read(memory).text.empty());
}

TEST_CASE("a refusal is recorded with the report that the caller gets") {
  source_state state;
  state.fail = failing::out_of_memory;
  auto memory = make(source{&state} | trace{.name = "search"});
  std::string given;
  for (int i = 0; i < 2; ++i) given = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(legacy, 7)); });
  reader const seen = read(memory);
  REQUIRE(seen.refusals.size() == 2);
  CHECK(seen.refusals[0] != seen.refusals[1]);
  CHECK(seen.reports.at(seen.refusals[1]) == given);
  CHECK(contains(given, "chain: search: trace > source"));
}

TEST_CASE("what another layer did is recorded too") {
  source_state state;
  auto memory = make(source{&state} | trace{});
  int place = 0;
  CHECK(memory.note_event(trace_action::spill, &place, 100, legacy));
  CHECK(read(memory).text == "spill 100\n");
  CHECK(read(memory).addresses.at(0) == reinterpret_cast<std::uintptr_t>(&place));
}

TEST_CASE("a free is recorded before the upstream has the memory back, an allocation after it gave it") {
  source_state state;
  auto memory = make(source{&state} | trace{});
  std::uint64_t at_allocation = 99, at_free = 99;
  state.on_allocate = [&] { at_allocation = memory.count(); };
  state.on_deallocate = [&] { at_free = memory.count(); };
  void* const p = memory.allocate(legacy, 10);
  memory.deallocate(legacy, p, 10);
  CHECK(at_allocation == 0);
  CHECK(at_free == 2);
  void* const q = memory.allocate(legacy, 20);
  memory.deallocate_after(legacy, q, 20, {}, default_alignment);
  CHECK(at_free == 4);
}

TEST_CASE("call stacks are kept where that is asked for") {
  source_state state;
  auto plain = make(source{&state} | trace{});
  plain.deallocate(legacy, plain.allocate(legacy, 10), 10);
  CHECK(read(plain).frames.empty());
  auto memory = make(source{&state} | trace{.frames = 8});
  void* p = nullptr;
  for (int i = 0; i < 2; ++i) {
    if (p != nullptr) memory.deallocate(legacy, p, 10);
    p = memory.allocate(legacy, 10);
  }
  CHECK(read(memory).last_stack == 1);  // one place
  CHECK(read(memory).frames.starts_with("1 "));
  CHECK(!contains(read(memory).frames, "\n2 "));
  memory.deallocate(legacy, p, 10);
}

TEST_CASE("the report says whose events there are how many of") {
  source_state state;
  auto memory = make(source{&state} | trace{.events = 2, .name = "search"});
  memory.deallocate(legacy, memory.allocate(legacy, 10), 10);
  CHECK(report_of(memory).lines().starts_with("  search: trace 2 events\n"));
  memory.deallocate(legacy, memory.allocate(legacy, 10), 10);
  CHECK(report_of(memory).lines().starts_with("  search: trace 4 events, of which the latest 2 are kept\n"));
  CHECK(memory.name() == "search");
}
