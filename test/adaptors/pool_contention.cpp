// needs: tsan
// A request that lacks just the memory that another thread is taking from the upstream, or is giving back.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

std::size_t queries() { return sim::calls("cudaEventQuery"); }

/// Another thread's request, which is in the upstream once this is made, stays there until a condition holds (asked
/// with the number of queries that CUDA had answered by then) and then gets its memory, or never does.
struct request_elsewhere {
  void* p = nullptr;
  std::atomic<bool> in_upstream{false};
  std::thread thread;

  template <class Memory, class Condition>
  request_elsewhere(source_state& upstream, Memory& memory, std::size_t bytes, bool fails, Condition condition) {
    upstream.on_allocate = [&, fails, condition, here = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == here) return;
      std::size_t const answered = queries();
      if (!in_upstream.exchange(true))
        while (!condition(answered)) std::this_thread::yield();
      if (fails) throw std::bad_alloc();
    };
    thread = std::thread([&, bytes] {
      try {
        p = memory.allocate(host_order, bytes);
      } catch (out_of_memory const&) {
      }
    });
    while (!in_upstream) std::this_thread::yield();
  }
  ~request_elsewhere() {
    if (thread.joinable()) thread.join();
  }
};

/// Somebody asks CUDA what is done. A request does so under the pool's lock and keeps that until it has looked for
/// room: what is in the upstream cannot land in between.
auto const somebody_asks = [](std::size_t answered) { return queries() > answered; };

/// Leaves a block in the pool that CUDA has to be asked about: the work before its free never ends by itself.
template <class Memory>
struct pending_block {
  destroyable_stream stream;
  pending_block(Memory& memory, std::size_t bytes) {
    void* const p = memory.allocate(stream, bytes);
    REQUIRE(cudaLaunchHostFunc(
                stream.get(), [](void*) {}, nullptr) == cudaSuccess);
    memory.deallocate(stream, p, bytes);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("a request waits for another thread's growth, and is served from what that leaves", Options, pool,
                   fixed_size) {
  lazy_world const world;
  source_state upstream;
  {
    auto const options = [] {
      if constexpr (std::is_same_v<Options, pool>)
        return pool{.max_bytes = 4_MiB, .growth_bytes = 2_MiB};
      else
        return fixed_size{.block_bytes = 512_KiB, .blocks_per_chunk = 4, .max_bytes = 4_MiB};
    }();
    auto memory = make(source{&upstream} | options);
    void* const first[] = {memory.allocate(host_order, 512_KiB), memory.allocate(host_order, 512_KiB),
                           memory.allocate(host_order, 512_KiB)};
    pending_block const pending(memory, 512_KiB);
    request_elsewhere other(upstream, memory, 512_KiB, false, somebody_asks);
    void* const p = memory.allocate(host_order, 512_KiB);
    other.thread.join();
    CHECK(memory.numbers().growths == 2);
    CHECK(memory.numbers().synchronizations == 0);
    memory.deallocate(host_order, p, 512_KiB);
    memory.deallocate(host_order, other.p, 512_KiB);
    for (void* const q : first) memory.deallocate(host_order, q, 512_KiB);
  }
  CHECK(upstream.live_bytes == 0);
}

TEST_CASE("a request waits for another thread's growth, and grows itself when that fails") {
  lazy_world const world;
  source_state upstream;
  {
    auto memory = make(source{&upstream} | pool{.max_bytes = 4_MiB, .growth_bytes = 2_MiB});
    void* const first = memory.allocate(host_order, 2_MiB - 256);
    pending_block const pending(memory, 256);
    request_elsewhere other(upstream, memory, 2_MiB, true, somebody_asks);
    void* const p = memory.allocate(host_order, 512_KiB);
    other.thread.join();
    CHECK(other.p == nullptr);
    CHECK(memory.numbers().out_of_memory == 1);
    memory.deallocate(host_order, p, 512_KiB);
    memory.deallocate(host_order, first, 2_MiB - 256);
  }
  CHECK(upstream.live_bytes == 0);
}

TEST_CASE("a request that a limit below refuses waits for the growth that is charged there") {
  source_state upstream;
  {
    auto memory = make(source{&upstream} | limit{.max_bytes = 2_MiB + 256_KiB} | pool{.growth_bytes = 2_MiB});
    auto const& budget = find<limit_resource>(memory);
    auto const refused = [&](std::size_t) { return budget.refused() != 0; };
    SUBCASE("and is served from it") {
      request_elsewhere other(upstream, memory, 1_MiB, false, refused);
      memory.deallocate(host_order, memory.allocate(host_order, 512_KiB), 512_KiB);
      other.thread.join();
      memory.deallocate(host_order, other.p, 1_MiB);
    }
    SUBCASE("and asks again when it failed") {
      request_elsewhere other(upstream, memory, 2_MiB, true, refused);
      memory.deallocate(host_order, memory.allocate(host_order, 2_MiB), 2_MiB);
    }
    CHECK(memory.numbers().growths == 1);
  }
  CHECK(upstream.live_bytes == 0);
}

TEST_CASE("a request is refused once no other thread has what it lacks") {
  lazy_world const world;
  source_state upstream;
  auto memory = make(source{&upstream} | pool{.max_bytes = 4_MiB, .growth_bytes = 2_MiB});
  void* const first = memory.allocate(host_order, 2_MiB - 256);
  pending_block const pending(memory, 256);
  request_elsewhere other(upstream, memory, 2_MiB, false, somebody_asks);
  CHECK_THROWS_AS(memory.allocate(host_order, 512_KiB), out_of_memory);
  other.thread.join();
  memory.deallocate(host_order, other.p, 2_MiB);
  memory.deallocate(host_order, first, 2_MiB - 256);
}

TEST_CASE("an upstream that uses the pool above it is not waited for") {
  source_state upstream;
  auto memory = make(source{&upstream} | pool{.max_bytes = 2_MiB});
  int asked = 0, refused = 0;
  upstream.on_allocate = [&] {
    if (asked++ != 0) return;
    try {
      memory.allocate(host_order, 256);
    } catch (out_of_memory const&) {
      ++refused;
    }
  };
  memory.deallocate(host_order, memory.allocate(host_order, 2_MiB), 2_MiB);
  CHECK(refused == 1);
}

TEST_CASE("an upstream that takes and gives back memory of the pool above it is not asked without end") {
  source_state upstream;
  auto memory = make(source{&upstream} | pool{});
  int asked = 0;
  bool inside = false;
  upstream.on_allocate = [&] {
    if (inside) return;
    inside = true;
    memory.deallocate(host_order, memory.allocate(host_order, 256), 256);
    memory.trim();
    inside = false;
    if (++asked < 100) throw std::bad_alloc();
  };
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(host_order, 2_MiB)), out_of_memory);
  CHECK(asked < 10);
}

TEST_CASE("an upstream that uses a pool on its pool is not waited for, while another request there waits for it") {
  source_state upstream;
  auto lower = make(source{&upstream} | pool{.max_bytes = 2_MiB});
  auto const asks = [] { return sim::calls("cudaThreadExchangeStreamCaptureMode"); };  // before it asks its upstream
  auto const run = [&](auto handle) {
    auto one = make(handle | pool{}), another = make(handle | pool{});
    std::thread other;
    int refused = 0;
    upstream.on_allocate = [&] {
      if (other.joinable()) return;
      std::size_t const before = asks();
      other = std::thread([&] { CHECK_THROWS_AS(another.allocate(host_order, 1_MiB), out_of_memory); });
      while (asks() == before) std::this_thread::yield();
      try {
        another.allocate(host_order, 256);
      } catch (out_of_memory const&) {
        ++refused;
      }
    };
    void* const p = one.allocate(host_order, 2_MiB);
    other.join();
    CHECK(refused == 1);
    one.deallocate(host_order, p, 2_MiB);
  };
  SUBCASE("of a known type") { run(share(lower)); }
  SUBCASE("of a type that is forgotten") { run(any_ref(lower)); }
}

TEST_CASE("a request waits for the growth of another thread's arena") {
  lazy_world const world;
  source_state upstream;
  bool fails = false;
  SUBCASE("and is served from what that leaves") {}
  SUBCASE("and grows its own when that fails") { fails = true; }
  {
    auto memory = make(source{&upstream} | arena{.max_bytes = 4_MiB, .growth_bytes = 2_MiB});
    void* const first = memory.allocate(host_order, 2_MiB - 256);
    pending_block const pending(memory, 256);
    request_elsewhere other(upstream, memory, 1_MiB, fails, somebody_asks);
    std::size_t const bytes = fails ? 2_MiB : 1_MiB;
    void* const p = memory.allocate(host_order, bytes);
    other.thread.join();
    CHECK((other.p == nullptr) == fails);
    memory.deallocate(host_order, p, bytes);
    if (other.p != nullptr) memory.deallocate(host_order, other.p, 1_MiB);
    memory.deallocate(host_order, first, 2_MiB - 256);
  }
  CHECK(upstream.live_bytes == 0);
}

TEST_CASE("an upstream that uses the arenas above it is not waited for, while another arena waits for it") {
  source_state upstream;
  auto memory = make(source{&upstream} | arena{.max_bytes = 2_MiB});
  auto const asks = [] { return sim::calls("cudaThreadExchangeStreamCaptureMode"); };  // before it asks its upstream
  std::thread other;
  int refused = 0;
  upstream.on_allocate = [&] {
    if (other.joinable()) return;
    std::size_t const before = asks();
    other = std::thread([&] { CHECK_THROWS_AS(memory.allocate(host_order, 1_MiB), out_of_memory); });
    while (asks() == before) std::this_thread::yield();
    try {
      memory.allocate(host_order, 256);
    } catch (out_of_memory const&) {
      ++refused;
    }
  };
  void* const p = memory.allocate(host_order, 2_MiB);
  other.join();
  CHECK(refused == 1);
  memory.deallocate(host_order, p, 2_MiB);
}
