// needs: tsan
#include <weir/adaptors/detail/arena_directory.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/test_growable.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t arenas = 64;  // a number above is no arena's

}  // namespace

TEST_CASE("the directory keeps one budget and knows whose a segment is") {
  source_state state;
  source_resource upstream(state);
  {
    detail::arena_directory directory(upstream, 1_MiB);
    detail::arena_share first(directory, 3), second(directory, 5);
    auto* const p = static_cast<std::byte*>(first.allocate(host_order, 512_KiB, 256));
    auto* const q = static_cast<std::byte*>(second.allocate(host_order, 256_KiB, 256));
    CHECK(directory.owner(p) == 3);
    CHECK(directory.owner(p + 512_KiB - 1) == 3);
    CHECK(directory.owner(q) == 5);
    CHECK(directory.owner(&state) > arenas);
    CHECK_THROWS_AS(second.allocate(host_order, 256_KiB + 1, 256), std::bad_alloc);
    CHECK_THROWS_AS(second.allocate(host_order, SIZE_MAX, 256), std::bad_alloc);
    CHECK(directory.reserved() == 768_KiB);
    first.deallocate(host_order, p, 512_KiB, 256);
    CHECK(directory.owner(p) > arenas);
    CHECK(directory.reserved() == 256_KiB);
    state.fail = failing::out_of_memory;
    CHECK_THROWS_AS(first.allocate(host_order, 1, 256), std::bad_alloc);
    state.fail = failing::other;
    CHECK_THROWS_AS(first.allocate(host_order, 1, 256), std::logic_error);
    state.fail = failing::no;
    CHECK(directory.reserved() == 256_KiB);
    void* const rest = first.allocate(host_order, 768_KiB, 256);
    CHECK(directory.level().peak == 1_MiB);
    first.deallocate(host_order, rest, 768_KiB, 256);
    second.deallocate(host_order, q, 256_KiB, 256);
  }
  CHECK(state.live_count == 0);
}

TEST_CASE("a segment is forgotten before the upstream has it back") {
  source_state state;
  source_resource upstream(state);
  detail::arena_directory directory(upstream, 0);
  void* const p = directory.take(256, 256, 3);
  std::size_t owner = 3;
  state.on_deallocate = [&] { owner = directory.owner(p); };  // another thread may get the same memory from now on
  directory.give(p, 256, 256);
  CHECK(owner > arenas);
}

TEST_CASE("whatever eight threads take, the budget is kept") {
  source_state state;
  source_resource upstream(state);
  detail::arena_directory directory(upstream, 64_KiB);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      detail::arena_share share(directory, t);
      for (std::size_t i = 0; i < 500; ++i) {
        std::size_t const bytes = 256 * (1 + (i * 37 + t) % 128);
        try {
          void* const p = share.allocate(host_order, bytes, 256);
          if (directory.owner(p) != t) FAIL_CHECK("a segment is another's");
          share.deallocate(host_order, p, bytes, 256);
        } catch (std::bad_alloc const&) {
        }
      }
    });
  for (auto& t : threads) t.join();
  CHECK(state.peak_bytes <= 64_KiB);
  CHECK(directory.level().peak <= 64_KiB);
  CHECK(directory.reserved() == 0);
}

TEST_CASE("who lacks what another arena is just taking waits until that call has ended") {
  source_state state;
  source_resource upstream(state);
  detail::arena_directory directory(upstream, 1_MiB);
  std::atomic<bool> inside{false}, coming{false}, leave{false};
  state.on_allocate = [&] {
    if (inside.exchange(true)) return;
    while (!leave) std::this_thread::yield();
    throw std::bad_alloc();
  };
  std::thread first([&] { CHECK_THROWS_AS(directory.take(1_MiB, 256, 1), std::bad_alloc); });
  while (!inside) std::this_thread::yield();
  void* p = nullptr;
  std::thread second([&] {
    coming = true;
    try {
      p = directory.take(512_KiB, 256, 2);
    } catch (std::bad_alloc const&) {
    }
  });
  while (!coming) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // by now it has asked, and would have been refused
  leave = true;
  first.join();
  second.join();
  REQUIRE(p != nullptr);
  directory.give(p, 512_KiB, 256);
  CHECK(directory.reserved() == 0);
}

TEST_CASE("of a growable upstream the directory knows whose a range is, and counts what is mapped") {
  constexpr std::size_t chunk = test_growable::chunk;
  test_growable upstream(3 * chunk);
  detail::arena_directory directory(upstream, 4 * chunk);
  detail::arena_share first(directory, 3), second(directory, 5);
  address_range const a = first.reserve_range(8 * chunk), b = second.reserve_range(8 * chunk);
  auto* const p = static_cast<std::byte*>(a.begin);
  CHECK(directory.owner(p + a.bytes - 1) == 3);
  CHECK(directory.owner(b.begin) == 5);
  CHECK(directory.reserved() == 0);
  CHECK(first.map(p, 2 * chunk));
  CHECK_FALSE(second.map(b.begin, 3 * chunk));  // beyond the budget
  CHECK(upstream.map_calls == 1);
  CHECK_FALSE(second.map(b.begin, 2 * chunk));  // beyond what there is
  CHECK(directory.reserved() == 2 * chunk);
  CHECK(first.unmap(p, chunk));
  CHECK(second.map(b.begin, 2 * chunk));
  CHECK(directory.level().peak == 3 * chunk);
  upstream.refuse_unmap = true;
  CHECK_FALSE(second.unmap(b.begin, chunk));
  upstream.refuse_unmap = false;
  CHECK(directory.reserved() == 3 * chunk);
  upstream.fail_map = cudaErrorUnknown;
  CHECK(first.unmap(p + chunk, chunk));
  CHECK_THROWS_AS(first.map(p, chunk), cuda_error);
  CHECK(directory.reserved() == 2 * chunk);
  CHECK(second.unmap(b.begin, 2 * chunk));
  first.release_range(a);
  CHECK(directory.owner(p) > arenas);
  second.release_range(b);
  CHECK(upstream.ranges.empty());
  CHECK(upstream.wrong == 0);
}
