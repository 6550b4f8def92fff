#include <weir/pool/block_cache.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "support/streamed_heap.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_cache;
using detail::block_id;
using detail::slot_class;
using detail::unit_bytes;
using detail::units;

namespace {

struct cache_of_a_heap : streamed_heap {
  block_cache cache{heap, tracker};
  detail::list_id const la = list(a), lb = list(b);

  cache_of_a_heap() {
    cache.reserve(tracker.list_count());
    cache.open(la);
  }
  block_id again(detail::list_id list, units size) {
    void* const p = cache.take(heap, list, slot_class::of(size), size * std::uint64_t{unit_bytes}, 8);
    return p == nullptr ? 0 : heap.find_live(reinterpret_cast<std::uintptr_t>(p));
  }
};

}  // namespace

TEST_CASE_FIXTURE(cache_of_a_heap, "what a stream freed it has again as it was, the latest first") {
  block_id const first = take(20), second = take(20), other = take(22);
  CHECK(again(la, 20) == 0);
  for (block_id const id : {first, other, second}) CHECK(cache.put(la, id));
  CHECK(again(la, 20) == second);
  CHECK(again(la, 20) == first);
  CHECK(again(la, 20) == 0);
  CHECK(again(la, 22) == other);
  CHECK(heap.blocks()[first].size == 20);
  CHECK(heap.blocks()[first].requested() == 20 * unit_bytes);
  CHECK(heap.blocks()[first].alignment_log() == 8);
  CHECK(heap.find_live(heap.blocks()[first].address()) == first);
  CHECK(heap.valid());
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a block that is kept says so, and not what was asked for") {
  block_id const id = take(20);
  REQUIRE(cache.put(la, id));
  CHECK(heap.blocks()[id].is_cached());
  CHECK(heap.blocks()[id].requested() != 20 * unit_bytes);
  CHECK(heap.valid());
  REQUIRE(again(la, 20) == id);
  CHECK_FALSE(heap.blocks()[id].is_cached());
}

TEST_CASE_FIXTURE(cache_of_a_heap,
                  "only a list that was opened keeps blocks, and only whole sizes of classes up to 1 MiB") {
  CHECK_FALSE(cache.put(lb, take(20)));
  CHECK_FALSE(cache.put(detail::shared, take(20)));
  CHECK_FALSE(cache.put(la, take(17)));  // the class has 18
  CHECK_FALSE(cache.put(la, take(slot_class::most_units + 512)));
  CHECK(cache.put(la, take(slot_class::most_units)));
  CHECK(again(lb, 20) == 0);
  CHECK(again(la, slot_class::most_units) != 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap,
                  "at once it keeps what is the list's own already, where some is kept since the last flush") {
  cache.open(lb);
  block_id const first = take(20), second = take(20), third = take(20), other = take(20);
  for (block_id const id : {first, second, third}) heap.set_taker(id, la);
  CHECK(cache.put_at_once(heap, tracker, la, first) == 0);
  REQUIRE(cache.put(la, first));
  CHECK(cache.put_at_once(heap, tracker, la, second) == 20 * unit_bytes);
  REQUIRE(cache.put(lb, other));
  CHECK(cache.put_at_once(heap, tracker, lb, third) == 0);
  CHECK(cache.flush());
  CHECK(cache.put_at_once(heap, tracker, la, third) == 0);
  CHECK(again(la, 20) == 0);
  CHECK(heap.valid());
}

TEST_CASE_FIXTURE(cache_of_a_heap, "of each size it keeps some, of large ones fewer, of others none the less") {
  auto const kept = [&](units size) {
    std::size_t count = 0;
    while (cache.put(la, take(size))) ++count;
    return count;
  };
  std::size_t const small = kept(16), middle = kept(512), large = kept(4096);
  CHECK(small > middle);
  CHECK(middle > large);
  CHECK(large > 0);
  CHECK(again(la, 16) != 0);
  CHECK(cache.put(la, take(16)));  // there is room again
  CHECK_FALSE(cache.put(la, take(16)));
}

TEST_CASE_FIXTURE(cache_of_a_heap, "the heap gets all of a list, or of all lists, in the order of the frees") {
  cache.open(lb);
  std::size_t const all = shared_bytes();
  block_id const x = take(20), y = take(40), z = take(20);
  for (block_id const id : {x, y}) REQUIRE(cache.put(la, id));
  REQUIRE(cache.put(lb, z));
  CHECK(cache.needs(la));
  CHECK(cache.flush(la));
  CHECK_FALSE(cache.needs(la));
  CHECK(cache.needs(lb));
  CHECK_FALSE(cache.flush(la));
  CHECK(free_bytes(a) == 60 * unit_bytes);
  CHECK(free_bytes(b) == 0);
  CHECK(again(la, 20) == 0);
  CHECK(cache.flush());
  CHECK(free_bytes(b) == 20 * unit_bytes);
  CHECK_FALSE(cache.flush());
  CHECK(heap.valid());
  settle(a);
  settle(b);
  CHECK(shared_bytes() == all);
}

TEST_CASE_FIXTURE(cache_of_a_heap,
                  "what is given to the heap is done when the work before its free is, and not before") {
  block_id const x = take(20), early = take(1);
  heap.give(early, la, tracker.on_free(la));
  settle(a);
  REQUIRE(free_bytes(a) == 0);
  queue_work(a);
  REQUIRE(cache.put(la, x));
  REQUIRE(cache.flush());
  poll(a);
  CHECK(free_bytes(a) == 20 * unit_bytes);
  settle(a);
  CHECK(free_bytes(a) == 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a list that is closed keeps nothing more, and may be opened again") {
  block_id const x = take(20);
  REQUIRE(cache.put(la, x));
  REQUIRE(cache.flush(la));
  std::size_t const opened = cache.host_bytes();
  cache.close(la);
  CHECK(cache.host_bytes() < opened);
  block_id const y = take(20);
  CHECK_FALSE(cache.put(la, y));
  CHECK_FALSE(cache.needs(la));
  cache.open(la);
  CHECK(cache.put(la, y));
  cache.open(la);  // again, which changes nothing
  CHECK(again(la, 20) == y);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "blocks that a stream has are counted by class, and off when they go to the heap") {
  unsigned const c = slot_class::of(20), other = slot_class::of(40);
  CHECK(cache.count_taken(la, c) == 1);
  CHECK(cache.count_taken(la, c) == 2);
  CHECK(cache.count_taken(la, other) == 1);
  cache.count_given(la, c);
  CHECK(cache.count_taken(la, c) == 2);
  cache.count_given(la, c, 7);  // more than are known of
  CHECK(cache.count_taken(la, c) == 1);
  cache.count_taken(la, c);
  block_id const id = take(20);
  heap.set_taker(id, la);
  REQUIRE(cache.put(la, id));
  CHECK(cache.count_taken(la, c) == 3);  // it is at hand
  cache.flush(la);
  CHECK(cache.count_taken(la, c) == 3);
  cache.count_given(lb, c);  // of which nothing is counted
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a count that is at its end stays there") {
  unsigned const c = slot_class::of(20);
  for (int i = 0; i < 70'000; ++i) cache.count_taken(la, c);
  CHECK(cache.count_taken(la, c) == 0xffff);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a block counts for the stream that took it, whoever frees it") {
  unsigned const c = slot_class::of(20);
  cache.open(lb);
  auto const taken_by = [&](detail::list_id list) {
    block_id const id = take(20);
    cache.count_taken(list, c);
    heap.set_taker(id, list);
    return id;
  };
  block_id const own = taken_by(la), others = taken_by(la), kept = taken_by(la);
  cache.count_free(la, own);
  CHECK(cache.count_taken(la, c) == 3);
  cache.count_free(lb, others);
  CHECK(cache.count_taken(la, c) == 3);
  REQUIRE(cache.put(lb, kept));
  CHECK(cache.count_taken(la, c) == 3);
  CHECK(cache.count_taken(lb, c) == 2);  // it is one of this stream's now
  cache.count_free(la, take(20));        // nobody's
  CHECK(cache.count_taken(la, c) == 4);
}

TEST_CASE_FIXTURE(cache_of_a_heap,
                  "what a stream takes goes elsewhere where others free most of it, until it frees as much") {
  unsigned const c = slot_class::of(20), other = slot_class::of(40);
  auto const free_on = [&](detail::list_id list, int blocks) {
    for (int i = 0; i < blocks; ++i) {
      block_id const id = take(20);
      heap.set_taker(id, la);
      cache.count_free(list, id);
      heap.give(id, list, tracker.on_free(list));
    }
  };
  CHECK_FALSE(cache.goes_elsewhere(la, c));
  free_on(lb, 100);
  CHECK(cache.goes_elsewhere(la, c));
  CHECK_FALSE(cache.goes_elsewhere(la, other));
  free_on(la, 100);
  CHECK_FALSE(cache.goes_elsewhere(la, c));
  for (int i = 0; i < 100; ++i) cache.count_elsewhere(la, c);
  CHECK(cache.goes_elsewhere(la, c));
}

TEST_CASE_FIXTURE(cache_of_a_heap, "another stream has what was marked once that is done, and not before") {
  unsigned const c = slot_class::of(20);
  block_id const id = take(20);
  queue_work(a);
  REQUIRE(cache.put(la, id));
  CHECK(cache.take_elsewhere(lb, c) == 0);
  cache.mark(la);
  poll(a);
  CHECK(cache.take_elsewhere(lb, c) == 0);
  CHECK(cache.take_from(la, lb, c) == 0);
  settle(a);
  CHECK(cache.take_elsewhere(la, c) == 0);  // its own it has by `take`
  CHECK(cache.take_elsewhere(lb, slot_class::of(40)) == 0);
  SUBCASE("of any list") { CHECK(cache.take_elsewhere(lb, c) == id); }
  SUBCASE("of one list") {
    CHECK(cache.take_from(lb, la, c) == 0);
    CHECK(cache.take_from(la, lb, c) == id);
  }
  heap.reuse(id, 20 * unit_bytes, 8);
  CHECK(heap.blocks()[id].list == lb);
  CHECK(cache.take_elsewhere(lb, c) == 0);
  CHECK(again(la, 20) == 0);
  CHECK(cache.flush());
  CHECK(heap.valid());
}

TEST_CASE_FIXTURE(cache_of_a_heap, "another stream has what was marked once it waited for that") {
  block_id const id = take(20);
  queue_work(a);
  REQUIRE(cache.put(la, id));
  cache.mark(la);
  REQUIRE(tracker.join(lb, b, la, tracker.issued(la)));
  CHECK(cache.take_elsewhere(lb, slot_class::of(20)) == id);
  CHECK(cache.take_elsewhere(list(mortal), slot_class::of(20)) == 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "what was freed after the mark is its own stream's, and stays in order") {
  unsigned const c = slot_class::of(20);
  block_id const early = take(20), marked = take(20), late = take(20), latest = take(20);
  for (block_id const id : {early, marked}) REQUIRE(cache.put(la, id));
  cache.mark(la);
  settle(a);
  queue_work(a);
  for (block_id const id : {late, latest}) REQUIRE(cache.put(la, id));
  CHECK(cache.take_elsewhere(lb, c) == marked);
  CHECK(cache.take_elsewhere(lb, c) == early);
  CHECK(cache.take_elsewhere(lb, c) == 0);
  CHECK(again(la, 20) == latest);
  CHECK(again(la, 20) == late);
  CHECK(again(la, 20) == 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "what its own stream had again and freed anew is marked no more") {
  unsigned const c = slot_class::of(20);
  block_id const early = take(20), id = take(20);
  for (block_id const each : {early, id}) REQUIRE(cache.put(la, each));
  cache.mark(la);
  settle(a);
  REQUIRE(again(la, 20) == id);
  queue_work(a);
  REQUIRE(cache.put(la, id));
  CHECK(cache.take_elsewhere(lb, c) == early);
  CHECK(cache.take_elsewhere(lb, c) == 0);
  CHECK(cache.flush());
  CHECK(cache.take_elsewhere(lb, c) == 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a mark that is awaited stays, so that a busy stream's blocks are done some time") {
  unsigned const c = slot_class::of(20);
  block_id const first = take(20), second = take(20);
  queue_work(a);
  REQUIRE(cache.put(la, first));
  cache.mark(la);
  auto const marked_upto = tracker.issued(la);
  queue_work(a);
  REQUIRE(cache.put(la, second));
  cache.mark(la);
  tracker.complete(la, marked_upto);
  CHECK(cache.take_elsewhere(lb, c) == first);
  CHECK(cache.take_elsewhere(lb, c) == 0);
  cache.mark(la);
  settle(a);
  CHECK(cache.take_elsewhere(lb, c) == second);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "what was given to the heap is marked no more") {
  unsigned const c = slot_class::of(20);
  REQUIRE(cache.put(la, take(20)));
  cache.mark(la);
  settle(a);
  CHECK(cache.flush());
  CHECK(cache.take_elsewhere(lb, c) == 0);
  queue_work(a);
  REQUIRE(cache.put(la, take(20)));
  CHECK(cache.take_elsewhere(lb, c) == 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a list that gave a block to another stream has room for one more") {
  unsigned const c = slot_class::of(4096);
  std::size_t kept = 0;
  while (cache.put(la, take(4096))) ++kept;
  cache.mark(la);
  settle(a);
  block_id const id = cache.take_elsewhere(lb, c);
  REQUIRE(id != 0);
  CHECK(cache.put(la, take(4096)));
  CHECK_FALSE(cache.put(la, take(4096)));
  CHECK(kept != 0);
}

TEST_CASE_FIXTURE(cache_of_a_heap, "a block counts for the other stream when that has it") {
  unsigned const c = slot_class::of(20);
  block_id const id = take(20);
  cache.count_taken(la, c);
  heap.set_taker(id, la);
  REQUIRE(cache.put(la, id));
  cache.mark(la);
  settle(a);
  REQUIRE(cache.take_elsewhere(lb, c) == id);
  CHECK(cache.count_taken(la, c) == 1);
}
