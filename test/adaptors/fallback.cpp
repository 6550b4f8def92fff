// needs: tsan
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const on;

/// Two sources, of which the first refuses what exceeds its budget.
struct two_sources {
  source_state first, second;
  auto recipe(std::size_t first_bytes) { return source{&first} | limit{first_bytes} | fallback{source{&second}}; }
};

using falling_back = fallback_resource<source_resource, source_resource>;
static_assert(resource<falling_back>);
static_assert(device_accessible<falling_back> && host_accessible<falling_back> && host_ordered<falling_back>);

// The kind of memory is what both have in common.
using device_then_managed = made_by<decltype(device{} | fallback{managed{}})>;
static_assert(device_accessible<device_then_managed> && !host_accessible<device_then_managed>);
using managed_then_pinned = made_by<decltype(managed{} | fallback{pinned{}})>;
static_assert(device_accessible<managed_then_pinned> && host_accessible<managed_then_pinned>);
using pinned_then_host = made_by<decltype(pinned{} | fallback{host{}})>;
static_assert(!device_accessible<pinned_then_host> && host_accessible<pinned_then_host>);
static_assert(knows_blocks<made_by<decltype(device{} | pool{} | fallback{managed{} | pool{}})>>);
static_assert(!knows_blocks<made_by<decltype(device{} | pool{} | fallback{managed{}})>>);

}  // namespace

TEST_CASE("what the first serves never reaches the second") {
  two_sources s;
  auto memory = make(s.recipe(1_MiB));
  CHECK(memory.allocate(on, 0) == nullptr);
  memory.deallocate(on, nullptr, 0);
  void* const p = memory.allocate(on, 1000, 512);
  CHECK(s.first.live_bytes == 1000);
  memory.deallocate(on, p, 1000, 512);
  CHECK(s.first.live_count == 0);
  CHECK(s.second.calls == 0);
}

TEST_CASE("each block goes back to the stack that it is from") {
  two_sources s;
  auto memory = make(s.recipe(2_KiB));
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(memory.allocate(on, 1_KiB));
  CHECK(s.first.live_count == 2);
  CHECK(s.second.live_count == 4);
  memory.deallocate(on, blocks[3], 1_KiB);
  CHECK(s.second.live_count == 3);
  memory.deallocate(on, blocks[0], 1_KiB);
  CHECK(s.first.live_count == 1);
  blocks[0] = memory.allocate(on, 1_KiB);  // there is room in the first again
  CHECK(s.first.live_count == 2);
  fallback_numbers const n = memory.numbers();
  CHECK(n.first_requests == 3);
  CHECK(n.first_bytes == 3_KiB);
  CHECK(n.second_requests == 4);
  CHECK(n.second_bytes == 4_KiB);
  CHECK(n.second_live == 3);
  CHECK(n.second_live_bytes == 3_KiB);
  for (std::size_t i : {0u, 1u, 2u, 4u, 5u}) memory.deallocate(on, blocks[i], 1_KiB);
  CHECK(s.first.live_count == 0);
  CHECK(s.second.live_count == 0);
  CHECK(memory.numbers().second_live == 0);
}

TEST_CASE("a free after several streams reaches the stack that the block is from, without a wait") {
  watched_world const world;
  auto memory = make(device{} | pool{.max_bytes = 1_MiB} | fallback{managed{} | pool{}});
  weir::stream const a, b;
  for (std::size_t const bytes : {1_MiB, 4_MiB}) {
    void* const p = memory.allocate(a, bytes);
    CHECK(memory.numbers().second_live == (bytes == 4_MiB ? 1 : 0));
    write(a, p, bytes);
    order(a, b);
    sim::touch(b.get(), p, bytes, sim::access::read);
    auto const waits = sim::calls("cudaStreamSynchronize") + sim::calls("cudaEventSynchronize");
    deallocate_after(memory, a, p, bytes, {b});
    CHECK(sim::calls("cudaStreamSynchronize") + sim::calls("cudaEventSynchronize") == waits);
    CHECK(memory.numbers().second_live == 0);
  }
  a.synchronize();
  b.synchronize();
}

TEST_CASE("what both refuse is refused in the words of both") {
  two_sources s;
  s.second.fail = failing::out_of_memory;
  auto memory = make(source{&s.first} | limit{1_KiB} | fallback{source{&s.second} | limit{4_KiB}, "search"});
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(on, 2_KiB); });
  CHECK(
      contains(what, "refused by limit; chain: search: fallback(limit(4.00 KiB) > source) > limit(1.00 KiB) > source"));
  CHECK(contains(what,
                 "the first served 0 requests of 0 B, the second 0 of 0 B, 0 of them live with 0 B; 1 refused by "));
  CHECK(contains(what, "the second refused too: source; the first:"));
  CHECK(contains(what, "limit      4.00 KiB, 0 B charged"));  // the second's line
  CHECK(contains(what, "limit      1.00 KiB, 0 B charged"));
  s.second.fail = failing::null;
  CHECK(contains(message_of<out_of_memory>([&] { memory.allocate(on, 2_KiB); }), "refused too"));
  CHECK(memory.numbers().refused == 2);
  CHECK(memory.numbers().second_live == 0);
}

TEST_CASE("only what is out of memory is asked for again, and other failures of the second pass through") {
  two_sources s;
  auto memory = make(s.recipe(1_KiB));
  s.first.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(on, 256), std::logic_error);
  CHECK(s.second.calls == 0);
  s.first.fail = failing::null;
  s.second.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(on, 256), std::logic_error);
  s.second.fail = failing::no;
  void* const p = memory.allocate(on, 256);
  CHECK(s.second.live_count == 1);
  memory.deallocate(on, p, 256);
}

TEST_CASE("a plain bad_alloc of a resource of one's own is a refusal") {
  two_sources s;
  auto memory = make(source{&s.first} | fallback{source{&s.second}});
  s.first.fail = failing::bad_alloc;
  void* const p = memory.allocate(on, 256);
  CHECK(s.second.live_count == 1);
  memory.deallocate(on, p, 256);
  s.second.fail = failing::out_of_memory;
  std::string refused = "with a report";
  try {
    memory.allocate(on, 256);
  } catch (out_of_memory const&) {
  } catch (std::bad_alloc const&) {
    refused = "by the first";
  }
  CHECK(refused == "by the first");
  s.first.fail = failing::out_of_memory;
  s.second.fail = failing::bad_alloc;
  CHECK(
      contains(message_of<out_of_memory>([&] { memory.allocate(on, 256); }), "the second refused too: std::bad_alloc"));
  CHECK(memory.numbers().refused == 2);
  CHECK(memory.numbers().second_live == 0);
}

TEST_CASE("a wrong free of the second's block is reported there, and the right one still works") {
  fresh_world const world;
  auto memory = make(host{} | limit{256} | fallback{host{} | pool{}});
  void* const p = memory.allocate(on, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(on, p, 5000);
    CHECK(misuse.count() == 1);
    CHECK(contains(misuse.last(), "pool"));
  }
  CHECK(memory.numbers().second_live == 1);
  CHECK(memory.numbers().second_live_bytes == 1000);
  caught_misuse const none;
  memory.deallocate(on, p, 1000);
  CHECK(none.count() == 0);
  CHECK(memory.numbers().second_live == 0);
  CHECK(memory.second().numbers().live() == 0);
}

TEST_CASE("a size that the second does not check is not what counts as live") {
  two_sources s;
  auto memory = make(s.recipe(1_KiB));
  void* const p = memory.allocate(on, 2000);
  void* const q = memory.allocate(on, 3000);
  memory.deallocate(on, p, 6000);
  CHECK(memory.numbers().second_live_bytes == 3000);
  memory.deallocate_after(on, q, 1, {});
  CHECK(memory.numbers().second_live_bytes == 0);
}

TEST_CASE("a budget above charges each block the same, whosever it is") {
  fresh_world const world;
  auto memory = make(host{} | limit{1_KiB} | fallback{host{} | fixed_size{.block_bytes = 4_KiB}} | limit{1_MiB});
  void* const p = memory.allocate(on, 100);
  void* const q = memory.allocate(on, 2000);
  CHECK(memory.used() == 8_KiB);
  memory.deallocate(on, p, 100);
  CHECK(memory.used() == 4_KiB);
  memory.deallocate(on, q, 2000);
  CHECK(memory.used() == 0);
}

TEST_CASE("the second is asked by trim, numbers and find, and described") {
  fresh_world const world;
  auto memory =
      make(device{} | limit{1_MiB} | fallback{managed{} | pool{} | limit{.max_bytes = 8_MiB, .name = "slow"}});
  weir::stream const s;
  memory.deallocate(s, memory.allocate(s, 2_MiB), 2_MiB);
  CHECK(find_limit(memory, "slow").peak() == 2_MiB);
  auto const all = numbers(memory);
  REQUIRE(all.size() == 6);
  CHECK(all[0].layer == "fallback");
  CHECK(all[1].name == "slow");
  CHECK(all[1].depth == 1);
  CHECK(all[4].layer == "limit");
  CHECK(contains(report_of(memory).chain(), "fallback(slow: limit(8.00 MiB) > pool > managed"));
  CHECK(sim::live_allocations() == 1);
  synchronize(memory);
  CHECK(trim(memory) != 0);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("the second may be a stack that others use") {
  fresh_world const world;
  auto shared = make(pinned{} | pool{});
  auto memory = make(managed{} | limit{256} | fallback{share(shared)});
  void* const p = memory.allocate(host_order, 1000);
  CHECK(shared.numbers().live() == 1);
  memory.deallocate(host_order, p, 1000);
  CHECK(shared.numbers().live() == 0);
  CHECK(&memory.second().upstream() == &shared);
}

TEST_CASE("wrong options of the second are refused before the first is made") {
  source_state state;
  int made = 0;
  auto const first = [&] { return ++made, source{&state}(); };
  auto const refusal = [&](auto const& second) {
    return message_of<std::invalid_argument>([&] { static_cast<void>(make(first | fallback{second})); });
  };
  CHECK(refusal(source{&state} | limit{}).starts_with("weir: fallback: the second: limit: "));
  CHECK(refusal(source{&state} | limit{} | fixed_size{}).starts_with("weir: fallback: the second: fixed_size: "));
  CHECK(refusal(source{&state} | limit{} | pool{}).starts_with("weir: fallback: the second: limit: "));
  CHECK(refusal(virtual_memory{.chunk_bytes = 3} | pool{}).starts_with("weir: fallback: the second: virtual_memory: "));
  CHECK(refusal(source{&state} | fallback{source{&state} | limit{}})
            .starts_with("weir: fallback: the second: fallback: the second: limit: "));
  CHECK(made == 0);
  auto const memory = make(first | fallback{source{&state} | limit{1_MiB}});
  CHECK(made == 1);
}

TEST_CASE("two devices are refused when it is made") {
  fresh_world const world;
  std::string const what = message_of<std::invalid_argument>(
      [] { static_cast<void>(make(device{.device = 0} | fallback{managed{.device = 1}})); });
  CHECK(contains(what, "the first stack is for device 0, the second for device 1"));
  auto on_one = make(device{.device = 1} | fallback{managed{.device = 1}});
  CHECK(device_of(on_one) == 1);
}

TEST_CASE("in a capture the second serves what the first refuses, and keeps it for the graph") {
  watched_world const world;
  auto memory = make(device{} | pool{.max_bytes = 1_MiB} | fallback{managed{} | pool{}} | limit{64_MiB});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  void* const p = memory.allocate(s, 4_MiB);
  write(s, p, 4_MiB);
  memory.deallocate(s, p, 4_MiB);
  captured_graph const graph(s);
  CHECK(memory.captured() == 4_MiB);
  CHECK(memory.used() == 4_MiB);
  graph.launch(s);
  s.synchronize();
  release_captured(memory);
  CHECK(memory.used() == 0);
}

TEST_CASE("what a capture uses of the first again is not charged twice, though the second would take more") {
  watched_world const world;
  auto memory = make(device{} | pool{} | fallback{pinned{} | fixed_size{.block_bytes = 64_KiB}} | limit{256_KiB});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  void* const kept = memory.allocate(s, 8_KiB);
  memory.deallocate(s, memory.allocate(s, 4_KiB), 4_KiB);
  memory.deallocate(s, kept, 8_KiB);
  for (int i = 0; i < 10; ++i) {
    void* const p = memory.allocate(s, 4_KiB);
    CHECK(memory.used() == 128_KiB);
    CHECK(memory.captured() == 64_KiB);
    memory.deallocate(s, p, 4_KiB);
  }
  memory.set_max_bytes(128_KiB);
  memory.deallocate(s, memory.allocate(s, 4_KiB), 4_KiB);  // the budget has no room for it twice
  captured_graph const graph(s);
  release_captured(memory);
  CHECK(memory.used() == 0);
}

TEST_CASE("threads that pass blocks of both stacks around") {
  source_state first, second;
  {
    auto memory = make(source{&first} | limit{16_KiB} | fallback{source{&second}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&memory] {
        std::vector<void*> mine;
        for (int i = 0; i < 500; ++i) {
          mine.push_back(memory.allocate(on, 1_KiB));
          if (mine.size() < 12) continue;
          for (void* const p : mine) memory.deallocate(on, p, 1_KiB);
          mine.clear();
        }
        for (void* const p : mine) memory.deallocate(on, p, 1_KiB);
      });
    for (auto& thread : threads) thread.join();
    fallback_numbers const n = memory.numbers();
    CHECK(n.first_requests + n.second_requests == 2000);
    CHECK(n.second_live == 0);
    CHECK(n.second_live_bytes == 0);
  }
  CHECK(first.live_count == 0);
  CHECK(second.live_count == 0);
}

// ---- growable memory

static_assert(!growable<made_by<decltype(virtual_memory{} | fallback{device{}})>>);

TEST_CASE("a pool on it takes segments of memory that could grow, so that both stacks can serve it") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 4_MiB} | fallback{device{}} | pool{});
  void* const first = memory.allocate(host_order, 4_MiB);
  void* const second = memory.allocate(host_order, 6_MiB);
  CHECK(memory.upstream().numbers().first_bytes == 4_MiB);
  CHECK(memory.upstream().numbers().second_bytes == 6_MiB);
  memory.deallocate(host_order, first, 4_MiB);
  memory.deallocate(host_order, second, 6_MiB);
}

TEST_CASE("a pool below it grows in place, and the second serves what does not even fit so") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 10_MiB} | pool{} | fallback{device{}});
  void* blocks[5];
  for (void*& p : blocks) p = memory.allocate(host_order, 2_MiB);
  for (int i : {0, 2, 4}) memory.deallocate(host_order, blocks[i], 2_MiB);
  void* const in_place = memory.allocate(host_order, 6_MiB);
  CHECK(memory.numbers().second_requests == 0);
  void* const beside = memory.allocate(host_order, 2_MiB);
  CHECK(memory.numbers().second_bytes == 2_MiB);
  memory.deallocate(host_order, beside, 2_MiB);
  memory.deallocate(host_order, in_place, 6_MiB);
  for (int i : {1, 3}) memory.deallocate(host_order, blocks[i], 2_MiB);
}
