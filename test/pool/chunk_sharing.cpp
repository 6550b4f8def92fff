// What pools on one growable upstream have of each other.
#include <weir/pool/chunk_sharing.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <mutex>
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

TEST_CASE("what a pool asks for and cannot have is kept from no other; what it moves is its own") {
  watched_growable memory(8 * chunk);
  auto promised = make(share(memory) | pool{.min_bytes = 4 * chunk});
  auto asks = make(share(memory) | pool{});
  auto other = make(share(memory) | pool{});
  void* const idle = asks.allocate(host_order, 2 * chunk);
  void* const kept = asks.allocate(host_order, chunk);
  asks.deallocate(host_order, idle, 2 * chunk);
  void* p = nullptr;
  memory.meanwhile = [&] {
    CHECK_THROWS_AS(static_cast<void>(other.allocate(host_order, 2 * chunk)), out_of_memory);
    CHECK_NOTHROW(p = other.allocate(host_order, chunk));
  };
  CHECK_THROWS_AS(static_cast<void>(asks.allocate(host_order, 4 * chunk)), out_of_memory);
  CHECK(asks.numbers().moved == 0);
  if (p != nullptr) other.deallocate(host_order, p, chunk);
  asks.deallocate(host_order, kept, chunk);
  CHECK(memory.wrong == 0);
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
