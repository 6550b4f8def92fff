// Pools that grow in place through the adaptors between them and their source: what those charge, count and remember is
// what is mapped. How `limit` and `statistics` do that while threads meet is in adaptors/pool_growable.cpp.
#include <weir/adaptors/detail/passing_adaptor.hpp>

#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/test_growable.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = test_growable::chunk;

template <class Options, class Source = shared_growable>
using over = made_by<decltype(share(std::declval<Source&>()) | std::declval<Options>())>;
static_assert(has_tenants<over<aligned>> && has_tenants<over<limit>> && has_tenants<over<statistics>> &&
              has_tenants<over<logging>> && has_tenants<over<tracking>> && has_tenants<over<trace>> &&
              has_tenants<over<on_failure>> && has_tenants<over<wait_for_memory>> && has_tenants<over<scrub>>);
static_assert(growable<over<limit, test_growable>> && !has_tenants<over<limit, test_growable>>);
static_assert(!growable<over<limit, device_resource>>);
static_assert(!growable<over<pool>> && !growable<over<fallback<host>>>);

std::byte* at(address_range range, std::size_t chunks) { return static_cast<std::byte*>(range.begin) + chunks * chunk; }

/// Does what pools do, some of which fails; calls `check()` after each step. All is unmapped in the end.
template <class Memory, class Check>
void map_and_unmap_at_random(test_growable& below, Memory& memory, Check check) {
  std::mt19937 random(1);
  address_range const range = memory.reserve_range(64 * chunk);
  std::vector<bool> mapped(64);
  std::size_t served = 0, refused = 0;
  for (int step = 0; step < 3000; ++step) {
    std::size_t const begin = random() % 64, end = begin + 1 + random() % (64 - begin);
    bool const maps = !mapped[begin];
    std::size_t stop = begin;
    while (stop < end && mapped[stop] != maps) ++stop;
    std::size_t const bytes = (stop - begin) * chunk;
    below.refuse_unmap = random() % 8 == 0;
    if (maps && random() % 8 == 0) below.fail_map = cudaErrorUnknown;
    bool done = false;
    try {
      done = maps ? memory.map(at(range, begin), bytes) : memory.unmap(at(range, begin), bytes);
    } catch (cuda_error const&) {
    }
    below.fail_map = cudaSuccess;
    for (std::size_t i = begin; done && i < stop; ++i) mapped[i] = maps;
    (done ? served : refused) += 1;
    check();
  }
  CHECK(served > 1000);
  CHECK(refused > 100);
  below.refuse_unmap = false;
  for (std::size_t i = 0; i < 64; ++i)
    if (mapped[i]) CHECK(memory.unmap(at(range, i), chunk));
  memory.release_range(range);
  check();
  CHECK(below.wrong == 0);
}

}  // namespace

TEST_CASE("a pool grows in place through every adaptor that passes requests on, and gives all back") {
  test_growable memory;
  temporary_folder const folder;
  {
    auto stack =
        make(share(memory) | aligned{} | limit{64 * chunk} | statistics{} | logging{.path = folder / "log.csv"} |
             tracking{} | trace{} | on_failure{{{"nothing", [](memory_request const&) { return std::size_t{0}; }}}} |
             wait_for_memory{1} | scrub{} | pool{});
    void* const a = stack.allocate(host_order, chunk);
    void* const b = stack.allocate(host_order, chunk);
    CHECK(static_cast<std::byte*>(b) - static_cast<std::byte*>(a) == chunk);
    CHECK(memory.ranges.size() == 1);
    CHECK(memory.in_use() == 2 * chunk);
    for (layer_numbers const& layer : weir::numbers(stack))
      if (layer.charged) CHECK(*layer.charged == 2 * chunk);
    stack.deallocate(host_order, a, chunk);
    stack.deallocate(host_order, b, chunk);
    CHECK(weir::trim(stack) == 2 * chunk);
    CHECK(memory.in_use() == 0);
  }
  CHECK(memory.ranges.empty());
  CHECK(memory.wrong == 0);
}

// ---- limit

TEST_CASE("a budget is charged exactly what is mapped, whatever fails") {
  std::size_t capacity = 0;
  SUBCASE("there is less than the budget") { capacity = 30; }
  SUBCASE("there is more") { capacity = 50; }
  test_growable below(capacity * chunk);
  auto memory = make(share(below) | limit{40 * chunk});
  map_and_unmap_at_random(below, memory, [&] {
    CHECK(memory.used() == below.in_use());
    CHECK(memory.used() <= 40 * chunk);
  });
  CHECK(memory.peak() == below.peak);
  CHECK(memory.used() == 0);
}

TEST_CASE("budgets in budgets, one with a reserve, are charged exactly what is mapped and reserved") {
  test_growable below(50 * chunk);
  auto outer = make(share(below) | limit{.max_bytes = 44 * chunk});
  auto inner = make(share(outer) | trace{} | limit{.max_bytes = 40 * chunk, .reserve_bytes = 8 * chunk});
  map_and_unmap_at_random(below, inner, [&] {
    std::size_t const mapped = below.in_use();
    CHECK(inner.used() == mapped);
    CHECK(outer.used() == mapped + inner.reserve_left());
    CHECK(inner.reserve_left() == (mapped < 8 * chunk ? 8 * chunk - mapped : 0));
  });
}

TEST_CASE("a granularity above a chunk rounds requests, but not what is mapped") {
  test_growable below;
  auto memory = make(share(below) | limit{.max_bytes = 6 * chunk, .granularity = 4 * chunk});
  address_range const range = memory.reserve_range(4 * chunk);
  CHECK(memory.map(range.begin, 3 * chunk));
  CHECK(memory.used() == 3 * chunk);
  CHECK(memory.unmap(range.begin, chunk));
  CHECK(memory.unmap(at(range, 1), 2 * chunk));
  CHECK(memory.used() == 0);
  memory.release_range(range);
}

TEST_CASE("where a budget is used up, a pool on it moves what it does not use, and is refused when it has none") {
  test_growable below;
  auto stack = make(share(below) | limit{.max_bytes = 6 * chunk, .name = "device"} |
                    limit{.max_bytes = 5 * chunk, .name = "search"} | pool{});
  void* blocks[5];
  for (void*& p : blocks) p = stack.allocate(host_order, chunk);
  for (int i : {0, 2, 4}) stack.deallocate(host_order, blocks[i], chunk);
  void* const large = stack.allocate(host_order, 3 * chunk);
  CHECK(stack.numbers().moved >= 2 * chunk);
  CHECK(stack.numbers().reserved.current == 5 * chunk);
  CHECK(find_limit(stack, "search").used() == 5 * chunk);
  CHECK(find_limit(stack, "device").used() == 5 * chunk);
  std::uint64_t const refused = find_limit(stack, "search").refused();
  std::string const what = message_of<out_of_memory>([&] { stack.allocate(host_order, 1); });
  CHECK(contains(what, "chain: pool > search: limit(10.00 MiB) > device: limit(12.00 MiB) > test_growable"));
  CHECK(contains(what, "10.00 MiB, 10.00 MiB charged, 0 B left"));
  CHECK(find_limit(stack, "search").refused() > refused);
  CHECK(find_limit(stack, "device").refused() == 0);
  stack.deallocate(host_order, large, 3 * chunk);
  for (int i : {1, 3}) stack.deallocate(host_order, blocks[i], chunk);
}

TEST_CASE("pools under one budget have what the others do not use") {
  shared_growable below(100 * chunk);
  auto device = make(share(below) | limit{10 * chunk});
  auto a = make(share(device) | pool{}), b = make(share(device) | pool{});
  void* const kept = a.allocate(host_order, chunk);
  a.deallocate(host_order, a.allocate(host_order, 8 * chunk), 8 * chunk);
  CHECK(device.used() == 9 * chunk);
  void* const large = b.allocate(host_order, 9 * chunk);
  CHECK(device.used() == 10 * chunk);
  CHECK(a.numbers().reserved.current == chunk);
  CHECK_THROWS_AS(static_cast<void>(b.allocate(host_order, 1)), out_of_memory);
  b.deallocate(host_order, large, 9 * chunk);
  a.deallocate(host_order, kept, chunk);
}

TEST_CASE("a parked pool is charged for nothing, and stays parked while others use its budget") {
  shared_growable below(100 * chunk);
  auto device = make(share(below) | limit{10 * chunk});
  auto sleeper = make(share(device) | pool{}), other = make(share(device) | pool{});
  void* const p = sleeper.allocate(host_order, 6 * chunk);
  sleeper.park(drop_contents);
  CHECK(device.used() == 0);
  void* const q = other.allocate(host_order, 5 * chunk);
  CHECK_THROWS_AS(sleeper.unpark(), out_of_memory);
  CHECK(device.used() == 5 * chunk);
  other.deallocate(host_order, q, 5 * chunk);
  sleeper.unpark();
  CHECK(device.used() == 10 * chunk);  // of the other's idle 5 it took the one that was missing
  CHECK(other.numbers().reserved.current == 4 * chunk);
  sleeper.deallocate(host_order, p, 6 * chunk);
}

TEST_CASE("a limit between keeps what a pool is promised if a limit of the pool's own reserves it there") {
  shared_growable below(64 * chunk);
  auto team = make(share(below) | limit{.max_bytes = 16 * chunk});
  auto sure =
      make(share(team) | limit{.max_bytes = 16 * chunk, .reserve_bytes = 8 * chunk} | pool{.min_bytes = 8 * chunk});
  auto other = make(share(team) | pool{});
  CHECK_THROWS_AS(static_cast<void>(other.allocate(host_order, 9 * chunk)), out_of_memory);
  void* const rest = other.allocate(host_order, 8 * chunk);
  void* const promised = sure.allocate(host_order, 8 * chunk);
  sure.deallocate(host_order, promised, 8 * chunk);
  CHECK_THROWS_AS(static_cast<void>(other.allocate(host_order, chunk)), out_of_memory);  // idle, but promised
  CHECK(sure.numbers().reserved.current == 8 * chunk);
  other.deallocate(host_order, rest, 8 * chunk);
}

TEST_CASE("growth that crosses a soft limit is told, and what is thrown then leaves nothing charged") {
  test_growable below;
  std::vector<std::size_t> told;
  bool throws = false;
  auto stack = make(share(below) |
                    limit{.max_bytes = 10 * chunk,
                          .soft_bytes = 3 * chunk,
                          .on_soft =
                              [&](std::size_t charged) {
                                told.push_back(charged);
                                if (throws) throw std::logic_error("no more");
                              }} |
                    pool{});
  void* const a = stack.allocate(host_order, 2 * chunk);
  CHECK(told.empty());
  throws = true;
  CHECK_THROWS_AS(static_cast<void>(stack.allocate(host_order, 2 * chunk)), std::logic_error);
  CHECK(find_limit(stack).used() == 2 * chunk);
  throws = false;
  void* const b = stack.allocate(host_order, 2 * chunk);
  CHECK(told == std::vector<std::size_t>{4 * chunk, 4 * chunk});
  stack.deallocate(host_order, a, 2 * chunk);
  stack.deallocate(host_order, b, 2 * chunk);
}

// ---- those that count, write down and remember

TEST_CASE("a statistics counts each chunk that is mapped, by tag too, whatever fails") {
  test_growable below(50 * chunk);
  auto memory = make(share(below) | statistics{.by_tag = true});
  statistics_scope const scope(memory);
  tag const tagged("growth");
  map_and_unmap_at_random(below, memory, [&] {
    auto const now = static_cast<std::int64_t>(below.in_use());
    CHECK(memory.numbers().requested.current == now);
    CHECK(memory.numbers().allocated.current == now);
    CHECK(memory.numbers().live() == now / static_cast<std::int64_t>(chunk));
  });
  CHECK(memory.numbers().requested.peak == static_cast<std::int64_t>(below.peak));
  CHECK(memory.numbers().failures > 100);
  CHECK(scope.numbers().requested.current == 0);
  CHECK(scope.numbers().failures == memory.numbers().failures);
  REQUIRE(memory.numbers_by_tag().size() == 1);
  CHECK(memory.numbers_by_tag()[0].numbers.requested.current == 0);
  CHECK(memory.numbers_by_tag()[0].numbers.requested.total == memory.numbers().requested.total);
}

TEST_CASE("a tracking knows each chunk that is mapped, whatever fails") {
  test_growable below(50 * chunk);
  std::string leaks;
  {
    auto memory = make(share(below) | tracking{.on_leaks = [&](std::string const& text) { leaks = text; }});
    map_and_unmap_at_random(below, memory, [&] {
      CHECK(memory.numbers().requested.current == static_cast<std::int64_t>(below.in_use()));
      CHECK(memory.blocks().size() == below.mapped.size());
    });
    for (tracked_block const& b : memory.blocks()) CHECK(below.mapped.contains(b.address));
    CHECK(memory.numbers().failures > 100);
  }
  CHECK(leaks.empty());
}

TEST_CASE("a log has a line for each chunk, from which what was mapped can be told") {
  test_growable below(50 * chunk);
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  std::size_t mapped = 0;
  {
    auto memory = make(share(below) | logging{.path = path});
    map_and_unmap_at_random(below, memory, [&] { mapped = below.chunks_mapped; });
  }
  std::set<std::string> live;
  std::size_t allocated = 0, failures = 0;
  for (std::vector<std::string> const& line : records_of(path)) {
    std::string const &action = line[2], &address = line[3];
    failures += action == "allocate failure";
    if (action != "allocate" && action != "free") continue;
    CHECK(line[4] == std::to_string(chunk));
    CHECK((action == "allocate" ? live.insert(address).second : live.erase(address) == 1));
    allocated += action == "allocate";
  }
  CHECK(live.empty());
  CHECK(allocated >= mapped);  // what could not be unmapped is written down again
  CHECK(failures > 100);
}

// ---- those that try again

TEST_CASE("reclaimers make room for growth") {
  test_growable below(2 * chunk);
  std::vector<std::size_t> asked;
  on_failure const by_growing{{{"the test", [&](memory_request const& missing) {
                                  asked.push_back(missing.bytes);
                                  return below.capacity < 4 * chunk ? below.capacity += chunk, chunk : 0;
                                }}}};
  auto stack = make(share(below) | by_growing | pool{});
  void* const p = stack.allocate(host_order, 4 * chunk);
  CHECK(asked == std::vector<std::size_t>{4 * chunk, 4 * chunk});
  CHECK(stack.upstream().numbers().rescued == 1);
  CHECK_THROWS_AS(static_cast<void>(stack.allocate(host_order, 1)), out_of_memory);
  CHECK(stack.upstream().numbers().refused > 0);
  CHECK(stack.upstream().numbers().rescued == 1);
  stack.deallocate(host_order, p, 4 * chunk);
}

TEST_CASE("growth that waited in vain is refused") {
  test_growable below(2 * chunk);
  auto stack = make(share(below) | wait_for_memory{1} | pool{});
  void* const p = stack.allocate(host_order, 2 * chunk);
  CHECK_THROWS_AS(static_cast<void>(stack.allocate(host_order, 1)), out_of_memory);
  CHECK(stack.upstream().numbers().timed_out > 0);
  CHECK(stack.upstream().numbers().waiting == 0);
  stack.deallocate(host_order, p, 2 * chunk);
}
