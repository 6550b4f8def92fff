// The ladder as users meet it is tested with `pool`, `pool_streams` and `pool_contention`; here is what a search tries,
// one step after the other.
#include <weir/pool/block_search.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/pool_parts.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;
using detail::pool_attempts;
using detail::pool_effort;

namespace {

struct searched_memory : pool_parts {
  detail::atomic<bool> keeps_small;
  detail::release_policy<segments_type> idle{mutex, heap, segments, lent, ~std::size_t{0}};
  detail::block_search<source_resource, segments_type> search{options, mutex,   heap,        segments,
                                                              lent,    numbers, keeps_small, idle};
  detail::biased_guard lock{mutex};
  pool_attempts tried;

  explicit searched_memory(pool const& with = {.max_bytes = 2_MiB}) : pool_parts(with) {}

  block_id find(stream_ref stream, std::size_t bytes, pool_effort effort) {
    tried = {};
    return search.find(who(stream), request(bytes), effort, tried);
  }
};

}  // namespace

TEST_CASE_FIXTURE(searched_memory, "the upstream is asked only by who may grow") {
  CHECK(find(s, 1_MiB, pool_effort::reuse) == 0);
  CHECK(tried.searched);
  CHECK(state.calls == 0);
  block_id const id = find(s, 1_MiB, pool_effort::grow);
  CHECK(id != 0);
  CHECK(state.live_bytes == 2_MiB);
  heap.give_done(id);
}

TEST_CASE_FIXTURE(searched_memory, "memory that is there with a wait between streams is waited for on the device") {
  free_behind_work(t, find(t, 2_MiB, pool_effort::grow));
  block_id const id = find(s, 2_MiB, pool_effort::reuse);
  CHECK(id != 0);
  CHECK(numbers.waits == 1);
  CHECK(numbers.synchronizations == 0);
  heap.give(id, who(s));
}

TEST_CASE_FIXTURE(searched_memory, "where the host would have to wait it does so only with all effort") {
  free_behind_work(t, find(t, 2_MiB, pool_effort::grow));
  CHECK(find(host_order, 2_MiB, pool_effort::grow) == 0);
  CHECK(numbers.synchronizations == 0);
  CHECK_FALSE(tried.waited);
  block_id const id = find(host_order, 2_MiB, pool_effort::all);
  CHECK(id != 0);
  CHECK(numbers.synchronizations == 1);
  CHECK(tried.waited);
  CHECK(tried.done == 2_MiB);
  heap.give_done(id);
}

TEST_CASE("segments that serve nobody go back before a request is refused, when their work is done") {
  searched_memory m({.max_bytes = 6_MiB});
  m.free_behind_work(m.t, m.find(m.t, 4_MiB, pool_effort::grow));
  CHECK(m.find(host_order, 6_MiB, pool_effort::grow) == 0);
  block_id const id = m.find(host_order, 6_MiB, pool_effort::all);
  CHECK(id != 0);
  CHECK(m.tried.done == 4_MiB);
  CHECK(m.tried.given_back == 4_MiB);
  CHECK(m.state.live_bytes == 6_MiB);
  m.heap.give_done(id);
}

TEST_CASE("how much may lie idle goes on by the most that was live before the peaks began anew") {
  for (bool const is_remembered : {true, false}) {
    searched_memory m{pool{}};
    block_id ids[3];
    for (block_id& id : ids) {
      id = m.find(host_order, 40_MiB, pool_effort::grow);
      m.numbers.count_allocation(40_MiB, 40_MiB);
    }
    for (block_id const id : ids) {
      m.heap.give_done(id);
      m.numbers.count_deallocation(40_MiB, 40_MiB);
    }
    if (is_remembered) m.search.remember_peak();
    m.numbers.allocated.reset_peak();
    CHECK(m.numbers.allocated.peak == 0);
    block_id const id = m.find(host_order, 60_MiB, pool_effort::grow);  // no piece is as large
    CHECK(m.state.live_bytes == (is_remembered ? 100_MiB : 60_MiB));
    m.heap.give_done(id);
  }
}

TEST_CASE("only where small blocks are kept at hand is there room to spare for more of them") {
  for (bool const keeps_small : {true, false}) {
    searched_memory m{pool{}};
    m.keeps_small.store_release(keeps_small);
    block_id const large = m.find(host_order, 20_MiB, pool_effort::grow);
    block_id const small = m.find(host_order, 1000, pool_effort::grow);
    CHECK(m.state.live_bytes == 20_MiB + (keeps_small ? 10_MiB : 2_MiB));
    m.heap.give_done(small);
    m.heap.give_done(large);
  }
}

TEST_CASE("threads' caches are spared by growing a little, but not where a stream is to wait before the pool grows") {
  for (auto const pending : {when_pending::grow, when_pending::wait}) {
    searched_memory m({.pending = pending});
    m.free_behind_work(m.t, m.find(m.t, 2_MiB, pool_effort::grow));
    block_id const id = m.search.grow_first(m.who(m.s), m.request(1_MiB));
    CHECK((id != 0) == (pending == when_pending::grow));
    CHECK(m.state.live_bytes == (pending == when_pending::grow ? 4_MiB : 2_MiB));
    if (id != 0) m.heap.give_done(id);
  }
}

TEST_CASE("a pool that is searched for most requests grows a little above what is live, once in 64 searches") {
  searched_memory m{pool{}};
  auto const search_often = [&](int times) {
    for (int i = 0; i < times; ++i) m.heap.give_done(m.find(m.s, 64_KiB, pool_effort::all));
  };
  search_often(60);
  CHECK(m.state.live_bytes == 2_MiB);
  search_often(10);
  CHECK(m.state.live_bytes == 4_MiB);
  search_often(1000);
  CHECK(m.state.live_bytes > 4_MiB);
  CHECK(m.state.live_bytes <= 8_MiB + 64_KiB);
}

TEST_CASE("it does not where streams are to wait before it grows, for who may not let it grow, or above a threshold") {
  searched_memory waiting(pool{.pending = when_pending::wait}), reusing{pool{}},
      frugal(pool{.release_threshold = 3_MiB});
  for (int i = 0; i < 1000; ++i) {
    waiting.heap.give_done(waiting.find(waiting.s, 64_KiB, pool_effort::all));
    block_id const id = reusing.find(reusing.s, 64_KiB, i == 0 ? pool_effort::all : pool_effort::reuse);
    reusing.heap.give_done(id);
    frugal.heap.give_done(frugal.find(frugal.s, 64_KiB, pool_effort::all));
  }
  CHECK(frugal.state.live_bytes == 2_MiB);
  CHECK(waiting.state.live_bytes == 2_MiB);
  CHECK(reusing.state.live_bytes == 2_MiB);
}

TEST_CASE("an upstream that has no memory for that is not asked again until the pool could grow") {
  searched_memory m{pool{}};
  m.heap.give_done(m.find(m.s, 64_KiB, pool_effort::all));
  m.state.fail = failing::out_of_memory;
  auto const calls_of_searches = [&](int times) {
    std::size_t const before = m.state.calls;
    for (int i = 0; i < times; ++i) m.heap.give_done(m.find(m.s, 64_KiB, pool_effort::all));
    return m.state.calls - before;
  };
  CHECK(calls_of_searches(100) > 0);
  CHECK(calls_of_searches(1000) == 0);
  m.state.fail = failing::no;
  CHECK(calls_of_searches(1000) == 0);
  block_id const all_there_was = m.find(m.s, 2_MiB, pool_effort::all);
  m.heap.give_done(m.find(m.s, 64_KiB, pool_effort::all));
  m.heap.give_done(all_there_was);
  CHECK(calls_of_searches(1000) > 0);
}
