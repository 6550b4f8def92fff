// How a pool grows in place on a growable upstream: on memory of the host that counts its chunks.
#include <weir/pool/growable_range.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_growable.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = test_growable::chunk;

auto make_pool(test_growable& memory, pool const& options = {}) { return make(share(memory) | options); }

}  // namespace

TEST_CASE("a pool maps as many chunks as a request needs, side by side, and gives all of them back") {
  test_growable memory;
  {
    auto p = make_pool(memory);
    void* const a = p.allocate(host_order, 5_MiB);
    CHECK(memory.in_use() == 6_MiB);
    void* const b = p.allocate(host_order, 1_MiB);
    CHECK(memory.in_use() == 6_MiB);
    std::memset(a, 1, 5_MiB);
    std::memset(b, 2, 1_MiB);
    p.deallocate(host_order, a, 5_MiB);
    p.deallocate(host_order, b, 1_MiB);
    CHECK(p.numbers().reserved.current == 6_MiB);
    CHECK(p.snapshot().largest_free == 6_MiB);
    CHECK(p.trim() == 6_MiB);
    CHECK(memory.in_use() == 0);
    CHECK(p.numbers().reserved.current == 0);
    CHECK(p.numbers().reserved.peak == 6_MiB);
  }
  CHECK(memory.ranges.empty());
  CHECK(memory.wrong == 0);
}

TEST_CASE("addresses are taken when the first request comes, and only once") {
  test_growable memory;
  auto p = make_pool(memory);
  CHECK(memory.ranges.empty());
  CHECK(p.snapshot().segments == 0);
  void* const a = p.allocate(host_order, 1);
  void* const b = p.allocate(host_order, 100_MiB);
  CHECK(memory.ranges.size() == 1);
  CHECK(p.snapshot().segments == 1);
  p.deallocate(host_order, a, 1);
  p.deallocate(host_order, b, 100_MiB);
}

TEST_CASE("a request that fits in the sum of what is free, but in no piece, is served by moving chunks") {
  test_growable memory(5 * chunk);
  auto p = make_pool(memory);
  void* blocks[5];
  for (void*& b : blocks) b = p.allocate(host_order, chunk);
  for (int i : {0, 2, 4}) p.deallocate(host_order, blocks[i], chunk);
  std::memset(blocks[1], 1, chunk);
  void* const large = p.allocate(host_order, 3 * chunk);
  std::memset(large, 2, 3 * chunk);
  CHECK(memory.in_use() == 5 * chunk);
  CHECK(p.numbers().moved >= 2 * chunk);
  CHECK(static_cast<unsigned char*>(blocks[1])[chunk - 1] == 1);
  p.deallocate(host_order, large, 3 * chunk);
  for (int i : {1, 3}) p.deallocate(host_order, blocks[i], chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("above the bound over the live peak idle chunks are moved instead of taking more") {
  std::size_t const live = 100 * chunk;
  for (bool const bounded : {false, true}) {
    CAPTURE(bounded);
    test_growable memory;
    auto p = make_pool(memory, {.max_waste = bounded ? 0.02 : 1.0});
    std::vector<void*> blocks(100);
    for (void*& b : blocks) b = p.allocate(host_order, chunk);
    for (std::size_t i = 0; i < 100; i += 2) p.deallocate(host_order, blocks[i], chunk);
    void* const large = p.allocate(host_order, live / 2);
    CHECK(memory.peak <= live + (bounded ? 8 * chunk : live / 2));
    CHECK((p.numbers().moved != 0) == bounded);
    p.deallocate(host_order, large, live / 2);
    for (std::size_t i = 1; i < 100; i += 2) p.deallocate(host_order, blocks[i], chunk);
    CHECK(memory.wrong == 0);
  }
}

TEST_CASE("moves that repeat end: what was moved may be taken once instead, up to a part of the bound") {
  for (std::size_t const large : {std::size_t{10}, std::size_t{32}}) {  // chunks, in one piece
    CAPTURE(large);
    test_growable memory;
    auto p = make_pool(memory);
    std::vector<void*> blocks(2 * large);
    std::uint64_t moved_early = 0;
    for (int step = 0; step < 6; ++step) {
      if (step == 3) moved_early = p.numbers().moved;
      for (void*& b : blocks) b = p.allocate(host_order, chunk);
      for (std::size_t i = 0; i < blocks.size(); i += 2) p.deallocate(host_order, blocks[i], chunk);
      void* const in_one_piece = p.allocate(host_order, large * chunk);
      p.deallocate(host_order, in_one_piece, large * chunk);
      for (std::size_t i = 1; i < blocks.size(); i += 2) p.deallocate(host_order, blocks[i], chunk);
    }
    CHECK(moved_early != 0);
    bool const still_moves = p.numbers().moved != moved_early;
    CHECK(still_moves == (large == 32));  // for 10, two chunks more than the bound are enough; for 32, not three
    CHECK(memory.peak <= (2 * large + 8 + 3) * chunk);  // what is live, 16 MiB, and two fifths of that
    CHECK(memory.wrong == 0);
  }
}

TEST_CASE("max_bytes counts what has memory, and is kept by moving") {
  test_growable memory;
  auto p = make_pool(memory, {.max_bytes = 4 * chunk, .max_waste = 1});
  void* blocks[4];
  for (void*& b : blocks) b = p.allocate(host_order, chunk);
  p.deallocate(host_order, blocks[1], chunk);
  p.deallocate(host_order, blocks[3], chunk);
  void* const large = p.allocate(host_order, 2 * chunk);
  CHECK(memory.peak == 4 * chunk);
  CHECK_THROWS_AS(p.allocate(host_order, 256), out_of_memory);
  p.deallocate(host_order, large, 2 * chunk);
  void* const small = p.allocate(host_order, 256);
  p.deallocate(host_order, small, 256);
  p.deallocate(host_order, blocks[0], chunk);
  p.deallocate(host_order, blocks[2], chunk);
  CHECK(memory.peak == 4 * chunk);
}

TEST_CASE("memory that must stay where it is is not parked either") {
  sim::reset();
  test_growable memory;
  memory.is_movable = false;
  auto p = make_pool(memory);
  void* const a = p.allocate(host_order, chunk);
  CHECK_THROWS_WITH_AS(p.park(drop_contents), doctest::Contains("promised to stay where it is"), std::logic_error);
  CHECK_FALSE(p.is_parked());
  CHECK(memory.in_use() == chunk);
  p.deallocate(host_order, a, chunk);
}

TEST_CASE("memory that must stay where it is is neither moved nor given back before the pool goes") {
  test_growable memory(5 * chunk);
  memory.is_movable = false;
  {
    auto p = make_pool(memory);
    void* blocks[5];
    for (void*& b : blocks) b = p.allocate(host_order, chunk);
    for (int i : {0, 2, 4}) p.deallocate(host_order, blocks[i], chunk);
    CHECK_THROWS_AS(p.allocate(host_order, 3 * chunk), out_of_memory);
    CHECK(p.trim() == 0);
    CHECK(memory.chunks_unmapped == 0);
    for (int i : {1, 3}) p.deallocate(host_order, blocks[i], chunk);
  }
  CHECK(memory.in_use() == 0);
}

TEST_CASE("with a threshold, idle chunks go back as they become idle, also between live blocks") {
  test_growable memory;
  auto p = make_pool(memory, {.release_threshold = 0});
  void* const a = p.allocate(host_order, 3 * chunk);
  void* const b = p.allocate(host_order, chunk);
  void* const c = p.allocate(host_order, 3 * chunk);
  p.deallocate(host_order, a, 3 * chunk);
  CHECK(memory.in_use() == 4 * chunk);
  p.deallocate(host_order, c, 3 * chunk);
  CHECK(memory.in_use() == chunk);
  p.deallocate(host_order, b, chunk);
  CHECK(memory.in_use() == 0);
  CHECK(memory.wrong == 0);
}

TEST_CASE("alignments up to a chunk are kept in places without memory") {
  test_growable memory;
  auto p = make_pool(memory);
  void* const odd = p.allocate(host_order, 3 * 256);
  for (std::size_t alignment = 512; alignment <= chunk; alignment *= 2) {
    void* const a = p.allocate(host_order, 5_MiB, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(a) % alignment == 0);
    std::memset(a, 1, 5_MiB);
    p.deallocate(host_order, a, 5_MiB, alignment);
    p.trim();
  }
  p.deallocate(host_order, odd, 3 * 256);
  CHECK(memory.wrong == 0);
}

TEST_CASE("initial_bytes of all that a pool may hold are as many whole chunks as that is") {
  test_growable memory;
  {
    auto p = make_pool(memory, {.initial_bytes = 3 * chunk + 1, .max_bytes = 3 * chunk + 1});
    CHECK(memory.in_use() == 3 * chunk);
  }
  CHECK_THROWS_AS(static_cast<void>(make_pool(memory, {.initial_bytes = chunk / 2, .max_bytes = chunk / 2})),
                  out_of_memory);
  CHECK(memory.in_use() == 0);
}

TEST_CASE("initial_bytes has memory at once, in one piece") {
  test_growable memory;
  auto p = make_pool(memory, {.initial_bytes = 7 * chunk});
  CHECK(memory.in_use() == 7 * chunk);
  void* const a = p.allocate(host_order, 7 * chunk);
  CHECK(memory.in_use() == 7 * chunk);
  p.deallocate(host_order, a, 7 * chunk);
}

TEST_CASE("a call that fails leaves everything as it was") {
  test_growable memory;
  auto p = make_pool(memory);
  void* const a = p.allocate(host_order, 3 * chunk);
  void* const b = p.allocate(host_order, chunk);
  p.deallocate(host_order, a, 3 * chunk);
  auto const before = p.snapshot();
  memory.fail_map = cudaErrorUnknown;
  CHECK_THROWS_AS(p.allocate(host_order, 5 * chunk), cuda_error);
  auto const after = p.snapshot();
  CHECK(after.numbers.reserved.current == before.numbers.reserved.current);
  CHECK(after.numbers.free == before.numbers.free);
  CHECK(after.blocks == before.blocks);
  CHECK(memory.in_use() == 4 * chunk);
  void* const c = p.allocate(host_order, 5 * chunk);
  std::memset(c, 1, 5 * chunk);
  p.deallocate(host_order, c, 5 * chunk);
  p.deallocate(host_order, b, chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("where there are no addresses a request is refused, and told so") {
  test_growable memory;
  memory.range_bytes = 0;
  auto p = make_pool(memory);
  CHECK_THROWS_WITH_AS(p.allocate(host_order, 1), doctest::Contains("hint       this process has no addresses left"),
                       out_of_memory);
  memory.range_bytes = 4 * chunk;
  void* const a = p.allocate(host_order, 4 * chunk);
  CHECK_THROWS_AS(p.allocate(host_order, 1), out_of_memory);
  p.deallocate(host_order, a, 4 * chunk);
}

TEST_CASE("whatever is asked for, what is live keeps its bytes, and the numbers are those of the memory") {
  std::mt19937_64 random(7);
  auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t const capacity : {std::size_t{200} * chunk, std::size_t{40} * chunk}) {
    CAPTURE(capacity);
    test_growable memory(capacity);
    {
      auto p = make_pool(memory, {.max_waste = 0.01});
      struct live {
        unsigned char* p;
        std::size_t bytes, alignment;
        unsigned char mark;
      };
      std::vector<live> all;
      std::size_t refused = 0;
      for (int step = 0; step < 20'000; ++step) {
        if (all.empty() || below(100) < 52) {
          std::size_t const bytes = 1 + below(below(8) == 0 ? 6 * chunk : below(2) == 0 ? chunk : 4096);
          std::size_t const alignment = std::size_t{256} << (below(4) == 0 ? below(14) : 0);
          try {
            auto* const at = static_cast<unsigned char*>(p.allocate(host_order, bytes, alignment));
            REQUIRE(reinterpret_cast<std::uintptr_t>(at) % alignment == 0);
            all.push_back({at, bytes, alignment, static_cast<unsigned char>(step)});
            at[0] = at[bytes / 2] = at[bytes - 1] = all.back().mark;
          } catch (out_of_memory const&) {
            ++refused;
          }
        }
        if (!all.empty() && (below(100) < 48 || all.size() > 120)) {
          std::size_t const i = below(all.size());
          live const l = all[i];
          REQUIRE((l.p[0] == l.mark && l.p[l.bytes / 2] == l.mark && l.p[l.bytes - 1] == l.mark));
          all[i] = all.back();
          all.pop_back();
          p.deallocate(host_order, l.p, l.bytes, l.alignment);
        }
        if (below(500) == 0) p.trim(below(capacity));
        REQUIRE(p.numbers().reserved.current == memory.in_use());
        REQUIRE(memory.wrong == 0);
      }
      auto const n = p.numbers();
      CHECK((refused != 0) == (capacity == 40 * chunk));
      CHECK(n.moved != 0);
      for (live const& l : all) p.deallocate(host_order, l.p, l.bytes, l.alignment);
    }
    CHECK(memory.in_use() == 0);
    CHECK(memory.ranges.empty());
  }
}

TEST_CASE("above its high mark a pool gives idle chunks back by itself") {
  test_growable memory;
  auto p = make_pool(memory, {.high_bytes = 3 * chunk});
  void* const a = p.allocate(host_order, 5 * chunk);
  p.deallocate(host_order, a, 5 * chunk);
  CHECK(memory.in_use() == 3 * chunk);
}

TEST_CASE("a window takes what the stream itself freed, and not what another stream may still use") {
  lazy_world const world;
  test_growable memory;
  auto p = make_pool(memory);
  destroyable_stream const s, t;
  void* const first = p.allocate(t, chunk);
  void* const second = p.allocate(t, chunk);
  REQUIRE(cudaLaunchHostFunc(
              t.get(), [](void*) {}, nullptr) == cudaSuccess);
  p.deallocate(t, second, chunk);
  void* const others = p.allocate(s, 2 * chunk);
  CHECK(memory.in_use() == 4 * chunk);  // not the chunk that `t` is not done with
  CHECK(others != second);
  p.deallocate(s, others, 2 * chunk);
  p.deallocate(t, first, chunk);
  sim::run_all();
}

TEST_CASE("a window begins in what the stream itself freed, though its work is not done") {
  lazy_world const world;
  test_growable memory;
  auto p = make_pool(memory);
  destroyable_stream const t;
  void* const last = p.allocate(t, chunk);
  REQUIRE(cudaLaunchHostFunc(
              t.get(), [](void*) {}, nullptr) == cudaSuccess);
  p.deallocate(t, last, chunk);
  CHECK(p.allocate(t, 3 * chunk) == last);
  CHECK(memory.in_use() == 3 * chunk);
  p.deallocate(t, last, 3 * chunk);
  sim::run_all();
}

TEST_CASE("of two holes the first is a hole again if there is no memory for the second") {
  busy_growable memory(6 * chunk);
  auto p = make(share(memory) | pool{});
  void* blocks[4];
  for (void*& b : blocks) b = p.allocate(host_order, chunk);
  for (int i : {0, 2}) p.deallocate(host_order, blocks[i], chunk);
  p.trim();
  CHECK(memory.in_use() == 2 * chunk);
  p.deallocate(host_order, blocks[1], chunk);  // a hole, a free chunk, a hole
  memory.fail_map = cudaErrorUnknown;
  memory.maps_before_failure = 1;
  CHECK_THROWS_AS(p.allocate(host_order, 3 * chunk), cuda_error);
  CHECK(memory.in_use() == 2 * chunk);
  memory.fail_map = cudaErrorUnknown;
  memory.maps_before_failure = 1;
  memory.refuse_once = true;  // as a driver does that reports an error of earlier work
  CHECK_THROWS_AS(p.allocate(host_order, 3 * chunk), cuda_error);
  CHECK(memory.in_use() == 2 * chunk);
  void* const large = p.allocate(host_order, 3 * chunk);
  std::memset(large, 1, 3 * chunk);
  p.deallocate(host_order, large, 3 * chunk);
  p.deallocate(host_order, blocks[3], chunk);
  CHECK(memory.wrong == 0);
}
