// How a pool grows in place on a growable upstream: on memory of the host that counts its chunks.
#include <weir/pool/growable_range.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_growable.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = test_growable::chunk;

auto make_pool(test_growable& memory, pool const& options = {}) { return make(share(memory) | options); }

/// Lets something happen while a thread takes memory away, or puts some where none is, once: as another thread would do
/// it then.
template <class Memory>
class busy : public Memory {
 public:
  using Memory::Memory;
  bool unmap(void* p, std::size_t bytes) noexcept {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return !std::exchange(refuse_once, false) && Memory::unmap(p, bytes);
  }
  bool map(void* p, std::size_t bytes) {
    if (while_mapping) std::exchange(while_mapping, nullptr)();
    return Memory::map(p, bytes);
  }
  std::function<void()> meanwhile, while_mapping;
  bool refuse_once = false;
};
using busy_growable = busy<test_growable>;

/// Stands for a pool's lock: one thread's view of it, which knows whether that thread holds it, and ever dropped it.
struct seen_lock {
  void lock() {
    mutex.lock();
    is_held = true;
  }
  void unlock() {
    is_held = false;
    was_dropped = true;
    mutex.unlock();
  }
  template <class F>
  auto unlocked(F f) {
    unlock();
    auto const result = f();
    lock();
    return result;
  }
  std::mutex& mutex;
  std::atomic<bool> is_held{false}, was_dropped{false};
};

struct store_calls {
  void count() { ++(lock.is_held ? with_lock : without_lock); }
  seen_lock& lock;
  int with_lock = 0, without_lock = 0;
  bool refuses = false;
};

/// Counts how it is called where it may have to wait for the device: a free, as `cudaFreeHost`, and its end.
class watched_store final : public detail::content_store {
 public:
  explicit watched_store(store_calls& calls) : calls_(calls) {}
  ~watched_store() override { calls_.count(); }
  void* allocate(std::size_t bytes) override {
    if (calls_.refuses) throw std::bad_alloc();
    return ::operator new(bytes);
  }
  void deallocate(void* p, std::size_t) noexcept override {
    calls_.count();
    ::operator delete(p);
  }

 private:
  store_calls& calls_;
};

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

TEST_CASE("where there are no addresses a request is refused") {
  test_growable memory;
  memory.range_bytes = 0;
  auto p = make_pool(memory);
  CHECK_THROWS_AS(p.allocate(host_order, 1), out_of_memory);
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

TEST_CASE("a pool takes what another one on the same memory does not use, and no more") {
  shared_growable memory(10 * chunk);
  auto a = make(share(memory) | pool{.name = "first"});
  auto b = make(share(memory) | pool{.name = "second"});
  void* const kept = a.allocate(host_order, chunk);
  void* const gone = a.allocate(host_order, 8 * chunk);
  a.deallocate(host_order, gone, 8 * chunk);
  CHECK(memory.in_use() == 9 * chunk);
  void* const large = b.allocate(host_order, 9 * chunk);
  CHECK(memory.in_use() == 10 * chunk);
  CHECK(a.numbers().reserved.current == chunk);
  CHECK(b.numbers().reserved.current == 9 * chunk);
  try {
    static_cast<void>(a.allocate(host_order, chunk));
    FAIL("there is no more");
  } catch (out_of_memory const& refused) {
    CHECK(std::string(refused.what()).find("second: holds 18.00 MiB, 18.00 MiB of it in use") != std::string::npos);
  }
  b.deallocate(host_order, large, 9 * chunk);
  a.deallocate(host_order, kept, chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("together pools stay within the bound over what was live together") {
  shared_growable memory(1000 * chunk);
  auto a = make(share(memory) | pool{});
  auto b = make(share(memory) | pool{});
  for (int turn = 0; turn < 4; ++turn)
    for (auto* p : {&a, &b}) {
      std::vector<void*> blocks(100);
      for (void*& at : blocks) at = p->allocate(host_order, chunk);
      for (void* at : blocks) p->deallocate(host_order, at, chunk);
    }
  CHECK(memory.peak <= 108 * chunk);  // each alone had 100 live: two pools that know nothing of each other hold 200
  CHECK(memory.wrong == 0);
}

TEST_CASE("initial memory of one pool does not lift the bound over what is live together") {
  shared_growable memory(1000 * chunk);
  auto first = make(share(memory) | pool{});
  auto later = make(share(memory) | pool{.initial_bytes = 10 * chunk});
  std::vector<void*> blocks(100);
  for (void*& at : blocks) at = first.allocate(host_order, chunk);
  for (std::size_t i = 0; i < 100; i += 2) first.deallocate(host_order, blocks[i], chunk);
  void* const large = first.allocate(host_order, 50 * chunk);
  CHECK(memory.peak <= (10 + 100 + 8) * chunk);
  first.deallocate(host_order, large, 50 * chunk);
  for (std::size_t i = 1; i < 100; i += 2) first.deallocate(host_order, blocks[i], chunk);
}

TEST_CASE("what a pool is promised it gets, whatever others hold by then") {
  shared_growable memory(10 * chunk);
  auto kept = make(share(memory) | pool{.min_bytes = 4 * chunk});
  auto other = make(share(memory) | pool{});
  void* const most = other.allocate(host_order, 6 * chunk);
  CHECK_THROWS_AS(other.allocate(host_order, chunk), out_of_memory);
  void* const promised = kept.allocate(host_order, 4 * chunk);
  CHECK_THROWS_AS(kept.allocate(host_order, chunk), out_of_memory);
  kept.deallocate(host_order, promised, 4 * chunk);
  CHECK_THROWS_AS(other.allocate(host_order, chunk), out_of_memory);  // idle, but promised
  other.deallocate(host_order, most, 6 * chunk);
  CHECK_THROWS_AS(static_cast<void>(make(share(memory) | pool{.min_bytes = 7 * chunk})), std::invalid_argument);
}

TEST_CASE("a pool that comes later with a promise leaves the others room beside what is idle") {
  shared_growable memory(16 * chunk);
  auto asks = make(share(memory) | pool{.max_waste = 0});
  auto idle = make(share(memory) | pool{});
  std::vector<void*> blocks(6);
  for (void*& at : blocks) at = asks.allocate(host_order, chunk);
  idle.deallocate(host_order, idle.allocate(host_order, 10 * chunk), 10 * chunk);
  auto late = make(share(memory) | pool{.min_bytes = 8 * chunk});  // 24 chunks with that
  SUBCASE("for more") {
    void* const p = asks.allocate(host_order, 2 * chunk);
    asks.deallocate(host_order, p, 2 * chunk);
  }
  SUBCASE("for what moves in itself") {
    for (std::size_t const i : {0u, 2u, 4u}) asks.deallocate(host_order, std::exchange(blocks[i], nullptr), chunk);
    void* const p = asks.allocate(host_order, 3 * chunk);
    asks.deallocate(host_order, p, 3 * chunk);
  }
  SUBCASE("for what was parked") {
    asks.park(drop_contents);
    asks.unpark();
  }
  SUBCASE("for a pool that is promised what others have") {
    void* const p = late.allocate(host_order, 8 * chunk);
    late.deallocate(host_order, p, 8 * chunk);
  }
  for (void* const at : blocks) asks.deallocate(host_order, at, chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("a pool takes of others what the source has too little of, and no more") {
  sim::reset();
  shared_growable memory(20 * chunk);
  auto asks = make(share(memory) | pool{});
  auto idle = make(share(memory) | pool{});
  SUBCASE("for a request") {
    idle.deallocate(host_order, idle.allocate(host_order, 8 * chunk), 8 * chunk);
    void* const p = asks.allocate(host_order, 13 * chunk);
    CHECK(idle.numbers().reserved.current == 7 * chunk);
    asks.deallocate(host_order, p, 13 * chunk);
  }
  SUBCASE("for what was parked") {
    void* const p = asks.allocate(host_order, 10 * chunk);
    asks.park(drop_contents);
    idle.deallocate(host_order, idle.allocate(host_order, 11 * chunk), 11 * chunk);
    asks.unpark();
    CHECK(idle.numbers().reserved.current == 10 * chunk);
    asks.deallocate(host_order, p, 10 * chunk);
  }
}

TEST_CASE("nobody gives anything for what a limit on the way refuses anyway") {
  shared_growable memory(100 * chunk);
  auto team = make(share(memory) | limit{.max_bytes = 32 * chunk});
  auto idle = make(share(team) | pool{});
  auto asks = make(share(team) | limit{.max_bytes = 20 * chunk} | pool{});
  idle.deallocate(host_order, idle.allocate(host_order, 20 * chunk), 20 * chunk);
  CHECK_THROWS_AS(static_cast<void>(asks.allocate(host_order, 21 * chunk)), out_of_memory);
  CHECK(idle.numbers().reserved.current == 20 * chunk);
}

TEST_CASE("what a pool holds that ends counts until it is back, and so what others are promised is kept") {
  busy<shared_growable> memory(16 * chunk);
  auto promised = make(share(memory) | pool{.min_bytes = 8 * chunk});
  auto greedy = make(share(memory) | pool{});
  void* p = nullptr;
  {
    auto ending = make(share(memory) | pool{});
    ending.deallocate(host_order, ending.allocate(host_order, 8 * chunk), 8 * chunk);
    memory.meanwhile = [&] {
      CHECK_THROWS_AS(greedy.allocate(host_order, chunk), out_of_memory);
      CHECK_NOTHROW(p = promised.allocate(host_order, 8 * chunk));
    };
  }
  CHECK_NOTHROW(greedy.deallocate(host_order, greedy.allocate(host_order, 8 * chunk), 8 * chunk));
  if (p != nullptr) promised.deallocate(host_order, p, 8 * chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("nobody takes from a pool whose memory goes back because it ends") {
  busy<shared_growable> memory(8 * chunk);
  auto asks = make(share(memory) | pool{});
  {
    auto ending = make(share(memory) | pool{});
    ending.deallocate(host_order, ending.allocate(host_order, 8 * chunk), 8 * chunk);
    memory.meanwhile = [&] { CHECK_THROWS_AS(asks.allocate(host_order, chunk), out_of_memory); };
  }
  CHECK(memory.wrong == 0);
  CHECK(memory.in_use() == 0);
}

TEST_CASE("what a pool that ends cannot give back counts for good, and so what others are promised is kept") {
  for (std::string const why :
       {"the driver refuses it", "the same while it is parked", "nobody can wait for its work"}) {
    CAPTURE(why);
    lazy_world const world;
    destroyable_stream const s;
    shared_growable memory(8 * chunk);
    auto promised = make(share(memory) | pool{.min_bytes = 4 * chunk});
    auto greedy = make(share(memory) | pool{});
    {
      auto ending = make(share(memory) | pool{});
      void* const p = ending.allocate(s, 4 * chunk);
      memory.refuse_unmap = why != "nobody can wait for its work";
      if (why == "the same while it is parked") ending.park(drop_contents);
      cudaLaunchHostFunc(
          s.get(), [](void*) {}, nullptr);
      ending.deallocate(s, p, 4 * chunk);
      if (why == "nobody can wait for its work") sim::fail_from(1, cudaErrorIllegalAddress);
    }
    sim::clear_failure();
    memory.refuse_unmap = false;
    CHECK(memory.in_use() == 4 * chunk);
    CHECK_THROWS_AS(greedy.allocate(host_order, chunk), out_of_memory);
    void* p = nullptr;
    CHECK_NOTHROW(p = promised.allocate(host_order, 4 * chunk));
    if (p != nullptr) promised.deallocate(host_order, p, 4 * chunk);
  }
}

namespace {

/// What lets a test in while a pool gives memory back, and sees what is refused meanwhile.
class watched_growable : public shared_growable {
 public:
  using shared_growable::shared_growable;
  bool map(void* p, std::size_t bytes) {
    std::lock_guard const lock(mutex_);
    bool const done = shared_growable::map(p, bytes);
    refused += !done;
    return done;
  }
  bool unmap(void* p, std::size_t bytes) noexcept {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    std::lock_guard const lock(mutex_);
    return shared_growable::unmap(p, bytes);
  }

  std::function<void()> meanwhile;
  std::atomic<int> refused = 0;

 private:
  std::mutex mutex_;
};

}  // namespace

TEST_CASE("nothing is refused for memory that another pool is just giving back") {
  watched_growable memory(8 * chunk);
  auto gives = make(share(memory) | pool{});
  auto asks = make(share(memory) | pool{});
  gives.deallocate(host_order, gives.allocate(host_order, 8 * chunk), 8 * chunk);
  void* p = nullptr;
  std::string error;
  std::thread other;
  memory.meanwhile = [&] {
    other = std::thread([&] { error = message_of<out_of_memory>([&] { p = asks.allocate(host_order, chunk); }); });
    while (memory.refused < 2) std::this_thread::yield();  // it has tried all there is
  };
  CHECK(gives.trim() == 8 * chunk);
  other.join();
  CHECK(error == "");
  if (p != nullptr) asks.deallocate(host_order, p, chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("what is asked for inside of giving back does not wait for that") {
  watched_growable memory(8 * chunk);
  auto gives = make(share(memory) | pool{});
  auto asks = make(share(memory) | pool{});
  gives.deallocate(host_order, gives.allocate(host_order, 8 * chunk), 8 * chunk);
  memory.meanwhile = [&] { CHECK_THROWS_AS(static_cast<void>(asks.allocate(host_order, chunk)), out_of_memory); };
  CHECK(gives.trim() == 8 * chunk);
}

TEST_CASE("those under a limit that is used up give what they do not use, and nobody else") {
  shared_growable memory(100 * chunk);
  auto team = make(share(memory) | limit{.max_bytes = 8 * chunk});
  auto idle = make(share(team) | pool{});
  auto asks = make(share(team) | pool{});
  idle.deallocate(host_order, idle.allocate(host_order, 8 * chunk), 8 * chunk);
  auto outside = make(share(memory) | pool{.initial_bytes = 64 * chunk});
  void* const p = asks.allocate(host_order, 5 * chunk);
  CHECK(idle.numbers().reserved.current == 3 * chunk);
  CHECK(outside.numbers().reserved.current == 64 * chunk);
  void* const q = idle.allocate(host_order, 3 * chunk);
  CHECK_THROWS_AS(asks.allocate(host_order, chunk), out_of_memory);  // which no memory of outside would help
  CHECK(outside.numbers().reserved.current == 64 * chunk);
  idle.deallocate(host_order, q, 3 * chunk);
  asks.deallocate(host_order, p, 5 * chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("a pool under a limit that is used up moves what it does not use before it takes from others") {
  shared_growable memory(100 * chunk);
  auto team = make(share(memory) | limit{.max_bytes = 8 * chunk});
  auto other = make(share(team) | pool{.initial_bytes = 2 * chunk});
  auto asks = make(share(team) | pool{});
  void* const low = asks.allocate(host_order, 2 * chunk);
  void* const kept = asks.allocate(host_order, chunk);
  asks.deallocate(host_order, low, 2 * chunk);
  void* const p = asks.allocate(host_order, 5 * chunk);  // the limit lets 3 through
  CHECK(other.numbers().reserved.current == 2 * chunk);
  CHECK(asks.numbers().reserved.current == 6 * chunk);
  CHECK(asks.numbers().moved == 2 * chunk);
  asks.deallocate(host_order, p, 5 * chunk);
  asks.deallocate(host_order, kept, chunk);
}

TEST_CASE("those outside of a limit give too where the source has too little, also if a reserve pays") {
  shared_growable memory(12 * chunk);
  auto team = make(share(memory) | limit{.max_bytes = 8 * chunk});
  auto sure = make(share(team) | limit{.max_bytes = 8 * chunk, .reserve_bytes = 6 * chunk});
  auto asks = make(share(sure) | pool{});
  auto live = make(share(team) | pool{});
  auto outside = make(share(memory) | pool{.initial_bytes = 10 * chunk});
  void* const q = live.allocate(host_order, 2 * chunk);
  void* const p = asks.allocate(host_order, 6 * chunk);
  CHECK(outside.numbers().reserved.current <= 4 * chunk);
  asks.deallocate(host_order, p, 6 * chunk);
  live.deallocate(host_order, q, 2 * chunk);
}

TEST_CASE("a parked pool under a limit has from those under it what they do not use, and nothing of others") {
  sim::reset();
  shared_growable memory(100 * chunk);
  auto team = make(share(memory) | limit{.max_bytes = 8 * chunk});
  auto idle = make(share(team) | pool{});
  auto parked = make(share(team) | pool{});
  void* const p = parked.allocate(host_order, 6 * chunk);
  parked.park(drop_contents);
  void* const q = idle.allocate(host_order, 4 * chunk);
  auto outside = make(share(memory) | pool{.initial_bytes = 64 * chunk});
  CHECK_THROWS_AS(parked.unpark(), out_of_memory);
  idle.deallocate(host_order, q, 4 * chunk);
  parked.unpark();
  CHECK(idle.numbers().reserved.current == 2 * chunk);
  CHECK(outside.numbers().reserved.current == 64 * chunk);
  parked.deallocate(host_order, p, 6 * chunk);
}

TEST_CASE("above its high mark a pool gives idle chunks back by itself") {
  test_growable memory;
  auto p = make_pool(memory, {.high_bytes = 3 * chunk});
  void* const a = p.allocate(host_order, 5 * chunk);
  p.deallocate(host_order, a, 5 * chunk);
  CHECK(memory.in_use() == 3 * chunk);
}

TEST_CASE("a parked pool has no memory, and has it again at the same addresses, with the contents") {
  sim::reset();
  test_growable memory;
  host_resource host;
  auto p = make_pool(memory);
  auto* const a = static_cast<unsigned char*>(p.allocate(host_order, 3 * chunk));
  auto* const b = static_cast<unsigned char*>(p.allocate(host_order, chunk / 2));
  void* const gone = p.allocate(host_order, 4 * chunk);
  std::memset(a, 1, 3 * chunk);
  std::memset(b, 2, chunk / 2);
  p.deallocate(host_order, gone, 4 * chunk);
  for (int again = 0; again < 2; ++again) {
    p.park(share(host));
    CHECK(p.is_parked());
    CHECK(memory.in_use() == 0);
    CHECK(p.numbers().reserved.current == 0);
    CHECK(p.numbers().parked == 4 * chunk);
    CHECK(p.numbers().pending == 0);
    CHECK_THROWS_WITH_AS(p.allocate(host_order, 1), doctest::Contains("parked: call unpark() first"), out_of_memory);
    p.park(share(host));
    CHECK(p.trim() == 0);
    p.unpark();
    p.unpark();
    CHECK_FALSE(p.is_parked());
    CHECK(memory.in_use() == 4 * chunk);
    CHECK(p.numbers().reserved.current == 4 * chunk);
    CHECK((a[0] == 1 && a[3 * chunk - 1] == 1 && b[0] == 2 && b[chunk / 2 - 1] == 2));
  }
  void* const c = p.allocate(host_order, chunk / 4);
  CHECK(memory.in_use() == 4 * chunk);
  p.deallocate(host_order, c, chunk / 4);
  p.deallocate(host_order, a, 3 * chunk);
  p.deallocate(host_order, b, chunk / 2);
  CHECK(p.trim() == 4 * chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("a pool that never held anything is parked too") {
  sim::reset();
  test_growable memory;
  auto p = make_pool(memory);
  p.park(drop_contents);
  CHECK(p.is_parked());
  CHECK_THROWS_WITH_AS(p.allocate(host_order, 1), doctest::Contains("the pool is parked: call unpark()"),
                       out_of_memory);
  p.unpark();
  CHECK_FALSE(p.is_parked());
  p.deallocate(host_order, p.allocate(host_order, 1), 1);
  auto left_parked = make_pool(memory);
  left_parked.park(drop_contents);
}

TEST_CASE("many small blocks are parked, and freed meanwhile") {
  lazy_world const world;
  test_growable memory;
  host_resource host;
  auto p = make_pool(memory);
  weir::stream const s;
  auto const value = [](std::size_t i) { return static_cast<int>(i % 251); };
  std::vector<unsigned char*> blocks(2000);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<unsigned char*>(p.allocate(s, 1000));
    std::memset(blocks[i], value(i), 1000);
  }
  void* const kept = p.allocate(s, 200'000);
  p.deallocate(s, kept, 200'000);
  for (std::size_t i = 0; i < 500; ++i) p.deallocate(s, blocks[i], 1000);
  p.park(share(host));
  CHECK(memory.in_use() == 0);
  {
    caught_misuse misuse;
    p.deallocate(s, blocks[0], 1000);
    p.deallocate(s, kept, 200'000);
    p.deallocate(s, blocks[700], 999);
    CHECK(misuse.count() == 3);
  }
  for (std::size_t i = 500; i < 600; ++i) p.deallocate(s, blocks[i], 1000);
  p.unpark();
  for (std::size_t i = 600; i < blocks.size(); ++i) {
    REQUIRE(blocks[i][0] == value(i));
    REQUIRE(blocks[i][999] == value(i));
  }
  CHECK(p.numbers().allocated.current == 1400 * 1024);
  for (std::size_t i = 600; i < blocks.size(); ++i) p.deallocate(s, blocks[i], 1000);
  p.synchronize();
  p.trim();
  CHECK(memory.in_use() == 0);
  CHECK(memory.wrong == 0);
}

TEST_CASE("what is freed while the pool is parked is free afterwards, and not before") {
  sim::reset();
  test_growable memory;
  auto p = make_pool(memory);
  void* const a = p.allocate(host_order, chunk);
  void* const b = p.allocate(host_order, chunk);
  p.park(drop_contents);
  p.deallocate(host_order, a, chunk);
  CHECK_THROWS_AS(p.allocate(host_order, chunk), out_of_memory);
  {
    caught_misuse misuse;
    p.deallocate(host_order, a, chunk);
    CHECK(misuse.count() == 1);
  }
  CHECK(p.numbers().allocated.current == chunk);
  p.unpark();
  CHECK(p.allocate(host_order, chunk) == a);
  p.deallocate(host_order, a, chunk);
  p.deallocate(host_order, b, chunk);
  CHECK(p.trim() == 2 * chunk);
}

TEST_CASE("the contents of what is freed while the pool is parked are not copied back") {
  sim::reset();
  test_growable memory;
  host_resource host;
  auto p = make_pool(memory);
  std::vector<unsigned char*> blocks(4);
  for (unsigned char*& b : blocks) {
    b = static_cast<unsigned char*>(p.allocate(host_order, chunk / 2));
    *b = 7;
  }
  p.park(share(host));
  for (int i : {0, 2}) p.deallocate(host_order, blocks[static_cast<std::size_t>(i)], chunk / 2);
  memory.fail_map = cudaErrorUnknown;
  CHECK_THROWS_AS(p.unpark(), cuda_error);
  p.deallocate(host_order, blocks[3], chunk / 2);
  std::uint64_t const before = sim::calls("cudaMemcpyAsync");
  p.unpark();
  CHECK(sim::calls("cudaMemcpyAsync") == before + 1);
  CHECK(*blocks[1] == 7);
  p.deallocate(host_order, blocks[1], chunk / 2);
  CHECK(p.trim() == 2 * chunk);
}

TEST_CASE("parking a pool waits for what other threads free while it gives idle memory back") {
  for (bool const at_work : {false, true}) {
    CAPTURE(at_work);
    lazy_world const world;
    busy_growable memory;
    auto p = make(share(memory) | pool{});
    destroyable_stream const s;
    void* const idle = p.allocate(host_order, chunk);
    void* const freed = p.allocate(s, chunk);
    p.deallocate(host_order, idle, chunk);
    memory.meanwhile = [&] {
      if (at_work)
        cudaLaunchHostFunc(
            s.get(), [](void*) {}, nullptr);
      p.deallocate(s, freed, chunk);
    };
    p.park(drop_contents);
    CHECK(p.is_parked());
    CHECK(memory.in_use() == 0);
    p.unpark();
    CHECK(p.numbers().pending == 0);
  }
}

TEST_CASE("a pool is not parked from inside of what it calls to grow, which would go on without memory") {
  sim::reset();
  for (bool const by_limit : {false, true}) {
    CAPTURE(by_limit);
    caught_misuse const misuse;
    test_growable memory(4 * chunk);
    std::function<void()> meanwhile;
    auto const run = [&] {
      if (meanwhile) std::exchange(meanwhile, nullptr)();
    };
    auto below = make(share(memory) |
                      limit{.max_bytes = 8 * chunk,
                            .soft_bytes = by_limit ? 2 * chunk : 8 * chunk,
                            .on_soft = [&](std::size_t) { run(); }} |
                      on_failure{{{"run", [&](auto const&) { return run(), std::size_t{0}; }}}});
    auto p = make(share(below) | pool{});
    auto* const kept = static_cast<unsigned char*>(p.allocate(host_order, chunk));
    kept[0] = 7;
    int refused = 0;
    auto const is_refused = [&](auto call) {
      try {
        call();
      } catch (std::logic_error const& error) {
        refused += std::string(error.what()).find("from inside of") != std::string::npos;
      }
    };
    meanwhile = [&] { is_refused([&] { p.park(drop_contents); }); };
    std::size_t const bytes = (by_limit ? 3 : 4) * chunk;
    void* large = nullptr;
    try {
      large = p.allocate(host_order, bytes);
    } catch (out_of_memory const&) {
    }
    CHECK((large != nullptr) == by_limit);
    CHECK(refused == 1);
    REQUIRE_FALSE(p.is_parked());
    CHECK(kept[0] == 7);
    if (large != nullptr) p.deallocate(host_order, large, bytes);
    p.deallocate(host_order, kept, chunk);
    p.park(drop_contents);
    CHECK(p.is_parked());
    CHECK(misuse.count() == 0);
    CHECK(memory.wrong == 0);
  }
}

TEST_CASE("a pool is not unparked from inside of its own unpark, nor parked") {
  sim::reset();
  test_growable memory(2 * chunk);
  std::function<void()> meanwhile;
  auto const run = [&](auto const&) {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return std::size_t{0};
  };
  auto below = make(share(memory) | on_failure{{{"run", run}}});
  auto p = make(share(below) | pool{});
  void* const kept = p.allocate(host_order, 2 * chunk);
  p.park(drop_contents);
  memory.capacity = chunk;
  meanwhile = [&] {
    memory.capacity = 2 * chunk;
    CHECK_THROWS_WITH_AS(p.unpark(), doctest::Contains("from inside of"), std::logic_error);
    CHECK_THROWS_WITH_AS(p.park(drop_contents), doctest::Contains("from inside of"), std::logic_error);
  };
  p.unpark();
  CHECK_FALSE(p.is_parked());
  CHECK(p.numbers().reserved.current == 2 * chunk);
  CHECK(memory.in_use() == 2 * chunk);
  p.deallocate(host_order, kept, 2 * chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("a pool is not parked where CUDA cannot wait for what was freed") {
  lazy_world const world;
  test_growable memory;
  auto p = make_pool(memory);
  destroyable_stream const s;
  void* const freed = p.allocate(s, chunk);
  cudaLaunchHostFunc(
      s.get(), [](void*) {}, nullptr);
  p.deallocate(s, freed, chunk);
  sim::fail_from(1, cudaErrorIllegalAddress);
  CHECK_THROWS_WITH_AS(p.park(drop_contents), doctest::Contains("waiting for work on freed blocks"), cuda_error);
  CHECK_FALSE(p.is_parked());
  sim::clear_failure();
}

TEST_CASE("where there is no memory for it a pool stays parked, and can be unparked later") {
  sim::reset();
  test_growable memory(4 * chunk);
  host_resource host;
  auto p = make_pool(memory);
  void* const first = p.allocate(host_order, chunk);
  void* const gap = p.allocate(host_order, chunk);
  auto* const last = static_cast<unsigned char*>(p.allocate(host_order, 2 * chunk));
  p.deallocate(host_order, gap, chunk);  // so that two spans are parked
  last[0] = 9;
  p.park(share(host));
  memory.capacity = 2 * chunk;
  CHECK_THROWS_WITH_AS(p.unpark(), doctest::Contains("cannot be unparked"), out_of_memory);
  CHECK(p.is_parked());
  CHECK(memory.in_use() == 0);
  memory.capacity = 4 * chunk;
  memory.fail_map = cudaErrorUnknown;
  CHECK_THROWS_AS(p.unpark(), cuda_error);
  CHECK(memory.in_use() == 0);
  p.unpark();
  CHECK(last[0] == 9);
  p.deallocate(host_order, first, chunk);
  p.deallocate(host_order, last, 2 * chunk);
  CHECK(memory.wrong == 0);
}

TEST_CASE("a pool whose contents cannot be kept is not parked") {
  sim::reset();
  test_growable memory;
  auto p = make_pool(memory);
  auto* const a = static_cast<unsigned char*>(p.allocate(host_order, chunk));
  a[5] = 5;
  source_state state;
  source_resource full(state);
  state.fail = failing::out_of_memory;
  CHECK_THROWS_AS(p.park(share(full)), out_of_memory);
  CHECK_FALSE(p.is_parked());
  CHECK(a[5] == 5);
  state.fail = failing::no;
  p.park(share(full));
  CHECK(state.live_bytes == chunk);
  p.unpark();
  CHECK(state.live_bytes == 0);
  CHECK(a[5] == 5);
  p.deallocate(host_order, a, chunk);
}

TEST_CASE("while a pool is being parked or unparked its memory counts once") {
  sim::reset();
  test_growable memory;
  source_state state;
  source_resource host(state);
  auto p = make(share(memory) | pool{});
  void* const kept = p.allocate(host_order, 3 * chunk);
  void* const gone = p.allocate(host_order, chunk / 2);
  void* const last = p.allocate(host_order, chunk / 2);
  p.deallocate(host_order, gone, chunk / 2);  // free, and no whole chunk
  int looks = 0;
  auto const look = [&](std::size_t parked) {
    auto const n = p.numbers();
    CHECK(n.parked == parked);
    CHECK(n.reserved.current + n.parked == 4 * chunk);
    CHECK(n.free == chunk / 2);
    CHECK(n.pending == 0);
    ++looks;
  };
  state.on_allocate = state.on_deallocate = [&] { look(0); };
  p.park(share(host));
  look(4 * chunk);
  p.unpark();
  CHECK(looks == 3);
  state.fail = failing::out_of_memory;
  CHECK_THROWS_AS(p.park(share(host)), out_of_memory);
  look(0);
  state.fail = failing::no;
  state.on_allocate = state.on_deallocate = nullptr;
  p.deallocate(host_order, kept, 3 * chunk);
  p.deallocate(host_order, last, chunk / 2);
}

TEST_CASE("a pool may end while it is parked") {
  sim::reset();
  test_growable memory;
  source_state state;
  source_resource host(state);
  {
    auto p = make_pool(memory);
    void* const a = p.allocate(host_order, chunk);
    p.park(share(host));
    CHECK(state.live_bytes == chunk);
    p.deallocate(host_order, a, chunk);
  }
  CHECK(state.live_bytes == 0);
  CHECK(memory.ranges.empty());
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

TEST_CASE("a request that was let in before the pool was parked puts no memory anywhere") {
  sim::reset();
  test_growable memory;
  pool const options;
  detail::growable_range<test_growable> range(memory, options);
  detail::stream_ordered_heap heap(0);
  detail::biased_lock mutex;
  detail::biased_guard const lock(mutex);
  detail::stream_identity const who{.stream = host_order};
  auto const request = detail::block_heap::request::of(chunk, chunk, detail::unit_bytes, ~detail::units{0});
  detail::block_id taken = 0;
  REQUIRE(range.grow(mutex, heap, who, request, chunk, taken) == detail::growth::done);
  range.park(mutex, heap, nullptr, 0);
  detail::block_id other = 0;
  CHECK(range.grow(mutex, heap, who, request, 2 * chunk, other) == detail::growth::refused);
  CHECK(other == 0);
  CHECK(memory.in_use() == 0);
  CHECK(range.unpark(mutex, heap, 0));
  CHECK(range.grow(mutex, heap, who, request, 2 * chunk, other) == detail::growth::done);
  CHECK(memory.in_use() == 2 * chunk);
}

TEST_CASE("the store of a parked pool has its memory back, and goes, without the pool's lock") {
  sim::reset();
  test_growable memory;
  pool const options;
  detail::growable_range<test_growable> range(memory, options);
  detail::stream_ordered_heap heap(0);
  std::mutex mutex;
  seen_lock lock{mutex};
  std::lock_guard const held(lock);
  store_calls calls{lock};
  auto const request = detail::block_heap::request::of(chunk, chunk, detail::unit_bytes, ~detail::units{0});
  detail::block_id taken = 0;
  REQUIRE(range.grow(lock, heap, {.stream = host_order}, request, chunk, taken) == detail::growth::done);
  range.park(lock, heap, new watched_store(calls), 0);
  CHECK(range.unpark(lock, heap, 0));
  CHECK(calls.without_lock == 2);
  calls.refuses = true;
  CHECK_THROWS_AS(range.park(lock, heap, new watched_store(calls), 0), std::bad_alloc);
  CHECK_FALSE(range.is_parked());
  CHECK(calls.without_lock == 3);
  CHECK(calls.with_lock == 0);
}

TEST_CASE("a park waits for a park, or an unpark, that another thread is in, and looks then what is left to do") {
  sim::reset();
  busy_growable memory;
  pool const options;
  detail::growable_range<busy_growable> range(memory, options);
  detail::stream_ordered_heap heap(0);
  std::mutex mutex;
  seen_lock lock{mutex};
  auto const request = detail::block_heap::request::of(chunk, chunk, detail::unit_bytes, ~detail::units{0});
  detail::block_id taken = 0;
  lock.lock();
  REQUIRE(range.grow(lock, heap, {.stream = host_order}, request, chunk, taken) == detail::growth::done);
  lock.unlock();
  for (bool const unparks : {false, true}) {
    CAPTURE(unparks);
    seen_lock others{mutex};
    std::thread other;
    std::atomic<bool> has_returned{false};
    std::size_t left = ~std::size_t{0};
    auto const park_beside = [&] {
      other = std::thread([&] {
        others.lock();
        range.park(others, heap, nullptr, 0);
        left = memory.in_use();
        has_returned = true;
        others.unlock();
      });
      while (!has_returned && !others.was_dropped) std::this_thread::yield();
    };
    if (unparks)
      memory.while_mapping = park_beside;
    else
      memory.meanwhile = park_beside;
    lock.lock();
    if (unparks)
      CHECK(range.unpark(lock, heap, 0));
    else
      range.park(lock, heap, nullptr, 0);
    lock.unlock();
    other.join();
    CHECK(left == 0);
    CHECK(range.is_parked());
  }
}
