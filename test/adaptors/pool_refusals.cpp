// Out of memory for five reasons: which one it is, and what to do, is told by the report alone.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;
using weir::test::lazy_world;

namespace {

/// What the refusal of a request says.
template <class Memory>
std::string refusal(Memory& memory, stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
  try {
    memory.deallocate(stream, memory.allocate(stream, bytes, alignment), bytes, alignment);
  } catch (out_of_memory const& refused) {
    CHECK(std::string(refused.what()).find(refused.hint()) != std::string::npos);
    return refused.what();
  }
  return "it was served";
}
bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// The last line of a report, which begins with `hint`.
std::string hint_of(std::string const& report) {
  std::string const last = report.substr(report.rfind('\n') + 1);
  REQUIRE(last.starts_with("  hint       "));
  return last.substr(13);
}

/// Blocks of 1 MiB until the memory is full.
template <class Memory>
std::vector<void*> fill(Memory& memory, stream_ref stream) {
  std::vector<void*> all;
  try {
    for (;;) all.push_back(memory.allocate(stream, 1_MiB));
  } catch (out_of_memory const&) {
    return all;
  }
}
template <class Memory>
void give_all(Memory& memory, stream_ref stream, std::vector<void*> const& all) {
  for (void* const p : all) memory.deallocate(stream, p, 1_MiB);
}

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "a limit: the budget is used up, and whose it is") {
  stream const s;
  auto memory = make(device{} | pool{} | limit{.max_bytes = 8_MiB, .name = "search"});
  auto const all = fill(memory, s);
  std::string const report = refusal(memory, s, 1_MiB);
  CHECK(contains(report, "on stream 0x"));
  CHECK(
      contains(report, ", device 0\n  refused by search: limit; chain: search: limit(8.00 MiB) > pool > device(0)\n"));
  CHECK(hint_of(report) == "the budget of search: limit is used up: free something, or raise it (set_max_bytes)");
  CHECK(hint_of(refusal(memory, s, 9_MiB)) ==
        "the request is larger than the whole budget of search: limit (8.00 MiB): ask for less at a time (with_retry), "
        "or raise it (set_max_bytes)");
  give_all(memory, s, all);
}

TEST_CASE_FIXTURE(fresh_world, "fragmentation: enough is free, but not in one piece") {
  stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 16_MiB, .max_bytes = 16_MiB});
  auto const all = fill(memory, s);
  REQUIRE(all.size() == 16);
  std::vector<void*> kept;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 2 == 0)
      memory.deallocate(s, all[i], 1_MiB);
    else
      kept.push_back(all[i]);
  std::string const report = refusal(memory, s, 2_MiB);
  CHECK(contains(report, "largest free piece 1.00 MiB, 87.5 % lies outside of it"));
  CHECK(contains(report, "****____****____"));  // 1 MiB is four cells of 64
  CHECK(hint_of(report).starts_with("enough is free, but not in one piece"));
  give_all(memory, s, kept);
}

TEST_CASE_FIXTURE(lazy_world, "pending on a stream: the memory was freed where work goes on") {
  stream const busy, other;
  auto memory = make(
      device{} | pool{.initial_bytes = 8_MiB, .max_bytes = 8_MiB, .pending = when_pending::grow, .synchronize = false});
  void* const p = memory.allocate(busy, 8_MiB);
  REQUIRE(cudaMemsetAsync(p, 0, 8_MiB, busy.get()) == cudaSuccess);
  memory.deallocate(busy, p, 8_MiB);
  std::string const report = refusal(memory, host_order, 8_MiB);  // the host cannot queue behind the work
  CHECK(contains(report, "8.00 MiB pending"));
  CHECK(contains(report, "[" + std::string(64, 'x') + "]"));
  CHECK(contains(report, "  tried      did not wait for freed blocks; no fit\n"));
  CHECK(hint_of(report).starts_with("8.00 MiB was freed on streams whose work is not done: wait for them"));
  synchronize(memory);
  CHECK(refusal(memory, host_order, 8_MiB) == "it was served");
}

TEST_CASE_FIXTURE(fresh_world, "a declared capture: what other streams freed before it was not waited for") {
  stream const freed_on, s;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB, .max_bytes = 8_MiB});
  memory.deallocate(freed_on, memory.allocate(freed_on, 8_MiB), 8_MiB);
  std::optional<capture_scope> declared(std::in_place);
  CHECK(
      hint_of(refusal(memory, s, 8_MiB)).starts_with("8.00 MiB was freed on streams that are not asked for it while"));
  declared.reset();
  synchronize(memory);  // as the hint says
  declared.emplace();
  CHECK(refusal(memory, s, 8_MiB) == "it was served");
}

TEST_CASE_FIXTURE(fresh_world, "a capture: what a graph uses is kept for it") {
  stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB, .max_bytes = 8_MiB});
  capture_scope const capturing;
  test::begin_capture(s);
  memory.deallocate(s, memory.allocate(s, 8_MiB), 8_MiB);
  test::captured_graph const graph(s);
  std::string const report = refusal(memory, s, 4_MiB);
  CHECK(contains(report, " + 8.00 MiB captured"));
  CHECK(contains(report, "[" + std::string(64, 'c') + "]"));
  CHECK(hint_of(report) == "8.00 MiB is kept for captured graphs: weir::release_captured when they are gone");
  test::begin_capture(s);
  CHECK(contains(refusal(memory, s, 4_MiB),
                 "the stream is being captured: free what it needs, or take it from the pool once"));
  test::captured_graph const empty(s);
  release_captured(memory);
  CHECK(refusal(memory, s, 4_MiB) == "it was served");
}

TEST_CASE_FIXTURE(fresh_world, "a leak: the memory is full, and one tag holds most of it") {
  stream const s;
  sim::set_capacity(0, 16_MiB);
  auto memory = make(device{} | pool{.growth_bytes = 2_MiB} | statistics{.by_tag = true});
  std::vector<void*> all;
  {
    tag const scope{"thumbnails"};
    all = fill(memory, s);
  }
  CHECK(all.size() > 8);
  tag const scope{"decoder"};
  std::string const report = refusal(memory, s, 4_MiB);
  CHECK(contains(report, ", device 0, tag decoder\n"));
  CHECK(contains(report, "  holders    thumbnails "));
  CHECK(contains(report, "  tried      waited for freed blocks: 0 B became free; no fit\n"));
  CHECK(contains(report, " held here, "));
  CHECK(contains(hint_of(report), "no free piece fits, and the layer below gave no more: "));
  CHECK(contains(hint_of(report), "; thumbnails holds " + format_bytes(all.size() * 1_MiB) + " of it in " +
                                      std::to_string(all.size()) + " blocks"));
  give_all(memory, s, all);
}

TEST_CASE_FIXTURE(fresh_world, "a request larger than the device is told what the device has") {
  stream const s;
  sim::set_capacity(0, 16_MiB);
  std::string const larger =
      "the request (17.00 MiB) is larger than all memory of device 0 (16.00 MiB): ask for less at a time";
  auto const check = [&](auto const& recipe) {
    any_resource memory(recipe);
    CHECK(hint_of(refusal(memory, s, 17_MiB)).starts_with(larger));
    CHECK(refusal(memory, s, 16_MiB) == "it was served");
    CHECK(hint_of(refusal(memory, s, ~std::size_t{0})).starts_with("no machine has as much"));
  };
  check(device{});
  check(async{});
  check(virtual_memory{});
  check(device{} | pool{} | statistics{});
  check(virtual_memory{} | pool{});
  check(device{} | arena{});

  // Not where memory may be elsewhere.
  auto const check_other = [&](auto const& recipe, std::size_t bytes) {
    any_resource memory(recipe);
    CHECK(!contains(refusal(memory, s, bytes), "is larger than all memory of device"));
  };
  check_other(managed{} | pool{.max_bytes = 1_GiB}, 2_GiB);
  check_other(device{} | fallback{managed{} | limit{.max_bytes = 1_MiB}} | pool{}, 17_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "sources, arenas and blocks of one size have hints, too") {
  stream const s;
  auto arenas = make(device{} | arena{.max_bytes = 4_MiB});
  auto const all = fill(arenas, s);
  CHECK(hint_of(refusal(arenas, s, 1_MiB)) ==
        "what the pool may hold is in use: raise max_bytes, free something, or ask for less");
  give_all(arenas, s, all);
  auto blocks = make(device{} | fixed_size{.block_bytes = 1_MiB});
  CHECK(hint_of(refusal(blocks, s, 2_MiB)) == "take a larger block_bytes, or a pool for larger requests");
  sim::set_capacity(0, 8_MiB);
  auto bare = make(device{});
  void* const most = bare.allocate(s, 3_MiB);
  std::string const report = refusal(bare, s, 6_MiB);
  bare.deallocate(s, most, 3_MiB);
  CHECK(contains(report, ", device 0\n  refused by device; "));
  CHECK(hint_of(report).starts_with("the device has no more"));
}

TEST_CASE_FIXTURE(fresh_world, "a pool that grows in place is not told to stand on virtual_memory") {
  stream const s;
  auto const refusal_of = [&](auto memory_and_pool) {
    auto memory = make(memory_and_pool);
    void* blocks[8];
    for (void*& p : blocks) p = memory.allocate(s, 1_MiB);
    for (int i = 0; i < 8; i += 2) memory.deallocate(s, blocks[i], 1_MiB);
    return hint_of(refusal(memory, s, 2_MiB));  // each chunk has a live half
  };
  std::string const hint =
      "enough is free, but not in one piece: free what lies between (weir::snapshot shows it), or "
      "ask for less: what is free lies in chunks that cannot move";
  CHECK(refusal_of(virtual_memory{.max_bytes = 8_MiB} | pool{}) == hint);
  CHECK(refusal_of(virtual_memory{.max_bytes = 8_MiB} | arena{}) == hint);
}

TEST_CASE_FIXTURE(fresh_world, "memory is not told to be full where the pool may not hold what the request needs") {
  stream const s;
  auto const too_large = [](std::string const& most) {
    return "the request is larger than the pool may ever be (" + most +
           "): ask for less at a time (with_retry), or raise max_bytes";
  };
  constexpr char const* in_use = "what the pool may hold is in use: raise max_bytes, free something, or ask for less";
  auto memory = make(device{} | pool{.max_bytes = 3_MiB});
  CHECK(hint_of(refusal(memory, s, 2_MiB, 2_MiB)) == too_large("at most 3.00 MiB"));  // which needs room to be aligned
  auto arenas = make(device{} | arena{.max_bytes = 3_MiB});
  CHECK(hint_of(refusal(arenas, s, 2_MiB, 2_MiB)) == too_large("at most 3.00 MiB"));

  auto blocks = make(device{} | fixed_size{.block_bytes = 3_MiB, .blocks_per_chunk = 1, .max_bytes = 8_MiB});
  void* const a = blocks.allocate(s, 1);
  void* const b = blocks.allocate(s, 1);
  std::string const report = refusal(blocks, s, 1);  // for a block, whatever of it is asked for
  CHECK(contains(report, "weir: out of memory: 1 B (1 B, rounded to 3145728 B)"));
  CHECK(hint_of(report) == in_use);
  blocks.deallocate(s, a, 1);
  blocks.deallocate(s, b, 1);

  auto growing = make(virtual_memory{} | pool{.max_bytes = 3_MiB});  // of which it can hold one chunk of 2 MiB
  CHECK(hint_of(refusal(growing, s, 2_MiB + 1)) == too_large("at most 2.00 MiB"));
  void* const c = growing.allocate(s, 2_MiB);
  CHECK(hint_of(refusal(growing, s, 1)) == in_use);
  growing.deallocate(s, c, 2_MiB);
  auto small = make(virtual_memory{} | arena{.max_bytes = 1_MiB});
  CHECK(hint_of(refusal(small, s, 1)) == too_large("its max_bytes is less than a chunk"));
}

TEST_CASE_FIXTURE(fresh_world, "a report is as long however much the pool holds, and takes nothing of the device") {
  stream const s;
  auto memory = make(device{} | pool{.growth_bytes = 2_MiB} | limit{.max_bytes = 1_GiB} | statistics{.by_tag = true});
  auto const lines = [&] {
    std::string const report = refusal(memory, s, 2_GiB);
    return std::count(report.begin(), report.end(), '\n');
  };
  auto const few = lines();
  std::vector<void*> all;
  for (int i = 0; i < 500; ++i) {
    tag const scope{"tag number " + std::to_string(i)};
    all.push_back(memory.allocate(s, 1_MiB));
  }
  auto const mallocs = sim::calls("cudaMalloc");
  CHECK(lines() <= few + 2);
  CHECK(refusal(memory, s, 2_GiB).size() < 2000);
  CHECK(sim::calls("cudaMalloc") == mallocs);
  give_all(memory, s, all);
}

TEST_CASE_FIXTURE(fresh_world, "of a pool with very many blocks no bar is drawn, which would hold its lock for long") {
  stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 16_MiB, .max_bytes = 16_MiB});
  std::vector<void*> all;
  auto const more_until = [&](std::size_t count) {
    while (all.size() < count) all.push_back(memory.allocate(s, 256));
  };
  more_until(19'000);
  CHECK(contains(refusal(memory, s, 15_MiB), "\n             ["));
  more_until(20'001);
  CHECK(!contains(refusal(memory, s, 15_MiB), "\n             "));
  for (void* const p : all) memory.deallocate(s, p, 256);
}
