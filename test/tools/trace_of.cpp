#include <weir/tools/trace_of.hpp>

#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <string>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;

namespace {

stream_ref const legacy;

/// `grow 2097152, allocate 1000`
std::string actions(recorded_trace const& trace) {
  std::string text;
  for (trace_event const& e : trace.events)
    text += (text.empty() ? "" : ", ") + std::string(name_of(e.action)) + " " + std::to_string(e.bytes);
  return text;
}

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "a stack without a trace has recorded nothing") {
  auto memory = make(device{} | pool{});
  memory.deallocate(legacy, memory.allocate(legacy, 10), 10);
  CHECK(trace_of(memory) == recorded_trace{});
}

TEST_CASE_FIXTURE(fresh_world, "events of a trace below a pool are what the pool takes and gives back") {
  auto memory = make(device{} | trace{} | pool{.growth_bytes = 2_MiB} | trace{.name = "top"});
  void* p = nullptr;
  {
    tag const scope{"decoder"};
    p = memory.allocate(legacy, 1000);
  }
  memory.deallocate(legacy, p, 1000);
  synchronize(memory);
  trim(memory);
  recorded_trace const trace = trace_of(memory);
  CHECK(actions(trace) == "grow 2097152, allocate 1000, free 1000, trim 2097152");
  CHECK(trace.layers == std::vector<std::string>{"top: trace", "trace"});
  CHECK(trace.layers[trace.events[0].layer] == "trace");
  CHECK(trace.layers[trace.events[1].layer] == "top: trace");
  CHECK(trace.tags == std::vector<std::string>{"", "decoder"});
  CHECK(trace.events[1].tag == 1);
  CHECK(trace.events[2].tag == 0);
  CHECK(trace.events[1].device == 0);
  CHECK(trace.lost == 0);
  CHECK(trace.began > 0);
  CHECK(std::is_sorted(trace.events.begin(), trace.events.end(),
                       [](auto const& a, auto const& b) { return a.nanoseconds < b.nanoseconds; }));
}

TEST_CASE_FIXTURE(fresh_world, "a stack whose type is forgotten tells the same") {
  auto memory = make(device{} | trace{} | pool{} | trace{});
  memory.deallocate(legacy, memory.allocate(legacy, 1000), 1000);
  CHECK(actions(trace_of(any_ref(memory))) == actions(trace_of(memory)));
  CHECK(trace_of(memory).layers == std::vector<std::string>{"trace", "trace 2"});
  any_resource const erased(device{} | trace{} | pool{.growth_bytes = 2_MiB});
  erased.deallocate(legacy, erased.allocate(legacy, 1000), 1000);
  CHECK(actions(trace_of(erased)) == "grow 2097152");
}

TEST_CASE_FIXTURE(fresh_world, "a pool grows in place through a trace, which tells what is mapped") {
  auto memory = make(virtual_memory{} | trace{} | pool{});
  static_assert(growable<std::remove_reference_t<decltype(memory.upstream())>>);
  void* const p = memory.allocate(legacy, 2_MiB);
  void* const q = memory.allocate(legacy, 2_MiB);
  CHECK(static_cast<char*>(q) - static_cast<char*>(p) == 2_MiB);
  memory.deallocate(legacy, p, 2_MiB);
  memory.deallocate(legacy, q, 2_MiB);
  synchronize(memory);
  trim(memory);
  CHECK(actions(trace_of(memory)).starts_with("map "));
  CHECK(actions(trace_of(memory)).ends_with("unmap 4194304"));
}

TEST_CASE_FIXTURE(fresh_world, "a pool that moves idle chunks says so, with the tag of the request that they serve") {
  auto memory = make(virtual_memory{.max_bytes = 8_MiB} | trace{} | pool{});
  void* blocks[4];
  for (void*& b : blocks) b = memory.allocate(legacy, 2_MiB);
  for (int const i : {0, 2}) memory.deallocate(legacy, blocks[i], 2_MiB);
  synchronize(memory);
  find<trace_resource>(memory).clear();
  tag const scope{"batch"};
  void* const p = memory.allocate(legacy, 4_MiB);  // the two that are free lie apart
  recorded_trace const trace = trace_of(memory);
  std::string const done = actions(trace);
  CHECK_MESSAGE(done.ends_with(", move 4194304"), done);
  trace_event const& moved = trace.events.back();
  CHECK(moved.address == reinterpret_cast<std::uintptr_t>(p));
  CHECK(trace.tags[moved.tag] == "batch");
  CHECK(find<pool_resource>(memory).numbers().moved == 4_MiB);
  memory.deallocate(legacy, p, 4_MiB);
  for (int const i : {1, 3}) memory.deallocate(legacy, blocks[i], 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "each refusal has its own report, whichever layer saw it") {
  auto memory = make(device{} | trace{} | pool{.max_bytes = 4_MiB} | trace{.name = "top"});
  std::string given;
  for (std::size_t const bytes : {8_MiB, 9_MiB}) try {
      static_cast<void>(memory.allocate(legacy, bytes));
    } catch (out_of_memory const& refused) {
      given = refused.what();
    }
  recorded_trace const trace = trace_of(memory);
  REQUIRE(trace.events.size() == 2);
  CHECK(trace.reports.size() == 3);
  CHECK(trace.reports[trace.events[0].report].starts_with("weir: out of memory: 8.00 MiB"));
  CHECK(trace.reports[trace.events[1].report] == given);
}

TEST_CASE_FIXTURE(fresh_world, "a trace tells which layers stand below others, whatever they saw") {
  using numbers = std::vector<std::uint32_t>;
  auto alone = make(device{} | trace{} | limit{1_MiB});
  CHECK(trace_of(alone).below == numbers{});
  auto pooled = make(device{} | limit{1_MiB} | trace{} | pool{} | trace{});
  CHECK_THROWS_AS(static_cast<void>(pooled.allocate(legacy, 3_MiB)), out_of_memory);
  CHECK(trace_of(pooled).below == numbers{1});
  auto kept = make(device{} | trace{} | pool{});
  CHECK(trace_of(kept).below == numbers{0});
  auto two = make(device{} | trace{} | fallback{device{} | trace{}} | trace{});
  CHECK(trace_of(two).below == numbers{1, 2});
  auto bins = make(device{} | binning{{bin{4_KiB, [](auto up) { return up | pool{} | trace{}; }},
                                       bin{1_MiB, [](auto up) { return up | pool{} | trace{} | trace{}; }}}});
  CHECK(trace_of(bins).below == numbers{2});
}

TEST_CASE_FIXTURE(fresh_world, "what was forgotten is counted, and call stacks of two layers are told apart") {
  auto memory = make(device{} | trace{.frames = 2} | pool{} | trace{.events = 3, .frames = 2});
  for (int i = 0; i < 4; ++i) memory.deallocate(legacy, memory.allocate(legacy, 1000), 1000);
  recorded_trace const trace = trace_of(memory);
  CHECK(trace.lost == 5);
  REQUIRE(trace.events.size() == 4);
  CHECK(trace.events[0].call_stack != 0);
  CHECK(trace.events[0].call_stack != trace.events[2].call_stack);
  for (trace_event const& e : trace.events) CHECK(e.call_stack < trace.call_stacks.size());
}

TEST_CASE_FIXTURE(fresh_world, "bins tell of their own, and what they take is growth") {
  auto memory = make(device{} | trace{} | binning{{bin{4_KiB, [](auto up) { return up | pool{} | trace{}; }}}});
  void* const p = memory.allocate(legacy, 1000);
  CHECK(actions(trace_of(memory)) == "grow 2097152, allocate 1000");
  memory.deallocate(legacy, p, 1000);
}

TEST_CASE_FIXTURE(fresh_world, "each bin begins anew: its trace sees requests, whatever the bin before has") {
  auto memory = make(device{} | binning{{bin{4_KiB, [](auto up) { return up | pool{} | trace{}; }},
                                         bin{1_MiB, [](auto up) { return up | pool{} | trace{}; }}}});
  for (std::size_t const bytes : {1000u, 10'000u}) memory.deallocate(legacy, memory.allocate(legacy, bytes), bytes);
  CHECK(actions(trace_of(memory)) == "allocate 1000, free 1000, allocate 10000, free 10000");
  CHECK(actions(trace_of(any_ref(memory))) == actions(trace_of(memory)));
}

TEST_CASE_FIXTURE(fresh_world, "bins and a second stack below a pool are asked for its segments") {
  auto bins =
      make(device{} | binning{{bin{64_MiB, [](auto up) { return up | trace{}; }}}} | pool{.growth_bytes = 2_MiB});
  bins.deallocate(legacy, bins.allocate(legacy, 1000), 1000);
  CHECK(actions(trace_of(bins)) == "grow 2097152");
  auto two = make(device{} | limit{1_MiB} | fallback{managed{} | trace{}} | pool{.growth_bytes = 2_MiB});
  two.deallocate(legacy, two.allocate(legacy, 1000), 1000);
  CHECK(actions(trace_of(two)) == "grow 2097152");
}

TEST_CASE_FIXTURE(fresh_world, "a trace below a fallback sees requests, which pass on as they are") {
  auto memory = make(device{} | trace{} | pool{.growth_bytes = 2_MiB} | trace{} | fallback{managed{} | pool{}});
  void* const p = memory.allocate(legacy, 1000);
  memory.deallocate(legacy, p, 1000);
  CHECK(actions(trace_of(memory)) == "grow 2097152, allocate 1000, free 1000");
  CHECK(actions(trace_of(any_ref(memory))) == "grow 2097152, allocate 1000, free 1000");
}
