// needs: tsan
#include <weir/adaptors/detail/arena_share.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::arena_lease;

namespace {

using lease_handle = weir::detail::shared_owner<arena_lease>;

std::size_t index_of_a_new_thread(lease_handle const& lease) {
  std::size_t index = 0;
  std::thread([&] { index = arena_lease::of_this_thread(lease); }).join();
  return index;
}

}  // namespace

TEST_CASE("a thread keeps its number") {
  auto const lease = lease_handle::make(4u);
  auto const other = lease_handle::make(4u);
  std::size_t const mine = arena_lease::of_this_thread(lease);
  for (int i = 0; i < 5; ++i) {
    CHECK(arena_lease::of_this_thread(other) == 0);
    CHECK(arena_lease::of_this_thread(lease) == mine);
    CHECK(arena_lease::held_by_this_thread(lease) == mine);
  }
}

TEST_CASE("to ask is not to take") {
  auto const lease = lease_handle::make(4u);
  std::thread([&] {
    CHECK(arena_lease::held_by_this_thread(lease) == arena_lease::none);
    auto const other = lease_handle::make(4u);
    arena_lease::of_this_thread(other);
    CHECK(arena_lease::held_by_this_thread(lease) == arena_lease::none);
    CHECK(arena_lease::held_by_this_thread(other) == 0);
  }).join();
  CHECK(index_of_a_new_thread(lease) == 0);
}

TEST_CASE("numbers of ended threads are used before new ones, and are shared evenly when all are taken") {
  auto const lease = lease_handle::make(3u);
  for (int i = 0; i < 10; ++i) CHECK(index_of_a_new_thread(lease) == 0);
  std::barrier all_have_one(9), all_done(9);
  std::atomic<int> holders[3] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      ++holders[arena_lease::of_this_thread(lease)];
      all_have_one.arrive_and_wait();
      all_done.arrive_and_wait();
    });
  all_have_one.arrive_and_wait();
  CHECK(holders[0] + holders[1] + holders[2] == 8);
  for (auto const& h : holders) CHECK((h == 2 || h == 3));
  CHECK(index_of_a_new_thread(lease) <= 2);
  all_done.arrive_and_wait();
  for (auto& t : threads) t.join();
  CHECK(index_of_a_new_thread(lease) == 0);
}

TEST_CASE("a lease at the address of one before is not mistaken for it") {
  std::thread([] {
    int same_address = 0;
    for (int i = 0; i < 1000; ++i) {
      auto lease = lease_handle::make(2u);
      arena_lease const* const address = lease.get();
      index_of_a_new_thread(lease);
      std::size_t const first = arena_lease::of_this_thread(lease);
      lease->close();
      lease = {};
      auto const next = lease_handle::make(2u);
      if (next.get() == address) ++same_address;
      CHECK(arena_lease::held_by_this_thread(next) == arena_lease::none);
      std::thread holder;
      std::barrier holds(2), done(2);
      if (i % 2 == 0) {  // somebody else is first this time
        holder = std::thread([&] {
          arena_lease::of_this_thread(next);
          holds.arrive_and_wait();
          done.arrive_and_wait();
        });
        holds.arrive_and_wait();
      }
      CHECK(arena_lease::of_this_thread(next) == (i % 2 == 0 ? 1 : 0));
      CHECK(first == 0);
      if (holder.joinable()) {
        done.arrive_and_wait();
        holder.join();
      }
      next->close();
    }
    // While a thread remembers a lease, that lease lives: no other can have its address.
    CHECK(same_address == 0);
  }).join();
}

TEST_CASE("closed leases are forgotten when the thread meets the next resource") {
  std::thread([] {
    auto const lease = lease_handle::make(1u);
    arena_lease::of_this_thread(lease);
    lease->close();
    CHECK_FALSE(lease.alone());  // the thread's list has it
    arena_lease::of_this_thread(lease_handle::make(1u));
    CHECK(lease.alone());
  }).join();
}

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
    CHECK(directory.owner(&state) > arena_lease::most);
    CHECK_THROWS_AS(second.allocate(host_order, 256_KiB + 1, 256), std::bad_alloc);
    CHECK_THROWS_AS(second.allocate(host_order, SIZE_MAX, 256), std::bad_alloc);
    CHECK(directory.reserved() == 768_KiB);
    first.deallocate(host_order, p, 512_KiB, 256);
    CHECK(directory.owner(p) > arena_lease::most);
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
  CHECK(owner > arena_lease::most);
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
