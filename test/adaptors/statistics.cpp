// needs: tsan
#include <weir/adaptors/statistics.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/core/tag.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/opened.hpp"
#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"
#include "support/turns.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const legacy;
using counted = statistics_resource<source_resource>;
static_assert(resource<counted>);
/// Finds each free wrong while it is told to.
struct refusing_source {
  static constexpr bool host_ordered = true;
  void* allocate(stream_ref s, std::size_t n, std::size_t a) { return memory.allocate(s, n, a); }
  void deallocate(stream_ref s, void* p, std::size_t n, std::size_t a) noexcept {
    if (*refuses)
      detail::report_misuse("no");
    else
      memory.deallocate(s, p, n, a);
  }
  source_resource memory;
  bool* refuses;
};

using refused = statistics_resource<refusing_source>;
static_assert(device_accessible<counted> && host_accessible<counted> && host_ordered<counted>);

}  // namespace

namespace weir::test {
struct counters_of_statistics {
  using type = detail::statistics_counters refused::*;
  friend type member(counters_of_statistics);
};
template struct opened<counters_of_statistics, &refused::counters_>;
}  // namespace weir::test

TEST_CASE("what passes is counted: live, most and in all") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  void* const a = memory.allocate(legacy, 100);
  void* const b = memory.allocate(legacy, 300);
  memory.deallocate(legacy, a, 100);
  void* const c = memory.allocate(legacy, 50);
  memory_statistics const now = memory.numbers();
  CHECK(now.requested == counter{350, 400, 450});
  CHECK(now.allocated == counter{768, 768, 1024});
  CHECK(now.allocations == counter{2, 2, 3});
  CHECK(now.failures == 0);
  memory.deallocate(legacy, b, 300);
  memory.deallocate(legacy, c, 50);
  CHECK(memory.numbers().requested == counter{0, 400, 450});
  CHECK(memory.numbers().allocations.given_back() == 3);
  CHECK(state.live_count == 0);
}

TEST_CASE("a failure is counted as a failure and in nothing else, and passes through") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 1000); });
  CHECK(contains(what, "refused by source; chain: statistics > source"));
  CHECK(contains(what, "0 B requested in 0 live allocations"));
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(legacy, 1000), std::logic_error);
  memory_statistics expected;
  expected.failures = 2;
  CHECK(memory.numbers() == expected);
}

TEST_CASE("zero bytes are nothing") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  CHECK(memory.allocate(legacy, 0) == nullptr);
  memory.deallocate(legacy, nullptr, 0);
  CHECK(memory.numbers() == memory_statistics{});
  CHECK(state.calls == 0);
}

TEST_CASE("giving back more than is live is misuse: reported, ignored, and the numbers stay right") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  void* const p = memory.allocate(legacy, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(legacy, p, 1001);
    CHECK(misuse.count() == 1);
    CHECK(contains(misuse.last(), "1001 B"));
  }
  CHECK(memory.numbers().requested.current == 1000);
  memory.deallocate(legacy, p, 1000);
  caught_misuse const misuse;
  memory.deallocate(legacy, p, 1000);  // freed twice
  CHECK(misuse.count() == 1);
  CHECK(state.live_count == 0);
}

TEST_CASE("a free with an alignment that would take more than is live is misuse") {
  fresh_world const world;
  auto memory = make(device{} | statistics{});
  void* const p = memory.allocate(legacy, 1000);
  std::int64_t const allocated = memory.numbers().allocated.current;
  REQUIRE(taken(memory, 1000, 1_MiB) > static_cast<std::size_t>(allocated));
  caught_misuse const misuse;
  memory.deallocate(legacy, p, 1000, 1_MiB);
  CHECK(misuse.count() == 1);
  CHECK(memory.numbers().allocated.current == allocated);
  memory.deallocate(legacy, p, 1000);
  CHECK(misuse.count() == 1);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE("more frees than allocations are misuse even if the bytes add up") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  void* const p = memory.allocate(legacy, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(legacy, p, 0);
    CHECK(misuse.count() == 1);
    memory.deallocate(legacy, p, 400);
    CHECK(misuse.count() == 1);  // it cannot know yet
    memory.deallocate(legacy, p, 600);
    CHECK(misuse.count() == 2);
  }
  CHECK(memory.numbers().allocations.current == 0);
}

TEST_CASE("a free is counted before the upstream has the memory back") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  void* const p = memory.allocate(legacy, 1000);
  std::int64_t seen = -1;
  state.on_deallocate = [&] { seen = memory.numbers().allocations.current; };
  memory.deallocate(legacy, p, 1000);
  CHECK(seen == 0);
}

TEST_CASE("peaks can start again") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  memory.deallocate(legacy, memory.allocate(legacy, 5000), 5000);
  memory.reset_peaks();
  CHECK(memory.numbers().requested == counter{0, 0, 5000});
}

TEST_CASE("the summary shows the layer's numbers") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  void* const p = memory.allocate(legacy, 2048);
  CHECK(memory.summary("mine") == memory.numbers().summary("mine"));
  CHECK(contains(memory.summary(), "2.00 KiB"));
  memory.deallocate(legacy, p, 2048);
}

TEST_CASE("a scope sees what happens while it lives, and an outer one what its inner ones see") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  void* const before = memory.allocate(legacy, 1000);
  void *a = nullptr, *b = nullptr;
  statistics_scope outer(memory);
  a = memory.allocate(legacy, 10);
  {
    statistics_scope inner(memory);
    b = memory.allocate(legacy, 20);
    CHECK(inner.numbers().requested == counter{20, 20, 20});
    CHECK(outer.numbers().requested == counter{30, 30, 30});
    memory.deallocate(legacy, b, 20);
    CHECK(inner.numbers().requested == counter{0, 20, 20});
  }
  memory.deallocate(legacy, a, 10);
  CHECK(outer.numbers().requested == counter{0, 30, 30});
  CHECK(outer.numbers().allocations == counter{0, 2, 2});
  memory.deallocate(legacy, before, 1000);
  CHECK(outer.numbers().requested == counter{-1000, 30, 30});  // older memory: a balance, not a wrapped number
  CHECK(outer.numbers().requested.given_back() == 1030);
  CHECK(memory.numbers().requested == counter{0, 1030, 1030});
}

TEST_CASE("a scope counts the failures of its time") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  state.fail = failing::out_of_memory;
  CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
  statistics_scope scope(memory);
  CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
  CHECK(scope.numbers().failures == 1);
  CHECK(memory.numbers().failures == 2);
}

TEST_CASE("a scope belongs to one layer") {
  source_state state;
  auto first = make(source{&state} | statistics{});
  auto second = make(source{&state} | statistics{});
  statistics_scope of_first(first);
  statistics_scope of_second(second);
  void* const p = first.allocate(legacy, 10);
  CHECK(of_first.numbers().requested.current == 10);
  CHECK(of_second.numbers() == memory_statistics{});
  first.deallocate(legacy, p, 10);
}

TEST_CASE("a scope is opened on the top of a stack or on a handle to it") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  auto const handle = share(memory);
  statistics_scope scope(handle);
  void* const p = handle.allocate(legacy, 10);
  CHECK(scope.numbers().requested.current == 10);
  handle.deallocate(legacy, p, 10);
}

TEST_CASE("scopes may end in any order") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  std::optional<statistics_scope> first(std::in_place, memory);
  std::optional<statistics_scope> second(std::in_place, memory);
  first.reset();
  void* const p = memory.allocate(legacy, 10);
  CHECK(second->numbers().requested.current == 10);
  second.reset();
  memory.deallocate(legacy, p, 10);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("without by_tag no tag is counted") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  tag const scope{"decoder"};
  memory.deallocate(legacy, memory.allocate(legacy, 10), 10);
  CHECK(memory.numbers_by_tag().empty());
  CHECK_FALSE(contains(memory.summary(), "decoder"));
  CHECK_FALSE(contains(report_of(memory).lines(), "holders"));
}

TEST_CASE("by tag: a free counts for the tag that the block was allocated under, and what holds most comes first") {
  source_state state;
  auto memory = make(source{&state} | statistics{.by_tag = true});
  void *a = nullptr, *b = nullptr, *c = memory.allocate(legacy, 7);
  {
    tag const outer{"decoder"};
    a = memory.allocate(legacy, 1000);
    tag const inner{"decoder/ffn"};
    b = memory.allocate(legacy, 3000);
    memory.deallocate(legacy, a, 1000);
  }
  auto const found = memory.numbers_by_tag();
  REQUIRE(found.size() == 3);
  CHECK(found[0].tag == tag_name("decoder/ffn"));
  CHECK(found[0].numbers.requested == counter{3000, 3000, 3000});
  CHECK(found[0].numbers.allocated.current == 3072);
  CHECK(found[1].tag == tag_name());
  CHECK(found[1].numbers.requested == counter{7, 7, 7});
  CHECK(found[2].tag == tag_name("decoder"));
  CHECK(found[2].numbers.requested == counter{0, 1000, 1000});
  CHECK(found[2].numbers.allocations == counter{0, 1, 1});
  memory.deallocate(legacy, b, 3000);
  memory.deallocate(legacy, c, 7);
  memory.reset_peaks();
  for (tag_statistics const& each : memory.numbers_by_tag()) {
    CHECK(each.numbers.requested.current == 0);
    CHECK(each.numbers.requested.peak == 0);
  }
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("by tag: a block counts in a scope as well as for its tag") {
  source_state state;
  auto memory = make(source{&state} | statistics{.by_tag = true});
  tag const decoder{"decoder"};
  statistics_scope const scope(memory);
  void* const p = memory.allocate(legacy, 1000);
  CHECK(scope.numbers().requested == counter{1000, 1000, 1000});
  REQUIRE(memory.numbers_by_tag().size() == 1);
  CHECK(memory.numbers_by_tag()[0].numbers.requested == counter{1000, 1000, 1000});
  memory.deallocate(legacy, p, 1000);
  CHECK(scope.numbers().requested == counter{0, 1000, 1000});
  CHECK(memory.numbers_by_tag()[0].numbers.requested == counter{0, 1000, 1000});
}

TEST_CASE("by tag: the summary has a row a tag, and a refusal a line of the largest holders") {
  source_state state;
  auto memory = make(source{&state} | statistics{.by_tag = true});
  tag const scope{"decoder\n/kv"};
  void* const p = memory.allocate(legacy, 2048);
  CHECK(contains(memory.summary(), "| decoder\\n/kv                     |    2.00 KiB |    2.00 KiB |        1 |\n"));
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 1000); });
  CHECK(contains(what, "\n  holders    decoder\\n/kv 2.00 KiB in 1\n"));
  memory.deallocate(legacy, p, 2048);
}

TEST_CASE("by tag: a free that is reported as wrong leaves its block with its tag") {
  source_state state;
  bool refuses = true;
  auto memory = make([&] { return refusing_source{source_resource(state), &refuses}; } | statistics{.by_tag = true});
  void* p = nullptr;
  {
    tag const scope{"kept"};
    p = memory.allocate(legacy, 1000);
  }
  {
    caught_misuse const misuse;
    memory.deallocate(legacy, p, 1000);
    CHECK(misuse.count() == 1);
  }
  REQUIRE(memory.numbers_by_tag().size() == 1);
  CHECK(memory.numbers_by_tag()[0].numbers.requested == counter{1000, 1000, 1000});
  CHECK(memory.numbers().requested == counter{1000, 1000, 1000});
  refuses = false;
  memory.deallocate(legacy, p, 1000);
  CHECK(memory.numbers_by_tag()[0].numbers.requested == counter{0, 1000, 1000});
}

TEST_CASE("by tag: eight threads with a tag each that free what others allocated") {
  source_state state;
  auto memory = make(source{&state} | statistics{.by_tag = true});
  constexpr std::size_t threads = 8, rounds = 500;
  std::vector<std::vector<void*>> blocks(threads, std::vector<void*>(rounds));
  auto const run = [](auto work) {
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t) running.emplace_back(work, t);
    for (auto& thread : running) thread.join();
  };
  run([&](std::size_t t) {
    tag const scope{"thread " + std::to_string(t)};
    for (void*& p : blocks[t]) p = memory.allocate(legacy, 256 * (t + 1));
  });
  auto const all = memory.numbers_by_tag();
  REQUIRE(all.size() == threads);
  for (std::size_t t = 0; t < threads; ++t) {
    CHECK(all[threads - 1 - t].tag == tag_name("thread " + std::to_string(t)));
    CHECK(all[threads - 1 - t].numbers.requested.current == static_cast<std::int64_t>(256 * (t + 1) * rounds));
  }
  run([&](std::size_t t) {
    std::size_t const other = (t + 1) % threads;
    for (void* const p : blocks[other]) memory.deallocate(legacy, p, 256 * (other + 1));
  });
  for (tag_statistics const& each : memory.numbers_by_tag()) CHECK(each.numbers.live() == 0);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("eight threads: the layer's numbers are exact, and each scope sees its own thread only") {
  source_state state;
  auto memory = make(source{&state} | statistics{});
  statistics_scope mine(memory);
  constexpr int threads = 8, rounds = 2000;
  std::vector<std::thread> running;
  std::atomic<int> wrong{0};
  for (int t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      std::size_t const bytes = 256 * (static_cast<std::size_t>(t) + 1);
      auto const signed_bytes = static_cast<std::int64_t>(bytes);
      std::optional<statistics_scope> scope;
      if (t % 2 == 0) scope.emplace(memory);  // scopes open and close while others allocate
      for (int i = 0; i < rounds; ++i) memory.deallocate(legacy, memory.allocate(legacy, bytes), bytes);
      if (scope && scope->numbers().requested != counter{0, signed_bytes, signed_bytes * rounds}) ++wrong;
    });
  for (auto& thread : running) thread.join();
  CHECK(wrong == 0);
  memory_statistics const all = memory.numbers();
  CHECK(all.requested.current == 0);
  CHECK(all.requested.total == std::int64_t{256} * 36 * rounds);
  CHECK(all.allocations.total == threads * rounds);
  CHECK(all.allocations.peak >= 1);
  CHECK(all.allocations.peak <= threads);
  CHECK(all.requested.peak >= 2048);
  CHECK(all.requested.peak <= 256 * 36);
  CHECK(mine.numbers() == memory_statistics{});
}

TEST_CASE("numbers that threads share are as one thread's, also those of scopes and after wrong frees") {
  auto const numbers_after_all = [](bool shared, bool by_tag) {
    source_state state;
    bool refuses = false;
    auto memory = make([&] {
      return refusing_source{source_resource(state), &refuses};
    } | statistics{.by_tag = by_tag});
    if (shared) (memory.*member(counters_of_statistics{})).lock.set_contended();
    turns threads(2);
    std::optional<statistics_scope> scopes[2];
    std::vector<void*> blocks(100);
    for (std::size_t const i : {0U, 1U}) threads.on(i, [&, i] { scopes[i].emplace(memory); });
    threads.on(0, [&] {
      for (void*& p : blocks) p = memory.allocate(legacy, 1000);
      for (int i = 0; i < 100; ++i) memory.deallocate(legacy, memory.allocate(legacy, 500), 500);
    });
    threads.on(1, [&] {
      for (std::size_t i = 0; i < 50; ++i) memory.deallocate(legacy, blocks[i], 1000);
      memory.deallocate(legacy, memory.allocate(legacy, 2000), 2000);
      refuses = true;
      caught_misuse const misuse;
      memory.deallocate(legacy, blocks[50], 1000);
      CHECK(misuse.count() == 1);
      refuses = false;
      memory.deallocate(legacy, blocks[50], 1'000'000);
      CHECK(misuse.count() == 2);
      state.fail = failing::out_of_memory;
      CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
      state.fail = failing::no;
    });
    std::vector<memory_statistics> all{memory.numbers()};
    for (std::size_t const i : {0U, 1U}) all.push_back(scopes[i]->numbers());
    for (std::size_t const i : {0U, 1U}) threads.on(i, [&, i] { scopes[i].reset(); });
    for (std::size_t i = 50; i < 100; ++i) memory.deallocate(legacy, blocks[i], 1000);
    all.push_back(memory.numbers());
    for (tag_statistics const& each : memory.numbers_by_tag()) all.push_back(each.numbers);
    return all;
  };
  for (bool const by_tag : {false, true}) CHECK(numbers_after_all(true, by_tag) == numbers_after_all(false, by_tag));
}
