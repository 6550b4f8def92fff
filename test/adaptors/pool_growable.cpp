// needs: tsan
// Pools that grow in place on the simulated driver's memory, by several threads: what one thread moves, no other meets.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "support/destroyable_stream.hpp"
#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = std::size_t{2} << 20;

/// Takes and gives blocks with marks at both ends; returns how many marks were gone.
template <class Pool>
int churn(Pool& memory, unsigned seed, int steps, std::atomic<int>& served) {
  struct live {
    unsigned char* p;
    std::size_t bytes;
    unsigned char mark;
  };
  std::mt19937 random(seed);
  std::vector<live> all;
  int wrong = 0;
  auto const give = [&](std::size_t i) {
    live const l = all[i];
    wrong += l.p[0] != l.mark || l.p[l.bytes - 1] != l.mark;
    memory.deallocate(host_order, l.p, l.bytes);
    all[i] = all.back();
    all.pop_back();
  };
  for (int step = 0; step < steps; ++step) {
    std::size_t const bytes = 1 + random() % (random() % 4 == 0 ? 3 * chunk : chunk / 8);
    try {
      auto* const p = static_cast<unsigned char*>(memory.allocate(host_order, bytes));
      all.push_back({p, bytes, static_cast<unsigned char>(random())});
      p[0] = p[bytes - 1] = all.back().mark;
      ++served;
    } catch (out_of_memory const&) {  // the others have it
    }
    while (all.size() > 12 || (!all.empty() && random() % 2 == 0)) give(random() % all.size());
    if (random() % 64 == 0) memory.trim(random() % 8 * chunk);
  }
  while (!all.empty()) give(0);
  return wrong;
}

}  // namespace

TEST_CASE("threads on one pool that moves its memory keep what they wrote") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 24 * chunk} | pool{.max_waste = 0});
  std::atomic<int> wrong{0}, served{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back([&, i] { wrong += churn(memory, i, 400, served); });
  }
  CHECK(wrong == 0);
  CHECK(served > 400);
  CHECK(memory.numbers().allocated.current == 0);
  CHECK(memory.numbers().reserved.peak <= 24 * chunk);
  memory.trim();
  CHECK(memory.numbers().reserved.current == 0);
  CHECK(find<virtual_memory_resource>(memory).numbers().reserved.current == 0);
}

TEST_CASE("threads on pools that share their chunks keep what they wrote, and the promise is kept") {
  fresh_world const world;
  virtual_memory_resource pages(virtual_memory{.max_bytes = 16 * chunk});
  std::atomic<int> wrong{0}, served{0}, refused_below_minimum{0};
  {
    auto kept = make(share(pages) | pool{.min_bytes = 4 * chunk});
    auto other = make(share(pages) | pool{.max_waste = 0});
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 2; ++i) threads.emplace_back([&, i] { wrong += churn(other, i, 400, served); });
    threads.emplace_back([&] {
      for (int step = 0; step < 400; ++step) try {
          void* const p = kept.allocate(host_order, 4 * chunk);
          std::memset(p, step, 4 * chunk);
          ++served;
          kept.deallocate(host_order, p, 4 * chunk);
          if (step % 4 == 0) kept.trim();
        } catch (out_of_memory const&) {
          ++refused_below_minimum;
        }
    });
  }
  CHECK(wrong == 0);
  CHECK(served > 400);
  CHECK(refused_below_minimum == 0);
  CHECK(pages.numbers().allocated.current == 0);
  CHECK(pages.numbers().reserved.peak <= 16 * chunk);
}

TEST_CASE("pools end while others take what they do not use, and the promise is kept") {
  fresh_world const world;
  virtual_memory_resource pages(virtual_memory{.max_bytes = 16 * chunk});
  std::atomic<int> wrong{0}, served{0}, refused_below_minimum{0};
  {
    auto kept = make(share(pages) | pool{.min_bytes = 4 * chunk});
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 3; ++i)
      threads.emplace_back([&, i] {
        for (unsigned turn = 0; turn < 60; ++turn) {
          auto ending = make(share(pages) | pool{.max_waste = 0});
          wrong += churn(ending, i + 8 * turn, 10, served);
        }
      });
    threads.emplace_back([&] {
      for (int step = 0; step < 400; ++step) try {
          kept.deallocate(host_order, kept.allocate(host_order, 4 * chunk), 4 * chunk);
          kept.trim();
        } catch (out_of_memory const&) {
          ++refused_below_minimum;
        }
    });
  }
  CHECK(wrong == 0);
  CHECK(served > 100);
  CHECK(refused_below_minimum == 0);
  CHECK(pages.numbers().allocated.current == 0);
}

TEST_CASE("threads on pools that share a budget and their chunks keep what they wrote, and the budget is kept") {
  fresh_world const world;
  auto pages = make(virtual_memory{.max_bytes = 32 * chunk} | statistics{} | limit{16 * chunk} | tracking{});
  std::atomic<int> wrong{0}, served{0};
  {
    auto first = make(share(pages) | limit{12 * chunk} | pool{.max_waste = 0});
    auto second = make(share(pages) | pool{.max_waste = 0});
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 4; ++i)
      threads.emplace_back(
          [&, i] { wrong += i % 2 == 0 ? churn(first, i, 300, served) : churn(second, i, 300, served); });
  }
  CHECK(wrong == 0);
  CHECK(served > 400);
  CHECK(find_limit(pages).used() == 0);
  CHECK(find_limit(pages).peak() <= 16 * chunk);
  CHECK(find<virtual_memory_resource>(pages).numbers().allocated.peak <= 16 * chunk);
  CHECK(find<statistics_resource>(pages).numbers().requested.peak <= static_cast<std::int64_t>(16 * chunk));
  CHECK(find<statistics_resource>(pages).numbers().live() == 0);
  CHECK(pages.blocks().empty());
}

TEST_CASE("threads that move what their streams freed, each on its own stream, lose no chunk") {
  fresh_world const world(sim::mode::threads);
  auto memory = make(virtual_memory{.max_bytes = 24 * chunk} | pool{.max_waste = 0, .move_pending = true});
  std::atomic<int> served{0};
  auto const run = [&](unsigned seed) {
    stream const work;
    std::mt19937 random(seed);
    std::vector<std::pair<void*, std::size_t>> live;
    for (int step = 0; step < 200; ++step) {
      std::size_t const bytes = 1 + random() % (4 * chunk);
      try {
        live.emplace_back(memory.allocate(work, bytes), bytes);
        cudaMemsetAsync(live.back().first, step, bytes, work.get());
        ++served;
      } catch (out_of_memory const&) {  // the others have it
      }
      if (live.size() > 2 || random() % 2 == 0)
        for (; !live.empty(); live.pop_back()) memory.deallocate(work, live.back().first, live.back().second);
    }
    for (auto const& [p, bytes] : live) memory.deallocate(work, p, bytes);
    work.synchronize();
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 3; ++i) threads.emplace_back(run, i);
  }
  CHECK(served > 100);
  CHECK(memory.numbers().allocated.current == 0);
  memory.synchronize();
  memory.trim();
  CHECK(memory.numbers().reserved.current == 0);
  CHECK(find<virtual_memory_resource>(memory).numbers().reserved.current == 0);
}

TEST_CASE("a pool is parked and unparked while other threads use another one on the same chunks") {
  fresh_world const world;
  virtual_memory_resource pages(virtual_memory{.max_bytes = 16 * chunk});
  std::atomic<int> wrong{0}, served{0};
  auto sleeper = make(share(pages) | pool{.min_bytes = 4 * chunk});
  auto* const p = static_cast<unsigned char*>(sleeper.allocate(host_order, 4 * chunk));
  {
    auto other = make(share(pages) | pool{.max_waste = 0});
    std::jthread const busy([&] { wrong += churn(other, 1, 300, served); });
    for (int turn = 0; turn < 20; ++turn) {
      p[0] = static_cast<unsigned char>(turn);
      sleeper.park(drop_contents);
      sleeper.unpark();
      p[4 * chunk - 1] = p[0] = static_cast<unsigned char>(turn);
    }
  }
  CHECK(wrong == 0);
  sleeper.deallocate(host_order, p, 4 * chunk);
}

TEST_CASE("a free that waits for its stream is taken though the pool is parked meanwhile") {
  fresh_world const world;
  sim::set_mode(sim::mode::threads);
  static std::atomic<bool> go;
  go = false;
  auto memory = make(virtual_memory{} | pool{});
  destroyable_stream const s;
  void* const p = memory.allocate(s, chunk);
  auto const until_go = [](void*) {
    while (!go) std::this_thread::yield();
  };
  REQUIRE(cudaLaunchHostFunc(s.get(), until_go, nullptr) == cudaSuccess);  // work that uses no memory
  std::uint64_t const waits = sim::calls("cudaStreamSynchronize");
  sim::fail_call("cudaStreamGetId", 1, cudaErrorUnknown);
  caught_misuse const misuse;
  {
    std::jthread const freeing([&] { memory.deallocate(s, p, chunk); });
    while (sim::calls("cudaStreamSynchronize") == waits) std::this_thread::yield();
    memory.park(drop_contents);
    go = true;
  }
  CHECK(misuse.count() == 0);
  CHECK(memory.numbers().allocated.current == 0);
  memory.unpark();
  CHECK(memory.numbers().free == chunk);
}

TEST_CASE("where a budget is short, pools under it give back, and others need not") {
  fresh_world const world;
  auto pages = make(virtual_memory{});
  auto team = make(share(pages) | limit{8 * chunk});
  auto mine = make(share(team) | pool{});
  auto mate = make(share(team) | statistics{} | pool{});
  auto outside = make(share(pages) | pool{.initial_bytes = 100 * chunk});
  stream const s;
  mate.deallocate(s, mate.allocate(s, 8 * chunk), 8 * chunk);
  mate.synchronize();
  std::size_t had = outside.numbers().reserved.current;
  void* const p = mine.allocate(s, 6 * chunk);
  CHECK(mate.numbers().reserved.current == 2 * chunk);
  CHECK(outside.numbers().reserved.current == had);
  mine.park(drop_contents);
  mate.deallocate(s, mate.allocate(s, 8 * chunk), 8 * chunk);
  mate.synchronize();
  had = outside.numbers().reserved.current;
  mine.unpark();
  CHECK(outside.numbers().reserved.current == had);
  mine.deallocate(s, p, 6 * chunk);
}

TEST_CASE("a minimum is kept from those too who take blocks of the source, whatever they know of its type") {
  fresh_world const world;
  auto pages = make(virtual_memory{.max_bytes = 8 * chunk});
  auto promised = make(share(pages) | pool{.min_bytes = 3 * chunk});
  any_ref const erased = share(pages);
  auto segments = make(erased | pool{.growth_bytes = chunk});
  stream const s;
  void* const block = pages.allocate(s, 4 * chunk);
  CHECK_THROWS_AS(pages.allocate(s, 2 * chunk), out_of_memory);
  void* const segment = segments.allocate(s, chunk);
  CHECK_THROWS_AS(segments.allocate(s, chunk), out_of_memory);
  void* const p = promised.allocate(s, 3 * chunk);
  CHECK_THROWS_AS(promised.allocate(s, chunk), out_of_memory);
  pages.deallocate(s, block, 4 * chunk);
  void* const q = promised.allocate(s, 4 * chunk);
  promised.deallocate(s, q, 4 * chunk);
  promised.deallocate(s, p, 3 * chunk);
  segments.deallocate(s, segment, chunk);
}

// ---- arenas, each of which grows in place

TEST_CASE("an arena moves chunks to serve what fits in no piece, within the budget of all arenas") {
  fresh_world const world;
  auto memory = make(virtual_memory{} | arena{.max_bytes = 5 * chunk, .per = arena::owner::stream});
  stream const work;
  void* blocks[5];
  for (void*& p : blocks) p = memory.allocate(work, chunk);
  CHECK_THROWS_AS(memory.allocate(work, chunk), out_of_memory);
  for (int i : {0, 2, 4}) memory.deallocate(work, blocks[i], chunk);
  void* const large = memory.allocate(work, 3 * chunk);
  CHECK(memory.numbers().reserved.peak == 5 * chunk);
  CHECK(memory.numbers().moved >= 2 * chunk);
  memory.deallocate(work, large, 3 * chunk);
  for (int i : {1, 3}) memory.deallocate(work, blocks[i], chunk);
  memory.synchronize();
  CHECK(memory.trim() == 5 * chunk);
  CHECK(memory.numbers().reserved.current == 0);
  CHECK(find<virtual_memory_resource>(memory).numbers().reserved.current == 0);
}

TEST_CASE("an arena takes the idle chunks of another one, and a free goes home to its range") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 6 * chunk} | arena{.per = arena::owner::stream});
  std::vector<stream> streams(8);
  stream const& first = streams.front();
  void* const kept = memory.allocate(first, chunk);
  void* const idle = memory.allocate(first, 5 * chunk);
  auto const has_another_arena = [&](stream const& s) {  // which arena a stream has, its number decides
    std::size_t const before = memory.arenas();
    memory.deallocate(s, memory.allocate(s, 100), 100);
    return memory.arenas() != before;
  };
  memory.deallocate(first, idle, 5 * chunk);
  memory.synchronize();
  auto const other = std::find_if(streams.begin() + 1, streams.end(), has_another_arena);
  REQUIRE(other != streams.end());
  memory.synchronize();
  void* const large = memory.allocate(*other, 5 * chunk);
  CHECK(memory.numbers().reserved.current == 6 * chunk);
  memory.deallocate(*other, kept, chunk);  // the first arena's
  memory.deallocate(first, large, 5 * chunk);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE("threads on arenas that share their chunks keep what they wrote, within one budget") {
  fresh_world const world;
  virtual_memory_resource pages(virtual_memory{.max_bytes = 24 * chunk});
  std::atomic<int> wrong{0}, served{0};
  {
    auto memory = make(share(pages) | arena{.max_bytes = 20 * chunk, .max_arenas = 3});
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 0; i < 4; ++i) threads.emplace_back([&, i] { wrong += churn(memory, i, 300, served); });
    }
    CHECK(memory.numbers().allocated.current == 0);
    CHECK(memory.numbers().reserved.peak <= 20 * chunk);
  }
  CHECK(wrong == 0);
  CHECK(served > 300);
  CHECK(pages.numbers().allocated.current == 0);
}
