#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/support/process_barrier.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using weir::detail::given;
using allocator = detail::caching_allocator<source_resource>;

namespace {

/// A pool whose lock this thread owns, and two streams that do not end.
struct owned_pool {
  watched_world const world;
  source_state state;
  source_resource upstream{state};
  weir::stream const a, b;
  allocator memory;

  explicit owned_pool(pool const& options = {}) : memory(upstream, options, 0) {
    for (int i = 0; i < 200; ++i) memory.deallocate(a, take(a, 3000), 3000, 256);
  }
  void* take(stream_ref stream, std::size_t bytes) {
    return memory.allocate(stream, bytes, 256, detail::pool_effort::all);
  }
};

/// Without it no thread owns a lock, and nothing goes this way.
bool can_own() {
  bool const can = detail::process_barrier::exists();
  if (!can) MESSAGE("not tested: the system has no barrier for a process's threads (membarrier)");
  return can;
}

}  // namespace

TEST_CASE("the lock's owner has at once what its stream freed, a block or a slot, and it counts") {
  if (!can_own()) return;
  owned_pool pool;
  for (std::size_t const count : {std::size_t{1}, std::size_t{100}}) {  // by blocks, and where there are many, by slabs
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) blocks.push_back(pool.take(pool.a, 3000));
    // What was at hand may have made room in the pool's tables meanwhile; from here on there is some again.
    CHECK(pool.memory.deallocate(pool.a, blocks.front(), 3000, 256));
    blocks.front() = pool.take(pool.a, 3000);
    for (void*& p : blocks) {
      REQUIRE(pool.memory.give_as_owner(pool.a, p, 3000, 256) == given::yes);
      CHECK(pool.memory.numbers().requested.current == 3000 * (count - 1));
      CHECK(pool.memory.numbers().allocated.current == 3072 * (count - 1));
      REQUIRE((p = pool.memory.take_as_owner(pool.a, 3000, 256)) != nullptr);
      CHECK(pool.memory.numbers().requested.current == 3000 * count);
      CHECK(pool.memory.numbers().allocated.current == 3072 * count);
    }
    for (void* const p : blocks) CHECK(pool.memory.deallocate(pool.a, p, 3000, 256));
  }
}

TEST_CASE("other threads, streams and sizes get nothing, and nothing changes") {
  if (!can_own()) return;
  owned_pool pool;
  void* const p = pool.take(pool.a, 3000);
  void* const q = pool.take(pool.a, 3000);
  REQUIRE(pool.memory.give_as_owner(pool.a, p, 3000, 256) == given::yes);
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.b, 3000, 256)));
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.a, 4000, 256)));
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(host_order, 3000, 256)));
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(cudaStreamPerThread, 3000, 256)));
  CHECK(pool.memory.give_as_owner(pool.b, q, 3000, 256) == given::for_the_heap);
  CHECK(pool.memory.give_as_owner(pool.a, q, 2999, 256) == given::no);
  CHECK(pool.memory.give_as_owner(pool.a, q, 3000, 128) == given::no);
  CHECK(pool.memory.give_as_owner(pool.a, p, 3000, 256) == given::no);  // freed already
  CHECK(pool.memory.give_as_owner(host_order, q, 3000, 256) == given::for_the_heap);
  std::thread([&] {
    CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.a, 3000, 256)));
    CHECK(pool.memory.give_as_owner(pool.a, q, 3000, 256) == given::no);
  }).join();
  CHECK(pool.memory.numbers().requested.current == 3000);
  CHECK(pool.memory.take_as_owner(pool.a, 3000, 256) == p);
  for (void* const each : {p, q}) CHECK(pool.memory.deallocate(pool.a, each, 3000, 256));
}

TEST_CASE("a slot that empties a slab which is not the only one goes the general way, and so does another stream's") {
  if (!can_own()) return;
  owned_pool pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(pool.take(pool.a, 3000));
  CHECK(pool.memory.give_as_owner(pool.b, blocks.back(), 3000, 256) == given::no);
  std::size_t otherwise = 0;
  for (void* const p : blocks)
    if (pool.memory.give_as_owner(pool.a, p, 3000, 256) != given::yes) {
      ++otherwise;
      CHECK(pool.memory.deallocate(pool.a, p, 3000, 256));
    }
  CHECK(otherwise > 0);
  CHECK(otherwise < 100);
  CHECK(pool.memory.numbers().requested.current == 0);
  pool.memory.synchronize();
  pool.memory.trim(0);
  CHECK(pool.state.live_bytes == 0);
}

TEST_CASE("nothing goes the short way while a capture is declared, or above the threshold") {
  if (!can_own()) return;
  {
    owned_pool pool;
    void* const p = pool.take(pool.a, 3000);
    capture_scope const declared;
    CHECK(pool.memory.give_as_owner(pool.a, p, 3000, 256) == given::no);
    CHECK(pool.memory.deallocate(pool.a, p, 3000, 256));
    CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.a, 3000, 256)));
  }
  {
    owned_pool pool({.release_threshold = 4_MiB});
    std::vector<void*> slots;
    for (std::size_t i = 0; i < 100; ++i) slots.push_back(pool.take(pool.a, 3000));
    CHECK(pool.memory.give_as_owner(pool.a, slots[98], 3000, 256) == given::yes);
    void* const large = pool.take(pool.a, 8_MiB);
    CHECK(pool.memory.give_as_owner(pool.a, slots[99], 3000, 256) == given::no);
    for (std::size_t i = 0; i < 100; ++i)
      if (i != 98) CHECK(pool.memory.deallocate(pool.a, slots[i], 3000, 256));
    CHECK(pool.memory.deallocate(pool.a, large, 8_MiB, 256));
  }
}

TEST_CASE("what is freed in host order is kept by no thread's cache, whatever that gave back before") {
  if (!can_own()) return;
  owned_pool pool({.thread_caches = true});
  for (int pair = 0; pair < 200; ++pair) {
    void* const p = pool.take(pool.a, 3000);
    CHECK(pool.memory.deallocate(pool.a, p, 3000, 256));
  }
  void* const p = pool.take(pool.a, 3000);
  pool.memory.synchronize();  // no stream has anything in a cache now
  CHECK(pool.memory.give_as_owner(host_order, p, 3000, 256) != given::yes);
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(host_order, 3000, 256)));
  CHECK(pool.memory.deallocate(host_order, p, 3000, 256));
  CHECK(pool.memory.numbers().requested.current == 0);
  pool.memory.snapshot();
  void* const one = pool.take(pool.a, 3000);
  void* const other = pool.take(pool.a, 3000);
  CHECK(one != other);
  for (void* const live : {one, other}) CHECK(pool.memory.deallocate(pool.a, live, 3000, 256));
  pool.memory.synchronize();
  pool.memory.trim(0);
  CHECK(pool.state.live_bytes == 0);
}

TEST_CASE("where threads have caches, a thread has at once what it freed there, but not while a capture is declared") {
  if (!can_own()) return;
  owned_pool pool({.thread_caches = true});
  void* const p = pool.take(pool.a, 3000);
  void* const q = pool.take(pool.a, 3000);
  REQUIRE(pool.memory.give_as_owner(pool.a, p, 3000, 256) == given::yes);
  CHECK(pool.memory.give_as_owner(pool.a, p, 3000, 256) == given::no);  // freed already
  CHECK(pool.memory.give_as_owner(pool.a, q, 2999, 256) == given::no);
  CHECK(pool.memory.give_as_owner(host_order, q, 3000, 256) == given::no);
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.b, 3000, 256)));
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(host_order, 3000, 256)));
  std::thread([&] {
    CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.a, 3000, 256)));
    CHECK(pool.memory.give_as_owner(pool.a, q, 3000, 256) == given::no);
  }).join();
  CHECK(pool.memory.numbers().requested.current == 3000);
  {
    capture_scope const declared;
    CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.a, 3000, 256)));
    CHECK(pool.memory.give_as_owner(pool.a, q, 3000, 256) == given::no);
  }
  CHECK(pool.memory.take_as_owner(pool.a, 3000, 256) == p);
  for (void* const each : {p, q}) CHECK(pool.memory.deallocate(pool.a, each, 3000, 256));
}

TEST_CASE(
    "where large blocks have most of the memory the owner keeps no small one, though threads wait for each other") {
  if (!can_own()) return;
  owned_pool pool({.release_threshold = 64_MiB, .thread_caches = true});  // which has none, for the threshold
  void* const large = pool.take(pool.a, 8_MiB);
  void* const freed = pool.take(pool.a, 2_MiB);
  // More than slots are for, which are the stream's in any case.
  void* const kept = pool.take(pool.a, 100'000);
  void* const p = pool.take(pool.a, 100'000);
  CHECK(pool.memory.deallocate(pool.a, kept, 100'000, 256));
  CHECK(pool.memory.deallocate(pool.a, freed, 2_MiB, 256));  // with which it looks what is live
  CHECK(pool.memory.deallocate(pool.a, p, 100'000, 256));
  CHECK(pool.memory.take_as_owner(pool.a, 100'000, 256) == kept);
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(pool.a, 100'000, 256)));
  CHECK(pool.memory.deallocate(pool.a, kept, 100'000, 256));
  CHECK(pool.memory.deallocate(pool.a, large, 8_MiB, 256));
}

TEST_CASE("a thread's own default stream has at hand what it freed there") {
  if (!can_own()) return;
  owned_pool pool;
  void* const p = pool.take(cudaStreamPerThread, 3000);
  void* const q = pool.take(cudaStreamPerThread, 3000);
  CHECK(pool.memory.deallocate(cudaStreamPerThread, p, 3000, 256));
  REQUIRE(pool.memory.give_as_owner(cudaStreamPerThread, q, 3000, 256) == given::yes);
  CHECK_FALSE(pool.memory.is_memory(pool.memory.take_as_owner(cudaStreamLegacy, 3000, 256)));
  CHECK(pool.memory.take_as_owner(cudaStreamPerThread, 3000, 256) == q);
  CHECK(pool.memory.deallocate(cudaStreamPerThread, q, 3000, 256));
}
