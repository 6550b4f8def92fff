// needs: tsan
// What a pool with caches for its threads promises as one without.
#include <weir/pool/lent_blocks.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/tools/snapshot.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

/// A pool whose threads have caches from the start, and a stream.
struct cached_pool : fresh_world {
  made_by<decltype(device{} | pool{})> memory = make(device{} | pool{.thread_caches = true});
  stream s;

  /// So many free blocks in the calling thread's cache.
  std::vector<void*> freed_here(std::size_t count, std::size_t bytes) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) blocks.push_back(memory.allocate(s, bytes));
    for (void* const p : blocks) memory.deallocate(s, p, bytes);
    return blocks;
  }
  void balances() {
    pool_numbers const n = memory.numbers();
    CHECK(n.reserved.current == n.allocated.current + n.free + n.pending + n.captured);
  }
};

void in_another_thread(auto work) { std::thread(work).join(); }

}  // namespace

TEST_CASE_FIXTURE(cached_pool, "a thread has again what it freed, and numbers say so") {
  void* const p = memory.allocate(s, 1000);
  void* const q = memory.allocate(s, 5000);
  CHECK(memory.numbers().requested.current == 6000);
  CHECK(memory.numbers().allocated.current == 1024 + 5120);
  memory.deallocate(s, p, 1000);
  balances();
  CHECK(memory.numbers().requested.current == 5000);
  CHECK(memory.numbers().requested.peak == 6000);
  CHECK(memory.allocate(s, 900) == p);
  CHECK(memory.numbers().requested.peak == 6000);
  CHECK(memory.numbers().allocations == 3);
  memory.deallocate(s, p, 900);
  memory.deallocate(s, q, 5000);
  CHECK(memory.numbers().live() == 0);
  CHECK(memory.numbers().requested.current == 0);
  CHECK(memory.numbers().allocated.current == 0);
  memory.reset_peaks();
  CHECK(memory.numbers().requested.peak == 0);
  void* const r = memory.allocate(s, 100);
  CHECK(memory.numbers().requested.peak == 100);
  CHECK(memory.snapshot().host_bytes > sizeof(detail::thread_cache));
  memory.deallocate(s, r, 100);
}

TEST_CASE_FIXTURE(cached_pool, "what a thread's cache has another thread's request finds, before the pool grows") {
  auto bounded = make(device{} | pool{.max_bytes = 8_MiB, .thread_caches = true});
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(bounded.allocate(s, 1_MiB));
  for (void* const p : blocks) bounded.deallocate(s, p, 1_MiB);
  in_another_thread([&] {
    void* const all = bounded.allocate(s, 8_MiB);
    CHECK(all != nullptr);
    bounded.deallocate(s, all, 8_MiB);
  });
  CHECK(bounded.numbers().out_of_memory == 0);
  CHECK(bounded.numbers().reserved.peak == 8_MiB);
}

TEST_CASE_FIXTURE(cached_pool, "a thread's cache keeps a little while the pool can grow, and no more than that") {
  for (bool const can_grow : {true, false}) {
    CAPTURE(can_grow);
    std::size_t const most = can_grow ? 64_MiB : 1_MiB;
    auto growing = make(device{} | pool{.max_bytes = most, .growth_bytes = 1_MiB, .thread_caches = true});
    std::vector<void*> kept, had;
    for (int i = 0; i < 16; ++i) kept.push_back(growing.allocate(s, 64_KiB));
    for (void* const p : kept) growing.deallocate(s, p, 64_KiB);
    auto const is_kept = [&](void* p) { return std::find(kept.begin(), kept.end(), p) != kept.end(); };
    in_another_thread([&] {
      stream other;
      do had.push_back(growing.allocate(other, 64_KiB));
      while (!is_kept(had.back()));
      for (void* const p : had) growing.deallocate(other, p, 64_KiB);
    });
    if (can_grow) CHECK(had.size() * 64_KiB >= 14_MiB);
    CHECK(had.size() * 64_KiB <= (can_grow ? 18_MiB : 64_KiB));
    CHECK(growing.numbers().out_of_memory == 0);
  }
}

TEST_CASE_FIXTURE(cached_pool, "another thread, another stream or the host frees what a cache's thread allocated") {
  stream other;
  for (int who = 0; who < 4; ++who) {
    CAPTURE(who);
    void* const p = memory.allocate(s, 3000);
    if (who == 0) in_another_thread([&] { memory.deallocate(s, p, 3000); });
    if (who == 1) memory.deallocate(other, p, 3000);
    if (who == 2) memory.deallocate(host_order, p, 3000);
    if (who == 3) deallocate_after(memory, s, p, 3000, {other});
    CHECK(memory.numbers().live() == 0);
    CHECK(memory.numbers().requested.current == 0);
    CHECK(memory.numbers().allocated.current == 0);
    balances();
  }
  memory.synchronize();
  memory.trim();
  CHECK(memory.numbers().reserved.current == 0);
}

TEST_CASE_FIXTURE(cached_pool, "what another stream freed is not had before its work is done") {
  sim::set_mode(sim::mode::lazy);
  stream other;
  void* const p = memory.allocate(s, 3000);
  cudaMemsetAsync(p, 1, 3000, other.get());
  memory.deallocate(other, p, 3000);
  CHECK(memory.allocate(s, 3000) != p);
  CHECK(memory.allocate(other, 3000) == p);
}

TEST_CASE_FIXTURE(cached_pool, "a wrong free is told, whichever cache has the block") {
  caught_misuse const log;
  void* const p = memory.allocate(s, 3000);
  void* const q = memory.allocate(s, 3000);
  memory.deallocate(s, q, 3000);
  auto const wrong = [&](void* which, std::size_t bytes, std::size_t alignment, std::string const& said) {
    for (bool const elsewhere : {false, true}) {
      CAPTURE(elsewhere);
      int const before = log.count();
      auto const free = [&] { memory.deallocate(s, which, bytes, alignment); };
      if (elsewhere)
        in_another_thread(free);
      else
        free();
      CHECK(log.count() == before + 1);
      CHECK(contains(log.last(), said));
    }
  };
  wrong(p, 3072, std::size_t{1} << 31, "it was allocated with 3000 B aligned to 256");  // as the pool noted it
  wrong(p, 2999, default_alignment, "it was allocated with 3000 B aligned to 256");
  wrong(p, 3000, 128, "it was allocated with 3000 B aligned to 256");
  wrong(q, 3000, default_alignment, "no live block starts there");
  wrong(static_cast<std::byte*>(p) + 256, 3000, default_alignment, "no live block starts there");
  CHECK(memory.numbers().requested.current == 3000);
  memory.deallocate(s, p, 3000);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE_FIXTURE(cached_pool, "what is live, and what is at hand, is shown as what it is") {
  void* const p = memory.allocate(s, 3000);
  freed_here(3, 5000);
  memory_snapshot const seen = snapshot(memory);
  std::size_t live = 0, requested = 0, all = 0;
  for (auto const& segment : seen.segments)
    for (auto const& block : segment.blocks) {
      all += block.bytes;
      if (block.state == memory_state::live) live += block.bytes, requested += block.requested;
    }
  CHECK(live == 3072);
  CHECK(requested == 3000);
  CHECK(all == memory.numbers().reserved.current);
  CHECK(find_block(memory, p).bytes == 3000);
  memory.deallocate(s, p, 3000);
  CHECK_FALSE(find_block(memory, p));
}

TEST_CASE_FIXTURE(cached_pool, "in a capture nobody has what is at hand in a cache, and frees there are the graph's") {
  void* const p = memory.allocate(s, 3000);
  freed_here(2, 3000);
  {
    capture_scope const declared;
    begin_capture(s);
    void* const in_graph = memory.allocate(s, 3000);
    memory.deallocate(s, in_graph, 3000);
    memory.deallocate(s, p, 3000);
    captured_graph const graph(s);
    CHECK(memory.numbers().captured == 2 * 3072);
    CHECK(memory.numbers().live() == 0);
    balances();
  }
  CHECK(memory.release_captured() == 2 * 3072);
  CHECK(memory.numbers().captured == 0);
  balances();
}

TEST_CASE_FIXTURE(cached_pool, "a pool that gives idle memory back by itself has no caches") {
  auto eager = make(device{} | pool{.release_threshold = 0, .thread_caches = true});
  void* const p = eager.allocate(s, 1_MiB);
  s.synchronize();
  eager.deallocate(s, p, 1_MiB);
  CHECK(eager.numbers().reserved.current == 0);
}

TEST_CASE_FIXTURE(cached_pool, "all goes back when the pool does, what threads that ended left too") {
  {
    auto own = make(device{} | pool{.thread_caches = true});
    for (int i = 0; i < 3; ++i)
      in_another_thread([&] {
        void* const p = own.allocate(cudaStreamPerThread, 10'000);
        own.deallocate(cudaStreamPerThread, p, 10'000);
      });
    own.synchronize();
    own.trim();
    CHECK(own.numbers().reserved.current == 0);
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_FIXTURE(cached_pool, "to a thread whose blocks others free none are lent") {
  auto const host_bytes_of = [&](bool others_free) {
    auto shared = make(device{} | pool{.initial_bytes = 32_MiB, .thread_caches = true});
    std::vector<void*> blocks(50);
    auto const free_all = [&] {
      for (void* const p : blocks) shared.deallocate(s, p, 1000);
    };
    for (int i = 0; i < 200; ++i) {
      for (void*& p : blocks) p = shared.allocate(s, 1000);
      others_free ? in_another_thread(free_all) : free_all();
    }
    std::size_t const before = shared.snapshot().host_bytes;
    blocks.resize(1000);
    for (void*& p : blocks) p = shared.allocate(s, 1000);
    std::size_t const taken = shared.snapshot().host_bytes - before;  // a block that is lent has a record more
    free_all();
    return taken;
  };
  CHECK(host_bytes_of(true) < host_bytes_of(false) / 2);
}

TEST_CASE_FIXTURE(cached_pool, "threads that wait for each other get caches") {
  auto shared = make(device{} | pool{});
  std::atomic<bool> stop{false};
  auto const use = [&] {
    stream own;
    while (!stop) shared.deallocate(own, shared.allocate(own, 1000), 1000);
  };
  std::size_t host_bytes = 0;
  {
    std::jthread const one(use), other(use);
    for (int i = 0; i < 100'000 && host_bytes < 2 * sizeof(detail::thread_cache); ++i)
      host_bytes = shared.snapshot().host_bytes;
    stop = true;
  }
  CHECK(host_bytes >= 2 * sizeof(detail::thread_cache));
  CHECK(shared.numbers().live() == 0);
}

TEST_CASE("a source that fails otherwise fails no request that what lies in another thread's cache can serve") {
  fresh_world const world;
  source_state state;
  auto memory = make(source{&state} | pool{.growth_bytes = 1_MiB, .thread_caches = true});
  stream const s;
  std::vector<void*> kept;
  for (int i = 0; i < 16; ++i) kept.push_back(memory.allocate(s, 64_KiB));
  for (void* const p : kept) memory.deallocate(s, p, 64_KiB);
  REQUIRE(memory.numbers().reserved.current < 36 * 64_KiB);
  state.fail = failing::other;
  in_another_thread([&] {
    stream other;
    std::vector<void*> had(20);  // more than there is beside what lies in the cache
    for (void*& p : had) CHECK_NOTHROW(p = memory.allocate(other, 64_KiB));
    for (void* const p : had) memory.deallocate(other, p, 64_KiB);
  });
}
