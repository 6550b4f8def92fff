// What `limit` and `statistics` count over other layers: what a request takes there, whatever those do.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "support/captures.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t any_size = std::numeric_limits<std::size_t>::max();

/// Allocates until it is refused; returns how many requests were served, all freed by then.
template <class Memory>
std::size_t served_until_refused(Memory& memory, std::size_t bytes, std::size_t alignment) {
  std::vector<void*> live;
  try {
    while (live.size() < 1000) live.push_back(memory.allocate(host_order, bytes, alignment));
  } catch (out_of_memory const&) {
  }
  std::size_t const served = live.size();
  for (void* const p : live) memory.deallocate(host_order, p, bytes, alignment);
  return served;
}

/// Makes a resource that does not say that it knows the host's order, and counts what it is asked.
struct only_streams {
  struct state {
    int asked = 0, given_back = 0, in_host_order = 0;
  };
  struct made {
    state* calls;
    void* allocate(stream_ref stream, std::size_t, std::size_t) noexcept {
      ++calls->asked;
      calls->in_host_order += stream.is_host_order() ? 1 : 0;
      return calls;
    }
    void deallocate(stream_ref stream, void*, std::size_t, std::size_t) noexcept {
      ++calls->given_back;
      calls->in_host_order += stream.is_host_order() ? 1 : 0;
    }
  };
  state* calls;
  made operator()() const noexcept { return {calls}; }
};

/// A pool below a budget, and streams to capture on.
template <class Below>
struct budget_over {
  explicit budget_over(Below const& recipe, std::size_t bytes)
      : below(make(recipe)), memory(make(share(below) | limit{bytes})) {}

  /// All that the pool has handed out or keeps for graphs is what the budget charges, no more and no less.
  void expect_exact() {
    auto const n = find<pool_resource>(below).numbers();
    CHECK(memory.used() == n.allocated.current + n.captured);
    CHECK(memory.captured() == n.captured);
    CHECK(memory.used() <= memory.max_bytes());
  }

  watched_world const world;
  made_by<Below> below;
  made_by<decltype(share(std::declval<made_by<Below>&>()) | limit{})> memory;
};
constexpr auto pool_on_device = device{} | pool{};

/// Captures `work()` on a stream.
template <class F>
void capture(stream_ref s, F work) {
  begin_capture(s);
  work();
  captured_graph const graph(s);
}

}  // namespace

TEST_CASE("a large alignment over a source is charged with its padding") {
  watched_world const world;
  auto const check = [](auto const& source) {
    auto memory = make(source | limit{6_MiB});
    CHECK(taken(memory, 256, 2_MiB) == 2_MiB);
    CHECK(taken(memory, 1000, 256) == 1000);
    CHECK(served_until_refused(memory, 256, 2_MiB) == 3);
    CHECK(memory.peak() == 6_MiB);
    CHECK(memory.used() == 0);
  };
  check(device{});
  check(async{});
  check(managed{});
  check(pinned{});
  check(host{});
}

TEST_CASE("what a source keeps for good, as freed in a capture, stays charged: no budget is exceeded by it") {
  watched_world const world(sim::mode::immediate);
  sim::set_pageable_access(true);
  auto const check = [](auto const& recipe) {
    auto source = make(recipe);
    auto below = make(share(source) | limit{8_MiB});
    auto memory = make(share(below) | limit{2_MiB} | statistics{});
    auto& budget = find<limit_resource>(memory);
    weir::stream const s;
    void* const p = memory.allocate(host_order, 2_MiB);
    capture(s, [&] { memory.deallocate(s, p, 2_MiB); });
    release_captured(memory);
    CHECK(budget.used() == 2_MiB);
    CHECK(budget.kept() == 2_MiB);
    CHECK(budget.captured() == 0);
    CHECK(below.used() == 2_MiB);
    CHECK(memory.numbers().live() == 0);  // the program has nothing left
    std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 1)); });
    CHECK(contains(what, "2.00 MiB charged, 0 B left; peak 2.00 MiB, 1 refused; 2.00 MiB were kept for good"));
    CHECK(contains(what, "was kept for good, as sources keep what is freed in a capture: put a pool below it"));
    source.deallocate(host_order, p, 2_MiB);
  };
  check(async{});
  check(device{});
  check(managed{});
  check(pinned{});
  check(host{});
  check(weir::system{});
  check(virtual_memory{});
  auto const take = [](stream_ref, std::size_t bytes, std::size_t a) { return std::aligned_alloc(a, bytes); };
  auto const give = [](stream_ref, void* p, std::size_t, std::size_t) { std::free(p); };
  check(host_callback{.allocate = take, .deallocate = give});
}

TEST_CASE("what nobody can wait for is kept for good and stays charged, after one stream and after several") {
  watched_world const world;
  auto const check = [](auto const& recipe, std::string const& hint) {
    auto memory = make(recipe | limit{4_MiB});
    destroyable_stream const a, b;
    void* const p = memory.allocate(host_order, 1_MiB);
    void* const q = memory.allocate(host_order, 1_MiB);
    sim::fail_from(1, cudaErrorUnknown);
    memory.deallocate(a, p, 1_MiB);
    memory.deallocate_after(a, q, 1_MiB, {b});
    sim::clear_failure();
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(memory.used() == 2_MiB);
    CHECK(memory.kept() == 2_MiB);
    std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 4_MiB)); });
    CHECK(contains(what, hint));
  };
  std::string const kept = "the budget of limit is held by what was kept for good, ";
  std::string const no_pool = kept + "as sources keep what is freed in a capture: put a pool below it";
  std::string const with_pool =
      kept + "where a free could not be finished: raise it (set_max_bytes), or make the stack anew";
  check(device{}, no_pool);
  check(async{}, no_pool);
  check(device{} | pool{}, with_pool);
  check(any_resource(device{} | pool{} | statistics{}), with_pool);
}

TEST_CASE("what a pool has no room to keep for a capture stays live for good, and charged") {
  watched_world const world;
  capture_scope const declared;
  auto memory = make(device{} | pool{} | limit{200_MiB});
  auto const& below = memory.upstream();
  weir::stream const s;
  std::vector<void*> blocks(200);
  for (void*& p : blocks) p = memory.allocate(s, 1_MiB);
  for (void* const p : blocks) capture(s, [&] { memory.deallocate(s, p, 1_MiB); });  // no request in between
  std::size_t const lost = below.numbers().allocated.current;
  CHECK(lost != 0);
  CHECK(memory.used() == 200_MiB);
  CHECK(memory.kept() == lost);
  CHECK(memory.captured() == 200_MiB - lost);
  release_captured(memory);
  CHECK(memory.used() == lost);
}

TEST_CASE("a request is charged with the block that serves it") {
  watched_world const world;
  SUBCASE("of a fixed size") {
    auto memory = make(device{} | fixed_size{.block_bytes = 1_MiB} | limit{4_MiB});
    CHECK(served_until_refused(memory, 1, 256) == 4);
  }
  SUBCASE("of a bin, and of the upstream above the bins") {
    auto memory = make(device{} | binning{{bin{256_KiB}, bin{1_MiB}}} | limit{4_MiB});
    CHECK(served_until_refused(memory, 256_KiB + 1, 256) == 4);
    CHECK(served_until_refused(memory, 1, 256) == 16);
    CHECK(taken(memory, 3_MiB, 1_MiB) == 4_MiB - 256);
  }
  SUBCASE("behind layers whose types are forgotten") {
    auto blocks = make(device{} | fixed_size{.block_bytes = 1_MiB} | statistics{});
    auto by_reference = make(any_ref(blocks) | limit{4_MiB});
    CHECK(served_until_refused(by_reference, 1, 256) == 4);
    auto owned = make(any_resource(device{} | fixed_size{.block_bytes = 1_MiB}) | limit{4_MiB});
    CHECK(served_until_refused(owned, 1, 256) == 4);
  }
  SUBCASE("of a pool or an arena, which cut what an alignment needs to its size again") {
    auto memory = make(device{} | pool{} | limit{4_MiB});
    CHECK(taken(memory, 257, 2_MiB) == 512);
    auto threads = make(device{} | arena{} | limit{4_MiB});
    CHECK(taken(threads, 257, 2_MiB) == 512);
  }
  SUBCASE("that is kept whole: the segment made for it") {
    auto memory = make(device{} | pool{.max_split_bytes = 1_MiB} | limit{64_MiB});
    void* const p = memory.allocate(host_order, 1_MiB + 1);
    CHECK(memory.used() == 2_MiB);
    CHECK(find<pool_resource>(memory).numbers().allocated.current == 2_MiB);
    memory.deallocate(host_order, p, 1_MiB + 1);
  }
}

TEST_CASE("the numbers of a statistics say what requests take") {
  watched_world const world;
  auto memory = make(device{} | statistics{});
  void* const p = memory.allocate(host_order, 1000, 4096);
  CHECK(memory.numbers().requested.current == 1000);
  CHECK(memory.numbers().allocated.current == 4864);  // 1000 + 4096 - 256, rounded up to 256
  memory.deallocate(host_order, p, 1000, 4096);
  CHECK(memory.numbers().allocated == counter{0, 4864, 4864});
}

TEST_CASE(
    "sizes and alignments that cannot be added up are refused, and alignments that are none by who honours them") {
  watched_world const world;
  auto memory = make(device{} | limit{8_MiB});
  for (std::size_t const bytes : {any_size, any_size - 2_MiB, any_size - 2_MiB + 256, any_size - 2_MiB + 257})
    CHECK_THROWS_AS(memory.allocate(host_order, bytes, 2_MiB), out_of_memory);
  CHECK_THROWS_AS(memory.allocate(host_order, 64, any_size), std::invalid_argument);
  CHECK_THROWS_AS(memory.allocate(host_order, 64, 4_MiB), std::invalid_argument);
  CHECK(memory.used() == 0);
}

TEST_CASE("what captures freed stays charged until it is released: graphs cannot evade a budget") {
  budget_over over(pool_on_device, 4_MiB);
  weir::stream const s;
  capture_scope const declared;
  std::uint64_t ids[5] = {};
  auto const one = [&](std::uint64_t& id) {
    capture(s, [&] {
      id = capture_id(s);
      over.memory.deallocate(s, over.memory.allocate(s, 1_MiB), 1_MiB);
    });
  };
  for (int i = 0; i < 4; ++i) one(ids[i]);
  CHECK(over.memory.used() == 4_MiB);
  CHECK_THROWS_AS(one(ids[4]), out_of_memory);
  cudaGraph_t refused = nullptr;
  CHECK(cudaStreamEndCapture(s.get(), &refused) == cudaSuccess);
  CHECK(cudaGraphDestroy(refused) == cudaSuccess);
  over.expect_exact();
  CHECK(contains(report_of(over.memory).lines(), "4.00 MiB charged (4.00 MiB of it captured), 0 B left"));

  over.below.release_captured(ids[1]);
  one(ids[4]);  // the budget asks what was released
  over.expect_exact();
  over.below.release_captured();
  CHECK(over.memory.used() == 0);
  CHECK(over.memory.peak() == 4_MiB);
}

TEST_CASE("a budget that nobody asks does not collect captures whose memory was released") {
  budget_over over(pool_on_device, 4_MiB);
  weir::stream const s;
  capture_scope const declared;
  for (int i = 0; i < 1000; ++i) {
    capture(s, [&] { over.memory.deallocate(s, over.memory.allocate(s, 1_KiB), 1_KiB); });
    over.below.release_captured();
  }
  CHECK(over.memory.peak() < 200_KiB);
  CHECK(over.memory.used() == 0);
}

TEST_CASE("a capture uses what it freed again and is not charged for it twice") {
  budget_over over(pool_on_device, 2_MiB);
  weir::stream const s;
  capture_scope const declared;
  capture(s, [&] {
    for (int i = 0; i < 10; ++i) {
      over.memory.deallocate(s, over.memory.allocate(s, 640_KiB), 640_KiB);
      over.expect_exact();
    }
    CHECK(over.memory.used() == 640_KiB);
    void* const larger = over.memory.allocate(s, 1_MiB);  // more than it freed
    over.expect_exact();
    over.memory.deallocate(s, larger, 1_MiB);
    over.expect_exact();
  });
  over.below.release_captured();
  over.expect_exact();
}

TEST_CASE("a full budget serves a capture from what that keeps, and from nothing else") {
  budget_over over(pool_on_device, 1_MiB);
  weir::stream const s;
  capture_scope const declared;
  capture(s, [&] {
    void* const a = over.memory.allocate(s, 256_KiB);
    void* const between = over.memory.allocate(s, 512_KiB);
    void* const b = over.memory.allocate(s, 256_KiB);
    over.memory.deallocate(s, a, 256_KiB);
    over.memory.deallocate(s, b, 256_KiB);
    auto const before = over.below.numbers();
    // 512 KiB are kept, but not in one piece: taking others would exceed the budget.
    CHECK_THROWS_AS(over.memory.allocate(s, 512_KiB), out_of_memory);
    over.expect_exact();
    CHECK(over.below.numbers().reserved.current == before.reserved.current);
    CHECK(over.below.numbers().captured == before.captured);
    CHECK(over.memory.refused() == 1);
    void* const again = over.memory.allocate(s, 256_KiB);
    over.expect_exact();
    over.memory.deallocate(s, again, 256_KiB);
    over.memory.deallocate(s, between, 512_KiB);
    over.expect_exact();
  });
  // Not what another capture keeps, and not for a stream that captures nothing.
  weir::stream const other;
  CHECK_THROWS_AS(over.memory.allocate(other, 256_KiB), out_of_memory);
  capture(other, [&] { CHECK_THROWS_AS(over.memory.allocate(other, 256_KiB), out_of_memory); });
  over.expect_exact();
}

TEST_CASE("a full budget asks no source for what only a capture's own memory may serve") {
  watched_world const world;
  auto bins = make(device{} | binning{{bin{256_KiB, pool{}}}} | limit{1_MiB});
  auto two = make(device{} | pool{} | fallback{pinned{}} | limit{1_MiB});
  weir::stream const s;
  capture_scope const declared;
  auto const refuse_in_capture = [&](auto& memory) {
    void* live[4];
    for (void*& p : live) p = memory.allocate(s, 256_KiB);
    memory.deallocate(s, live[0], 256_KiB);
    memory.deallocate(s, live[2], 256_KiB);
    std::size_t const blocks = sim::live_allocations();
    // 512 KiB are kept, but not in one piece. What a source gave now it could not take back in the capture.
    CHECK_THROWS_AS(memory.allocate(s, 512_KiB), out_of_memory);
    CHECK(sim::live_allocations() == blocks);
    CHECK(memory.used() == 1_MiB);
    memory.deallocate(s, live[1], 256_KiB);
    memory.deallocate(s, live[3], 256_KiB);
  };
  capture(s, [&] { refuse_in_capture(bins); });
  capture(s, [&] { refuse_in_capture(two); });
}

TEST_CASE("what a capture allocated and others free later is kept and charged, too") {
  budget_over over(pool_on_device, 4_MiB);
  weir::stream const s, other;
  capture_scope const declared;
  void *result = nullptr, *late = nullptr;
  capture(s, [&] {
    result = over.memory.allocate(s, 1_MiB);
    late = over.memory.allocate(s, 1_MiB);
  });
  over.memory.deallocate(other, result, 1_MiB);
  over.expect_exact();
  CHECK(over.memory.used() == 2_MiB);
  over.below.release_captured();
  CHECK(over.memory.used() == 1_MiB);
  over.memory.deallocate(other, late, 1_MiB);  // its capture is released: a free like others
  CHECK(over.memory.used() == 0);
  over.expect_exact();
}

TEST_CASE("budgets in budgets, and above layers whose types are forgotten, hear what is kept and what is released") {
  watched_world const world;
  auto below = make(device{} | binning{{bin{1_MiB, pool{}}}} | statistics{});
  auto erased = make(any_resource(any_ref(below) | limit{.max_bytes = 8_MiB, .name = "inner"}) | limit{4_MiB});
  weir::stream const s;
  capture_scope const declared;
  capture(s, [&] { erased.deallocate(s, erased.allocate(s, 1_MiB), 1_MiB); });
  CHECK(erased.used() == 1_MiB);
  CHECK(contains(report_of(erased).lines(), "8.00 MiB, 1.00 MiB charged (1.00 MiB of it captured)"));
  find<binning_resource>(below).release_captured();
  CHECK(erased.used() == 0);
  CHECK(contains(report_of(erased).lines(), "8.00 MiB, 0 B charged,"));
}

TEST_CASE("whatever captures do on two streams, the budget is what the pool hands out and keeps") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    budget_over over(device{} | pool{.growth_bytes = 1_MiB}, 6_MiB);
    std::minstd_rand random(seed);
    weir::stream const streams[2];
    capture_scope const declared;
    std::vector<std::pair<void*, std::size_t>> live;
    auto const churn = [&](int steps, stream_ref s) {
      for (int i = 0; i < steps; ++i) {
        if (!live.empty() && random() % 2 == 0) {
          std::swap(live[random() % live.size()], live.back());
          over.memory.deallocate(s, live.back().first, live.back().second);
          live.pop_back();
        } else {
          std::size_t const bytes = 1 + random() % (random() % 4 == 0 ? 2_MiB : 100_KiB);
          try {
            live.emplace_back(over.memory.allocate(s, bytes), bytes);
          } catch (out_of_memory const&) {
          }
        }
        over.expect_exact();
      }
    };
    for (int round = 0; round < 6; ++round) {
      churn(20, streams[random() % 2]);
      stream_ref const s = streams[random() % 2];
      capture(s, [&] { churn(30, s); });
      if (round % 2 == 1) over.below.release_captured();
      over.expect_exact();
    }
    for (auto const& [p, bytes] : live) over.memory.deallocate(streams[0], p, bytes);
    over.below.release_captured();
    CHECK(over.memory.used() == 0);
  }
}

TEST_CASE("a free that a layer below finds wrong is reported by that, with the pointer, and counted nowhere") {
  watched_world const world;
  auto const check = [](auto const& pooled, char const* who) {
    auto memory = make(pooled | limit{.max_bytes = 4_MiB, .name = "search"} | statistics{.name = "search"});
    auto& budget = find<limit_resource>(memory);
    auto const misused = [&](void* p, std::size_t bytes) {
      auto const numbers = memory.numbers();
      std::size_t const used = budget.used();
      caught_misuse const misuse;
      memory.deallocate(host_order, p, bytes);
      CHECK(misuse.count() == 1);
      CHECK(contains(misuse.last(), std::string("weir: ") + who + ": deallocate of " + detail::hex(p)));
      CHECK(memory.numbers() == numbers);
      CHECK(budget.used() == used);
    };
    void* const p = memory.allocate(host_order, 1000);
    void* const q = memory.allocate(host_order, 1000);
    misused(p, 2000);
    misused(p, 999);
    misused(&budget, 1000);
    memory.deallocate(host_order, p, 1000);
    misused(p, 1000);  // twice, while another block is live
    memory.deallocate(host_order, q, 1000);
    misused(q, 1000);  // twice, with nothing live at all
    CHECK(budget.used() == 0);
    CHECK(memory.numbers().allocations.current == 0);
  };
  check(device{} | pool{}, "pool");
  check(device{} | fixed_size{.block_bytes = 2000}, "fixed_size");
  check(device{} | arena{}, "arena");
  auto below = make(device{} | pool{});
  check(share(below), "pool");
}

TEST_CASE("a wrong free counts nowhere, though the misuse handler frees memory of another stack") {
  watched_world const world;
  static auto* notes = static_cast<any_host_resource*>(nullptr);
  any_host_resource elsewhere(host{} | statistics{});
  notes = &elsewhere;
  auto memory = make(device{} | pool{} | limit{4_MiB} | statistics{});
  void* const p = memory.allocate(host_order, 4096);
  misuse_handler const before = set_misuse_handler(
      [](char const*) noexcept { notes->deallocate(host_order, notes->allocate(host_order, 100), 100); });
  memory.deallocate(host_order, p, 4096, 512);
  set_misuse_handler(before);
  CHECK(memory.upstream().used() == 4096);
  CHECK(memory.numbers().live() == 1);
  memory.deallocate(host_order, p, 4096);
  CHECK(memory.upstream().used() == 0);
}

TEST_CASE("a right free counts, though giving the segment of its block back is reported") {
  watched_world const world;
  auto const check = [](auto const& pooled) {
    auto memory = make(pooled | limit{64_MiB} | statistics{} | tracking{.report_leaks = false});
    void* const p = memory.allocate(host_order, 32_MiB);
    caught_misuse const misuse;
    sim::fail_call("cudaFree", 1, cudaErrorInvalidValue);
    memory.deallocate(host_order, p, 32_MiB);
    CHECK(misuse.count() == 1);
    CHECK(find<limit_resource>(memory).used() == 0);
    CHECK(find<statistics_resource>(memory).numbers().live() == 0);
    CHECK(memory.numbers().live() == 0);
  };
  check(device{} | pool{.release_threshold = 0});
  check(device{} | binning{{bin{64_MiB, pool{.release_threshold = 0}}}});
}

TEST_CASE("a scope, too, takes back what it counted of a wrong free") {
  watched_world const world;
  auto memory = make(device{} | pool{} | statistics{});
  void* const p = memory.allocate(host_order, 1000);
  statistics_scope const scope(memory);
  caught_misuse const misuse;
  memory.deallocate(host_order, p, 500);
  CHECK(misuse.count() == 1);
  CHECK(scope.numbers() == memory_statistics{});
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("memory that passed a budget by is freed, and reported by the budget") {
  watched_world const world;
  auto memory = make(device{} | pool{} | limit{.max_bytes = 4_MiB, .name = "search"});
  void* const p = memory.upstream().allocate(host_order, 1000);
  caught_misuse const misuse;
  memory.deallocate(host_order, p, 1000);
  CHECK(misuse.count() == 1);
  CHECK(contains(misuse.last(),
                 "weir: search: limit: deallocate of " + detail::hex(p) + ": 1000 B aligned to 256 were given back"));
  CHECK(memory.upstream().numbers().allocated.current == 0);
}

TEST_CASE("an upstream that returns null is out of memory, says the layer above it, and counts nothing") {
  source_state state;
  state.fail = failing::null;
  auto memory = make(source{&state} | limit{1_MiB} | statistics{});
  std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 1000)); });
  CHECK(contains(what, "refused by a resource that returned null; chain: statistics > limit(1.00 MiB) > source\n"));
  CHECK(find<limit_resource>(memory).used() == 0);
  CHECK(find<limit_resource>(memory).peak() == 0);
  memory_statistics expected;
  expected.failures = 1;
  CHECK(memory.numbers() == expected);

  auto threads = make(source{&state} | arena{.max_bytes = 4_MiB});
  CHECK_THROWS_AS(threads.allocate(host_order, 1_MiB), out_of_memory);
  CHECK(threads.numbers().reserved.current == 0);
  state.fail = failing::no;
  threads.deallocate(host_order, threads.allocate(host_order, 3_MiB), 3_MiB);  // the budget is all there
}

TEST_CASE("a free in the host's order reaches an upstream that knows only streams on one, as the request did") {
  only_streams::state calls;
  auto const keep_to_streams = [&](auto const& recipe) {
    auto memory = make(recipe);
    calls = {};
    void* const p = memory.allocate(host_order, 1000);
    CHECK(calls.asked == 1);
    memory.deallocate(host_order, p, 1000);
    CHECK(calls.given_back == 1);
    CHECK(calls.in_host_order == 0);
  };
  only_streams const below{&calls};
  keep_to_streams(below | limit{1_MiB});
  keep_to_streams(below | limit{.max_bytes = 1_MiB, .soft_bytes = 256});
  keep_to_streams(below | statistics{});
  keep_to_streams(below | tracking{});
  keep_to_streams(below | trace{.events = 10});
}

TEST_CASE("an upstream whose describe throws does not take the place of the error") {
  source_state state;
  state.describe_throws = true;
  auto memory = make(source{&state} | limit{.max_bytes = 1_MiB, .name = "search"} | statistics{.name = "all"});
  try {
    static_cast<void>(memory.allocate(host_order, 2_MiB));
    FAIL("it was not refused");
  } catch (out_of_memory const& failure) {
    CHECK(failure.refused_by() == std::string("search: limit"));
    CHECK(contains(failure.what(), "chain: all: statistics > search: limit(1.00 MiB) > unknown\n"));
    CHECK(contains(failure.what(), "describe threw: no words"));
  }
}

TEST_CASE("the error tells which of two budgets refused") {
  source_state state;
  auto service = make(source{&state} | limit{.max_bytes = 1_MiB, .name = "service"});
  auto tenant = make(share(service) | limit{.max_bytes = 2_MiB, .name = "tenant"});
  auto const refused_by = [&](std::size_t bytes) {
    try {
      static_cast<void>(tenant.allocate(host_order, bytes));
    } catch (out_of_memory const& failure) {
      return std::string(failure.refused_by());
    }
    return std::string();
  };
  CHECK(refused_by(3_MiB) == "tenant: limit");
  CHECK(refused_by(2_MiB) == "service: limit");
  CHECK(contains(message_of<out_of_memory>([&] { static_cast<void>(tenant.allocate(host_order, 2_MiB)); }),
                 "refused by service: limit; chain: tenant: limit(2.00 MiB) > service: limit(1.00 MiB)"));
}
