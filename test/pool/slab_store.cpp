#include <weir/pool/slab_store.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "support/streamed_heap.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;
using detail::list_id;
using detail::sequence_number;
using detail::slab;
using detail::slab_store;
using detail::slot_class;
using detail::unit_bytes;
using detail::units;

namespace {

/// Slots of 4 units, eight to a slab.
struct store_on_a_heap : streamed_heap {
  static constexpr units size = 4;
  static constexpr unsigned size_class = slot_class::of(size);
  static constexpr std::size_t slot_bytes = size * unit_bytes;
  static constexpr std::uint32_t slots = 8;
  static constexpr std::size_t held = std::size_t{16} << 20;

  slab_store store{heap, tracker};
  list_id const la = list(a), lb = list(b), lm = list(mortal);
  std::size_t const all = shared_bytes();

  store_on_a_heap() { store.reserve(tracker.list_count()); }

  /// A slab of `a`, empty.
  block_id add(sequence_number freed = {}) {
    REQUIRE(store.slots_wanted(la, size_class, held) != 0);
    block_id const id = streamed_heap::take(size * slots, slab::page_bytes);
    REQUIRE(store.add(id, la, size_class, slots, freed));
    return id;
  }
  void* take() { return take(la, size_class, slot_bytes); }
  void* take(list_id list, unsigned number, std::size_t bytes, unsigned alignment_log = 8) {
    slab* const s = store.with_free(list, number);
    return s == nullptr ? nullptr : store.take(*s, slot_class::size(number) * unit_bytes, bytes, alignment_log);
  }
  /// All slots of a new slab, live.
  std::vector<void*> full_slab() {
    add();
    std::vector<void*> taken(slots);
    for (void*& p : taken) REQUIRE((p = take()) != nullptr);
    return taken;
  }
  slab_store::place find(void* p) { return store.find(p, slot_bytes, 8); }
  void give(void* p) {
    auto const found = find(p);
    REQUIRE(found);
    store.give(found);
  }
  bool give_away(void* p, list_id where) {
    auto const found = find(p);
    REQUIRE(found);
    return store.give_away(found, where, tracker.on_free(where));
  }
};

}  // namespace

TEST_CASE_FIXTURE(store_on_a_heap, "a slab is for a stream that has many blocks of its size, or slots already") {
  CHECK_FALSE(store.may_serve(la, size_class, 0));
  CHECK_FALSE(store.may_serve(la, size_class, 1));
  CHECK(store.may_serve(la, size_class, 100));
  add();
  CHECK(store.may_serve(la, size_class, 0));
  CHECK_FALSE(store.may_serve(la, size_class + 1, 0));
  CHECK_FALSE(store.may_serve(lb, size_class, 0));
}

TEST_CASE_FIXTURE(store_on_a_heap, "a stream that has more slots gets larger slabs, up to a limit") {
  std::uint32_t most = 0;
  for (int i = 0; i < 40; ++i) {
    std::uint32_t const wanted = store.slots_wanted(la, size_class, held);
    CHECK(wanted >= most);
    most = wanted;
    if (std::size_t{wanted} * slot_bytes > slab::most_bytes / 2) break;
    REQUIRE(store.add(streamed_heap::take(wanted * size, slab::page_bytes), la, size_class, wanted, {}));
    while (take() != nullptr) continue;  // what lies free in slabs is limited
  }
  CHECK(std::size_t{most} * slot_bytes > slab::most_bytes / 4);
  CHECK(std::size_t{most} * slot_bytes <= slab::most_bytes);
}

TEST_CASE_FIXTURE(store_on_a_heap, "while much lies free in slabs there are no more of them") {
  std::uint32_t const most = slab::most_bytes / slot_bytes;
  int added = 0;
  while (added < 10 && store.slots_wanted(la, size_class, held) != 0) {
    REQUIRE(store.add(streamed_heap::take(most * size, slab::page_bytes), la, size_class, most, {}));
    ++added;
  }
  CHECK(added >= 1);
  CHECK(added < 10);
  CHECK(store.slots_wanted(la, size_class, std::size_t{1} << 40) != 0);  // where more is held more may lie free
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(added) * most; ++i) REQUIRE(take() != nullptr);
  CHECK(store.slots_wanted(la, size_class, held) != 0);
}

TEST_CASE_FIXTURE(store_on_a_heap, "what lies free in slabs is known after any number of frees, of whatever kind") {
  std::vector<void*> live = full_slab();
  for (int i = 0; i < 10'000; ++i) {
    give(live[0]);
    REQUIRE(take() == live[0]);
    store.give_done(find(live[0]));
    REQUIRE(take() == live[0]);
    REQUIRE(give_away(live[0], lb));
    settle(b);
    REQUIRE(store.take_back());
    REQUIRE(take() == live[0]);
  }
  CHECK(store.slots_wanted(la, size_class, held) != 0);
}

TEST_CASE_FIXTURE(store_on_a_heap, "a slab serves its owner and its class, slot by slot, and nobody else") {
  CHECK(take() == nullptr);
  block_id const id = add();
  CHECK(take(lb, size_class, slot_bytes) == nullptr);
  CHECK(take(la, size_class + 1, slot_bytes) == nullptr);
  CHECK(take(detail::shared, size_class, slot_bytes) == nullptr);
  std::set<void*> seen;
  while (void* const p = take()) CHECK(seen.insert(p).second);
  CHECK(seen.size() == slots);
  CHECK(*seen.begin() == address(id));
  CHECK(store.of_block(id) != nullptr);
  CHECK(store.of_block(streamed_heap::take(1)) == nullptr);
}

TEST_CASE_FIXTURE(store_on_a_heap, "a slot is found as it was asked for, and by nothing else") {
  add();
  auto* const p = static_cast<std::byte*>(take(la, size_class, 1000));
  CHECK(store.find(p, 1000, 8));
  CHECK(store.find(p).requested() == 1000);
  CHECK(store.find(p).alignment_log() == 8);
  CHECK(store.find(p).bytes() == slot_bytes);
  CHECK_FALSE(store.find(p, 999, 8));
  CHECK_FALSE(store.find(p, 1000, 7));
  CHECK_FALSE(store.find(p + 256, 1000, 8));
  CHECK_FALSE(store.find(p + slot_bytes));  // not live
  CHECK_FALSE(store.find(p - 1));
  store.give(store.find(p));
  CHECK_FALSE(store.find(p, 1000, 8));
  CHECK_FALSE(store.find(p));
}

TEST_CASE_FIXTURE(store_on_a_heap, "the slot freed last is served next, also after its slab had no free one") {
  std::vector<void*> const live = full_slab();
  CHECK(take() == nullptr);
  give(live[5]);
  give(live[2]);
  CHECK(take() == live[2]);
  CHECK(take() == live[5]);
  CHECK(take() == nullptr);
}

TEST_CASE_FIXTURE(store_on_a_heap, "of a class's slabs without a live slot one is kept, until it is given back") {
  std::vector<void*> const first = full_slab(), second = full_slab();
  for (void* p : first) give(p);
  CHECK(store.count() == 2);
  for (void* p : second) give(p);
  CHECK(store.count() == 1);
  CHECK(store.some_went());
  CHECK_FALSE(store.some_went());
  store.give_whole();
  CHECK(store.some_went());
  CHECK(store.count() == 0);
  store.give_whole();
  CHECK_FALSE(store.some_went());
  CHECK(take() == nullptr);
  CHECK(free_bytes(a) == 2 * slots * slot_bytes);
  CHECK(heap.valid());
  settle(a);
  CHECK(shared_bytes() == all);
}

TEST_CASE_FIXTURE(store_on_a_heap, "only a slab without a live slot goes back whole") {
  std::vector<void*> const live = full_slab();
  for (std::size_t i = 1; i < live.size(); ++i) give(live[i]);
  store.give_whole();
  CHECK(store.count() == 1);
  give(live[0]);
  CHECK(take() != nullptr);  // of the one that is kept
  store.give_whole();
  CHECK(store.count() == 1);
  CHECK_FALSE(store.some_went());
}

TEST_CASE_FIXTURE(store_on_a_heap, "a slab that was never used goes back as it came: done, or the owner's") {
  SUBCASE("done") {
    add();
    CHECK(store.free_bytes() == slots * slot_bytes);
    store.give_whole();
    CHECK(shared_bytes() == all);
  }
  SUBCASE("the owner's") {
    queue_work(a);
    add(tracker.on_free(la));
    CHECK(store.free_bytes() == 0);
    store.give_whole();
    CHECK(free_bytes(a) == slots * slot_bytes);
    poll(a);
    CHECK(free_bytes(a) == slots * slot_bytes);
  }
}

TEST_CASE_FIXTURE(store_on_a_heap, "a slab whose owner's work goes on is nobody else's when it goes back") {
  std::vector<void*> const live = full_slab();
  tracker.on_free(la);
  settle(a);
  queue_work(a);
  for (void* p : live) give(p);
  CHECK(store.free_bytes() == 0);
  store.give_whole();
  poll(a);
  CHECK(free_bytes(a) == slots * slot_bytes);
  settle(a);
  CHECK(shared_bytes() == all);
}

TEST_CASE_FIXTURE(store_on_a_heap, "what was freed elsewhere is the owner's when that is done, and not before") {
  std::vector<void*> const live = full_slab();
  queue_work(b);
  CHECK(give_away(live[3], lb));
  CHECK(store.awaits(lb));
  CHECK(store.needs(lb));
  CHECK_FALSE(store.awaits(la));
  queue_work(b);
  CHECK(give_away(live[4], lb));  // later, on the same stream
  poll(b);
  CHECK_FALSE(store.take_back());
  CHECK(take() == nullptr);
  CHECK_FALSE(find(live[3]));
  settle(b);
  CHECK(store.take_back());
  CHECK_FALSE(store.awaits(lb));
  CHECK_FALSE(store.needs(lb));
  CHECK_FALSE(store.take_back());
  std::set<void*> const back{take(), take()};
  CHECK(back == std::set<void*>{live[3], live[4]});
  CHECK(take() == nullptr);
}

TEST_CASE_FIXTURE(store_on_a_heap, "a slab waits for the last of what was freed elsewhere") {
  std::vector<void*> const live = full_slab();
  CHECK(give_away(live[3], lb));
  settle(b);  // that one is done
  queue_work(b);
  CHECK(give_away(live[4], lb));
  CHECK_FALSE(store.take_back());
}

TEST_CASE_FIXTURE(store_on_a_heap,
                  "of many slabs just those wait that have slots away, in whatever order they come and go") {
  std::vector<std::vector<void*>> full(5);
  for (auto& of : full) of = full_slab();
  for (std::size_t const i : {3u, 0u, 4u, 2u}) {
    queue_work(i == 4 ? stream_ref(mortal) : b);
    REQUIRE(give_away(full[i][0], i == 4 ? lm : lb));
  }
  CHECK_FALSE(store.take_back());
  REQUIRE(store.take_apart(*find(full[0][1]).in));
  CHECK_FALSE(store.take_back());
  settle(b);
  CHECK(store.take_back());
  CHECK(std::set{take(), take()} == std::set{full[2][0], full[3][0]});
  CHECK(take() == nullptr);
  CHECK_FALSE(store.take_back());
  settle(mortal);
  CHECK(store.take_back());
  CHECK(take() == full[4][0]);
  CHECK_FALSE(store.take_back());
  CHECK(store.take_apart_if([](slab const&) { return true; }));
  CHECK(store.count() == 0);
}

TEST_CASE_FIXTURE(store_on_a_heap, "one list at a time has slots of a slab away") {
  std::vector<void*> const live = full_slab();
  queue_work(b);
  CHECK(give_away(live[3], lb));
  CHECK_FALSE(give_away(live[4], lm));
  CHECK(find(live[4]));  // nothing changed
  CHECK_FALSE(store.awaits(lm));
}

TEST_CASE_FIXTURE(store_on_a_heap, "a slab whose last live slot is freed elsewhere becomes blocks at once") {
  std::vector<void*> const live = full_slab();
  for (std::size_t i = 1; i < live.size(); ++i) give(live[i]);
  REQUIRE(give_away(live[0], lb));
  CHECK(store.count() == 0);
  CHECK(free_bytes(a) == (slots - 1) * slot_bytes);
  CHECK(free_bytes(b) == slot_bytes);
  CHECK_FALSE(store.awaits(lb));
}

TEST_CASE_FIXTURE(store_on_a_heap, "what the owner only waited for is others' when the owner got there") {
  std::vector<void*> const live = full_slab();
  tracker.on_free(la);
  settle(a);
  queue_work(b);
  REQUIRE(give_away(live[0], lb));
  REQUIRE(tracker.join(la, a, lb, tracker.issued(lb)));
  REQUIRE(store.take_back());
  CHECK(store.free_bytes() == 0);
  REQUIRE(store.take_apart(*store.find(live[1]).in));
  poll(a);
  CHECK(free_bytes(a) == slot_bytes);
  settle(a);
  CHECK(free_bytes(a) == 0);
}

TEST_CASE_FIXTURE(store_on_a_heap,
                  "taken apart, live slots are blocks as they were, and the others are who freed them's") {
  std::vector<void*> live = full_slab();
  void* const odd = live[6];
  give(odd);
  REQUIRE(take(la, size_class, 1000, 4) == odd);
  queue_work(a);
  queue_work(b);
  for (std::size_t const i : {0u, 1u, 7u}) give(live[i]);
  REQUIRE(give_away(live[4], lb));
  std::size_t const used = heap.blocks().used();
  block_id const whole = heap.find_live(store.find(odd).in->begin());
  REQUIRE(store.of_block(whole) != nullptr);
  REQUIRE(store.take_apart(*store.find(odd).in));
  CHECK(store.of_block(whole) == nullptr);
  CHECK(heap.valid());
  CHECK(store.count() == 0);
  CHECK_FALSE(store.find(odd));
  for (std::size_t const i : {2u, 3u, 5u}) CHECK_FALSE(find(live[i]));
  CHECK(take() == nullptr);
  CHECK_FALSE(store.needs(la));
  CHECK_FALSE(store.needs(lb));
  CHECK(heap.blocks().used() == used + 6);  // 0 and 1 are one
  for (std::size_t const i : {2u, 3u, 5u, 6u}) {
    block_id const id = heap.find_live(reinterpret_cast<std::uintptr_t>(live[i]));
    REQUIRE(id != 0);
    CHECK(heap.blocks()[id].size == size);
    CHECK(heap.blocks()[id].requested() == (live[i] == odd ? 1000 : slot_bytes));
    CHECK(heap.blocks()[id].alignment_log() == (live[i] == odd ? 4u : 8u));
  }
  for (std::size_t const i : {0u, 1u, 4u, 7u}) CHECK(heap.find_live(reinterpret_cast<std::uintptr_t>(live[i])) == 0);
  CHECK(free_bytes(a) == 3 * slot_bytes);
  CHECK(free_bytes(b) == slot_bytes);
  poll(a);
  poll(b);
  CHECK(free_bytes(a) == 3 * slot_bytes);
  CHECK(free_bytes(b) == slot_bytes);
  for (std::size_t const i : {2u, 3u, 5u, 6u}) {
    block_id const id = heap.find_live(reinterpret_cast<std::uintptr_t>(live[i]));
    heap.give(id, detail::shared, sequence_number::none);
  }
  settle(a);
  settle(b);
  CHECK(shared_bytes() == all);
  CHECK(heap.valid());
}

TEST_CASE_FIXTURE(store_on_a_heap, "those slabs are taken apart that are asked for") {
  std::vector<void*> const first = full_slab(), second = full_slab();
  slab const* const gone = store.find(first[0]).in;
  CHECK_FALSE(store.take_apart_if([](slab const&) { return false; }));
  CHECK(store.take_apart_if([&](slab const& s) { return &s == gone; }));
  CHECK(store.count() == 1);
  CHECK_FALSE(store.find(first[0]));
  CHECK(store.find(second[0]));
  CHECK(store.take_apart_if([](slab const&) { return true; }));
  CHECK(store.count() == 0);
}

TEST_CASE_FIXTURE(store_on_a_heap,
                  "slabs of several lists and classes go back together, and their owners are forgotten") {
  unsigned const others = size_class + 1;
  std::uint32_t const other_slots = 8;
  auto const add_of = [&](list_id list, unsigned c) {
    REQUIRE(store.slots_wanted(list, c, held) != 0);
    block_id const id = streamed_heap::take(slot_class::size(c) * other_slots, slab::page_bytes);
    REQUIRE(store.add(id, list, c, other_slots, {}));
  };
  list_id const legacy = list(cudaStreamLegacy);
  for (list_id const list : {la, lb, legacy})
    for (unsigned const c : {size_class, others}) add_of(list, c);
  auto const owns = [&](list_id list) { return store.any_owner([&](list_id owner) { return owner == list; }); };
  CHECK((owns(la) && owns(lb) && owns(legacy)));
  CHECK_FALSE(owns(lm));
  void* const p = take(lb, others, 1000);
  store.give_whole();
  CHECK(store.count() == 1);
  CHECK(owns(lb));
  CHECK_FALSE((owns(la) || owns(legacy)));
  store.give(store.find(p));
  store.give_whole();
  CHECK(store.count() == 0);
  CHECK_FALSE(owns(lb));
  CHECK(heap.valid());
}

TEST_CASE_FIXTURE(store_on_a_heap, "the bytes of host memory are those of the slabs that there are") {
  std::vector<void*> const first = full_slab();
  std::size_t const one = store.host_bytes();
  std::vector<void*> const second = full_slab();
  CHECK(store.host_bytes() > one);
  REQUIRE(store.take_apart(*store.find(second[0]).in));
  CHECK(store.host_bytes() == one);
}

TEST_CASE_FIXTURE(store_on_a_heap, "a list that is closed has no slab, and needs one as any other does") {
  for (void* p : full_slab()) give(p);
  CHECK(store.needs(la));
  store.give_whole();
  CHECK_FALSE(store.needs(la));
  store.close(la);
  CHECK(take() == nullptr);
  CHECK_FALSE(store.may_serve(la, size_class, 0));
}
