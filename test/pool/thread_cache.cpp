#include <weir/pool/thread_cache.hpp>

#include <weir/support/process_barrier.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

using namespace weir;
using detail::list_id;
using detail::slot_class;
using detail::stream_identity;
using detail::stream_key;
using detail::thread_cache;
using detail::unit_bytes;

namespace {

using answer = thread_cache::answer;

void* at(std::uintptr_t unit) { return reinterpret_cast<void*>(unit * unit_bytes); }
stream_key key(std::uint64_t number) { return stream_identity::key_for(stream_identity::lasting, number); }
unsigned class_of(std::size_t bytes) {
  return slot_class::of(static_cast<detail::units>((bytes + unit_bytes - 1) / unit_bytes));
}

/// Number 5 of a pool's caches. Lists have the numbers of their streams.
struct cache_with_streams {
  thread_cache cache{5};
  std::vector<std::pair<void*, list_id>> went;
  std::vector<list_id> closed;

  auto give() {
    return [this](void* p, list_id list, std::size_t) { went.emplace_back(p, list); };
  }
  auto close() {
    return [this](list_id list) { closed.push_back(list); };
  }
  void open(std::uint64_t stream) { cache.open(key(stream), static_cast<list_id>(stream), give(), close()); }
  void add(void* p, std::size_t bytes) {
    cache.promise(1);
    cache.add_live(p, class_of(bytes), bytes, 8);
  }
  void* take(std::uint64_t stream, std::size_t bytes) {
    return cache.take(key(stream), slot_class::for_bytes(bytes), bytes, 8);
  }
  answer free(std::uint64_t stream, void* p, std::size_t bytes, unsigned alignment_log = 8) {
    return cache.give(key(stream), p, slot_class::for_bytes(bytes), bytes, alignment_log);
  }
  void* take_at_once(std::uint64_t stream, std::size_t bytes) {
    return cache.take_at_once(key(stream), slot_class::for_bytes(bytes), bytes, 8);
  }
  bool free_at_once(std::uint64_t stream, void* p, std::size_t bytes) {
    return cache.give_at_once(key(stream), p, slot_class::for_bytes(bytes), bytes, 8);
  }
};

/// The calling thread owns its lock, and used it for stream 1.
struct owned_cache : cache_with_streams {
  owned_cache() {
    open(1);
    add(at(10), 1000);
    for (int i = 0; i < 100; ++i) {
      free(1, at(10), 1000);
      take(1, 1000);
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(cache_with_streams, "a thread has again what it freed on the stream, the latest first, by size") {
  open(1);
  add(at(10), 1000);
  add(at(20), 900);
  add(at(30), 5000);
  CHECK(take(1, 1000) == nullptr);
  CHECK(free(1, at(10), 1000) == answer::kept);
  CHECK(free(1, at(30), 5000) == answer::kept);
  CHECK(free(1, at(20), 900) == answer::kept);
  CHECK(take(1, 800) == at(20));  // of the same size in whole units
  CHECK(take(1, 1024) == at(10));
  CHECK(take(1, 1024) == nullptr);
  CHECK(take(1, 4999) == at(30));
}

TEST_CASE_FIXTURE(cache_with_streams, "what was freed on one stream no other one is given") {
  open(1);
  open(2);
  add(at(10), 1000);
  CHECK(free(1, at(10), 1000) == answer::kept);
  CHECK(take(2, 1000) == nullptr);
  CHECK(take(1, 1000) == at(10));
  CHECK(free(2, at(10), 1000) == answer::kept);  // whoever allocated it
  CHECK(take(1, 1000) == nullptr);
  CHECK(take(2, 1000) == at(10));
}

TEST_CASE_FIXTURE(cache_with_streams, "only a block that is live and was asked for so is taken") {
  open(1);
  add(at(10), 1000);
  CHECK(free(1, at(10), 1001) == answer::unknown);
  CHECK(free(1, at(10), 1000 + 4096) == answer::unknown);
  CHECK(free(1, at(10), 1000, 7) == answer::unknown);
  CHECK(free(1, at(11), 1000) == answer::unknown);
  CHECK(free(1, at(10), 1000) == answer::kept);
  CHECK(free(1, at(10), 1000) == answer::unknown);  // freed already
}

TEST_CASE_FIXTURE(owned_cache, "its thread has at once what it freed on the stream it freed for last") {
  if (!detail::process_barrier::exists()) return;  // then nobody owns a lock
  CHECK(free_at_once(1, at(10), 1000));
  CHECK(take_at_once(1, 4000) == nullptr);
  CHECK(take_at_once(1, 900) == at(10));
  CHECK(take_at_once(1, 900) == nullptr);
  CHECK(cache.take_numbers().requested.current == 900);
  CHECK_FALSE(free_at_once(1, at(10), 1000));
  CHECK_FALSE(free_at_once(1, at(11), 900));
  CHECK(free_at_once(1, at(10), 900));
  CHECK_FALSE(free_at_once(1, at(10), 900));  // freed already
  CHECK(cache.take_numbers().requested.current == 0);
}

TEST_CASE_FIXTURE(owned_cache, "other threads and streams get nothing at once, and nothing changes") {
  if (!detail::process_barrier::exists()) return;
  open(2);
  CHECK_FALSE(free_at_once(3, at(10), 1000));  // not open
  std::thread([&] { CHECK_FALSE(free_at_once(1, at(10), 1000)); }).join();
  CHECK(free_at_once(1, at(10), 1000));
  CHECK(take_at_once(2, 1000) == nullptr);
  CHECK(take_at_once(3, 1000) == nullptr);
  std::thread([&] { CHECK(take_at_once(1, 1000) == nullptr); }).join();
  CHECK(take_at_once(1, 1000) == at(10));
}

TEST_CASE_FIXTURE(owned_cache, "what has no room is not kept at once") {
  if (!detail::process_barrier::exists()) return;
  for (std::uintptr_t i = 100; i < 132; ++i) {
    add(at(i), 1000);
    CHECK(free_at_once(1, at(i), 1000));
  }
  CHECK_FALSE(free_at_once(1, at(10), 1000));
  CHECK(free(1, at(10), 1000) == answer::no_room);
}

TEST_CASE_FIXTURE(cache_with_streams, "there is no room for a stream that is not open, nor for more than so many") {
  add(at(1), 100);
  CHECK(free(1, at(1), 100) == answer::no_room);
  CHECK_FALSE(cache.is_open(key(1)));
  open(1);
  CHECK(cache.is_open(key(1)));
  CHECK(free(1, at(1), 100) == answer::kept);
  for (std::uintptr_t i = 2; i <= 32; ++i) {
    add(at(i), 100);
    CHECK(free(1, at(i), 100) == answer::kept);
  }
  add(at(33), 100);
  CHECK(free(1, at(33), 100) == answer::no_room);
  cache.drain(key(1), class_of(100), give());
  REQUIRE(went.size() == 16);
  CHECK(went.front() == std::pair{at(32), list_id{1}});
  CHECK(free(1, at(33), 100) == answer::kept);
  CHECK(free(1, at(32), 100) == answer::unknown);
}

TEST_CASE_FIXTURE(cache_with_streams, "of large blocks fewer are kept") {
  open(1);
  std::size_t const bytes = std::size_t{1} << 20;
  for (std::uintptr_t i = 1; i <= 9; ++i) {
    add(at(4096 * i), bytes);
    CHECK(free(1, at(4096 * i), bytes) == (i <= 8 ? answer::kept : answer::no_room));
  }
}

TEST_CASE_FIXTURE(cache_with_streams, "drain gives all that is free, with its list, and closes the streams") {
  open(1);
  open(2);
  for (std::uintptr_t i = 1; i <= 3; ++i) add(at(i), 256);
  CHECK(free(1, at(1), 256) == answer::kept);
  CHECK(free(2, at(2), 256) == answer::kept);
  cache.drain(give(), close());
  CHECK(went == std::vector<std::pair<void*, list_id>>{{at(1), list_id{1}}, {at(2), list_id{2}}});
  CHECK(closed == std::vector<list_id>{list_id{1}, list_id{2}});
  CHECK_FALSE(cache.is_open(key(1)));
  CHECK(take(1, 256) == nullptr);
  CHECK(cache.take_back(at(3)).requested == 256);  // that was live
}

TEST_CASE_FIXTURE(cache_with_streams, "a stream too many has the place of another one, whose blocks go") {
  for (std::uint64_t stream = 1; stream <= 16; ++stream) open(stream);
  add(at(1), 256);
  CHECK(free(1, at(1), 256) == answer::kept);
  open(17);
  CHECK(closed == std::vector<list_id>{list_id{1}});
  CHECK(went == std::vector<std::pair<void*, list_id>>{{at(1), list_id{1}}});
  CHECK(cache.is_open(key(17)));
  CHECK_FALSE(cache.is_open(key(1)));
  CHECK(cache.is_open(key(16)));
}

TEST_CASE_FIXTURE(cache_with_streams, "the pool asks a live block back, and is told how it was asked for") {
  open(1);
  add(at(1), 1000);
  CHECK(cache.record(1024) == 1024 - 5);
  thread_cache::live const was = cache.take_back(at(1));
  CHECK(was.requested == 1000);
  CHECK(was.alignment_log == 8);
  CHECK(cache.take_back(at(1)).requested == 0);
  CHECK(free(1, at(1), 1000) == answer::unknown);
  add(at(1), 1000);
  CHECK(free(1, at(1), 1000) == answer::kept);
  CHECK(cache.take_back(at(1)).requested == 0);  // it is free
}

TEST_CASE_FIXTURE(cache_with_streams, "what is lent free is there for its stream") {
  open(1);
  cache.promise(2);
  cache.add_free(key(1), at(7), class_of(512));
  CHECK(take(1, 512) == at(7));
  cache.forget_promise(1);
  pool_numbers const n = cache.take_numbers();
  CHECK(n.allocations == 1);
  CHECK(n.requested.current == 512);
}

TEST_CASE_FIXTURE(cache_with_streams, "all that is live can be asked back at once") {
  add(at(1), 256);
  add(at(2), 300);
  std::size_t requested = 0, blocks = 0;
  cache.take_all_back([&](void const*, thread_cache::live const& was, std::size_t bytes) {
    requested += was.requested;
    blocks += bytes;
  });
  CHECK(requested == 556);
  CHECK(blocks == 256 + 512);
  CHECK(cache.take_numbers().requested.current == 0);
  CHECK(cache.take_back(at(1)).requested == 0);
}

// A request that found nothing: false if it was for the pool; else what was lent was freed by another thread.
static bool lent_for_others(cache_with_streams& c) {
  if (!c.cache.wants_more()) return false;
  c.add(at(10), 1000);
  c.cache.take_back(at(10));
  return true;
}
static std::size_t lent_of(std::size_t requests, auto lent) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < requests; ++i) count += lent();
  return count;
}

TEST_CASE_FIXTURE(cache_with_streams, "what others free is lent ever more seldom, but now and then") {
  auto const lent = [&] { return lent_for_others(*this); };
  CHECK(lent_of(100, lent) < 100);
  lent_of(4'000, lent);
  std::size_t const some = lent_of(20'000, lent);
  CHECK(some > 0);
  CHECK(some < 1'000);
}

TEST_CASE_FIXTURE(cache_with_streams, "what the thread itself frees is lent, though others free some") {
  open(1);
  auto const lent = [&] {
    if (!cache.wants_more()) return false;
    add(at(20), 1000);
    for (int i = 0; i < 3; ++i) {
      CHECK(free(1, at(20), 1000) == answer::kept);
      CHECK(take(1, 1000) == at(20));
    }
    cache.take_back(at(20));
    return true;
  };
  CHECK(lent_of(1'000, lent) == 1'000);
  // And again after others freed all for long.
  lent_of(4'000, [&] { return lent_for_others(*this); });
  lent_of(5'000, lent);
  CHECK(lent_of(1'000, lent) == 1'000);
  // Which has made it forget how long: they are lent as often as at first.
  CHECK(lent_of(1'000, [&] { return lent_for_others(*this); }) > 150);
}

TEST_CASE_FIXTURE(cache_with_streams, "numbers are those of what passed here; peaks start again when they were taken") {
  open(1);
  add(at(1), 1000);
  CHECK(free(1, at(1), 1000) == answer::kept);
  CHECK(take(1, 900) == at(1));
  CHECK(free(1, at(1), 900) == answer::kept);
  pool_numbers const n = cache.take_numbers();
  CHECK(n.allocations == 2);
  CHECK(n.deallocations == 2);
  CHECK(n.requested_total == 1900);
  CHECK(n.requested.current == 0);
  CHECK(n.requested.peak == 1000);
  CHECK(n.allocated.peak == 1024);
  CHECK(cache.take_numbers().requested.peak == 0);
  CHECK(cache.host_bytes() >= sizeof(thread_cache));
}

TEST_CASE_FIXTURE(cache_with_streams,
                  "what is lent to a cache that became full meanwhile is given back like the rest") {
  open(1);
  std::uintptr_t unit = 1;
  for (; unit <= 32; ++unit) {
    add(at(unit), 256);
    REQUIRE(free(1, at(unit), 256) == answer::kept);
  }
  cache.promise(7);
  for (; unit <= 39; ++unit) cache.add_free(key(1), at(unit), class_of(256));
  add(at(unit), 256);
  CHECK(free(1, at(unit), 256) == answer::no_room);
  cache.drain(give(), close());
  CHECK(went.size() == 39);
}
