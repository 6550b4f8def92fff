// Pools that are parked: on memory of the host that counts its chunks.
#include <weir/pool/parking.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
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

TEST_CASE("what the driver does not take back of a parked pool stays its own, and is asked for twice") {
  sim::reset();
  busy_growable memory;
  auto p = make(share(memory) | pool{});
  void* const a = p.allocate(host_order, 3 * chunk);
  auto const check = [&](std::size_t parked, std::size_t reserved) {
    CHECK(p.numbers().parked == parked);
    CHECK(p.numbers().reserved.current == reserved);
    CHECK(memory.in_use() == reserved / chunk * chunk);
  };
  memory.refuse_unmap = true;
  p.park(drop_contents);
  CHECK(p.is_parked());
  check(0, 3 * chunk);
  memory.refuse_unmap = false;
  p.unpark();
  memory.refuse_once = true;
  p.park(drop_contents);
  check(3 * chunk, 0);
  p.unpark();
  check(0, 3 * chunk);
  p.deallocate(host_order, a, 3 * chunk);
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
