// needs: tsan
#include <weir/support/thread_lease.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "opened.hpp"

using weir::detail::thread_lease;

namespace weir::test {
struct mutex_of_lease {
  using type = weir::detail::mutex thread_lease::*;
  friend type member(mutex_of_lease);
};
template struct opened<mutex_of_lease, &thread_lease::mutex_>;
struct give_back_of_lease {
  using type = void (thread_lease::*)(std::size_t) noexcept;
  friend type member(give_back_of_lease);
};
template struct opened<give_back_of_lease, &thread_lease::give_back>;
}  // namespace weir::test

namespace {

using lease_handle = weir::detail::shared_owner<thread_lease>;

std::size_t index_of_a_new_thread(lease_handle const& lease) {
  std::size_t index = 0;
  std::thread([&] { index = thread_lease::of_this_thread(lease); }).join();
  return index;
}

}  // namespace

TEST_CASE("a thread keeps its number") {
  auto const lease = lease_handle::make(4u);
  auto const other = lease_handle::make(4u);
  std::size_t const mine = thread_lease::of_this_thread(lease);
  for (int i = 0; i < 5; ++i) {
    CHECK(thread_lease::of_this_thread(other) == 0);
    CHECK(thread_lease::of_this_thread(lease) == mine);
    CHECK(thread_lease::held_by_this_thread(lease) == mine);
  }
}

TEST_CASE("to ask is not to take") {
  auto const lease = lease_handle::make(4u);
  std::thread([&] {
    CHECK(thread_lease::held_by_this_thread(lease) == thread_lease::none);
    auto const other = lease_handle::make(4u);
    thread_lease::of_this_thread(other);
    CHECK(thread_lease::held_by_this_thread(lease) == thread_lease::none);
    CHECK(thread_lease::held_by_this_thread(other) == 0);
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
      ++holders[thread_lease::of_this_thread(lease)];
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
      thread_lease const* const address = lease.get();
      index_of_a_new_thread(lease);
      std::size_t const first = thread_lease::of_this_thread(lease);
      lease->close();
      lease = {};
      auto const next = lease_handle::make(2u);
      if (next.get() == address) ++same_address;
      CHECK(thread_lease::held_by_this_thread(next) == thread_lease::none);
      std::thread holder;
      std::barrier holds(2), done(2);
      if (i % 2 == 0) {  // somebody else is first this time
        holder = std::thread([&] {
          thread_lease::of_this_thread(next);
          holds.arrive_and_wait();
          done.arrive_and_wait();
        });
        holds.arrive_and_wait();
      }
      CHECK(thread_lease::of_this_thread(next) == (i % 2 == 0 ? 1 : 0));
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
    thread_lease::of_this_thread(lease);
    lease->close();
    CHECK_FALSE(lease.alone());  // the thread's list has it
    thread_lease::of_this_thread(lease_handle::make(1u));
    CHECK(lease.alone());
  }).join();
}

TEST_CASE("a forked child does not wait for the mutex that another thread of its parent held") {
  auto const lease = lease_handle::make(4u);
  std::size_t const mine = thread_lease::of_this_thread(lease);
  ::pid_t child = -1;
  {
    weir::detail::mutex_guard const held((*lease).*member(weir::test::mutex_of_lease{}));
    child = ::fork();
    if (child == 0) {
      ::alarm(10);  // which ends it, should it wait
      ((*lease).*member(weir::test::give_back_of_lease{}))(mine);
      lease->close();
      static_cast<void>(thread_lease::of_this_thread(lease_handle::make(4u)));
      ::_exit(0);
    }
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
