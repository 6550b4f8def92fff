#include <weir/pool/small_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/streamed_heap.hpp"

using namespace weir;
using namespace weir::test;
using detail::list_id;
using detail::slot_class;
using detail::small_blocks;
using detail::unit_bytes;
using detail::units;

namespace {

/// Small blocks of 4 units for two streams that do not end.
struct blocks_at_hand : streamed_heap {
  static constexpr units size = 4;
  static constexpr std::size_t bytes = size * unit_bytes, held = std::size_t{16} << 20;
  static constexpr slot_class::sized size_class{slot_class::of(size), size* unit_bytes};

  small_blocks small{heap, tracker};
  list_id const la = list(a), lb = list(b);
  std::size_t const all = shared_bytes();

  blocks_at_hand() { small.reserve(tracker.list_count()); }

  static small_blocks::request request() { return small_blocks::request::of(bytes, bytes, 256, ~units{0}); }
  void* take() { return small.take(heap, la, size_class, bytes, 8); }
  /// What a pool does for a request that finds nothing at hand: a slot, or null for a block.
  void* make() {
    void* const p = small.make(la, request(), held);
    if (p == nullptr) block = streamed_heap::take(size);
    return p;
  }
  /// The first slot, after as many blocks as that takes.
  void* first_slot() {
    void* p = nullptr;
    for (int i = 0; i < 100 && p == nullptr; ++i) p = make();
    REQUIRE(p != nullptr);
    return p;
  }
  small_blocks::slot find(void* p) { return small.find(p, bytes, 256); }

  detail::block_id block = 0;  // that `make` took last
};

}  // namespace

TEST_CASE_FIXTURE(blocks_at_hand, "a stream has nothing at hand before it asked for many of a size, then slots") {
  CHECK(take() == nullptr);
  CHECK(make() == nullptr);
  CHECK_FALSE(small.has_slabs());
  void* const p = first_slot();
  CHECK(small.has_slabs());
  CHECK(find(p));
  void* const next = take();
  CHECK(find(next));
  CHECK(next != p);
  CHECK(small.take(heap, lb, size_class, bytes, 8) == nullptr);  // another stream's
}

TEST_CASE_FIXTURE(blocks_at_hand, "where a slab as large as the stream's share has no room, there is a smaller one") {
  first_slot();
  for (std::size_t slots = 1; slots < 400; ++slots)
    if (take() == nullptr) REQUIRE(make() != nullptr);
  while (take() != nullptr) {
  }
  std::vector<detail::block_id> taken;
  while (shared_bytes() >= 512 * unit_bytes &&
         heap.find(detail::shared, small_blocks::request::of(1, 512 * unit_bytes, 256, ~units{0})) != 0)
    taken.push_back(streamed_heap::take(512));
  CHECK(make() == nullptr);
  heap.give(taken.front(), detail::shared, detail::sequence_number::none);  // 128 KiB: the share is 100, aligned to 64
  void* const p = make();
  REQUIRE(p != nullptr);
  CHECK(find(p));
  int slots = 1;
  while (take() != nullptr) ++slots;
  CHECK(slots == 16);
}

TEST_CASE_FIXTURE(blocks_at_hand, "a block that was freed is had again, by its own stream, until it is gathered") {
  CHECK(make() == nullptr);
  void* const p = address(block);
  REQUIRE(small.keep(la, block));
  CHECK(small.needs(la));
  CHECK(small.take(heap, lb, size_class, bytes, 8) == nullptr);
  CHECK(take() == p);
  REQUIRE(small.keep(la, block));
  CHECK(small.gather(la));
  CHECK_FALSE(small.gather(la));
  CHECK(take() == nullptr);
  CHECK(heap.free_bytes(la) == bytes);
}

TEST_CASE_FIXTURE(blocks_at_hand, "what is at hand makes room before the heap's tables grow") {
  std::vector<detail::block_id> taken;
  CHECK(make() == nullptr);  // from now on the stream keeps what it frees
  // 32 of each of six sizes: more than the share that tables grow by.
  for (unsigned i = 0; taken.size() < 300 || !heap.is_short_of_room(); ++i)
    taken.push_back(streamed_heap::take(1 + i % 6));
  for (int i = 0; i < 6 * 32; ++i, taken.pop_back()) REQUIRE(small.keep(la, taken.back()));
  CHECK(heap.is_short_of_room());
  std::size_t const before = heap.host_bytes();
  small.reserve_blocks();
  CHECK_FALSE(heap.is_short_of_room());
  CHECK(heap.host_bytes() == before);
  CHECK(heap.free_bytes(la) == 32 * (1 + 2 + 3 + 4 + 5 + 6) * detail::unit_bytes);
  SUBCASE("with nothing at hand they grow") {
    while (!heap.is_short_of_room()) streamed_heap::take(size);
    small.reserve_blocks();
    CHECK_FALSE(heap.is_short_of_room());
    CHECK(heap.host_bytes() > before);
  }
  SUBCASE("and where little is at hand, so that it is not given back for each block") {
    while (!heap.is_short_of_room()) taken.push_back(streamed_heap::take(size));
    for (int i = 0; i < 4; ++i, taken.pop_back()) REQUIRE(small.keep(la, taken.back()));
    small.reserve_blocks();
    CHECK(heap.host_bytes() > before);
  }
}

TEST_CASE_FIXTURE(blocks_at_hand, "nobody was given a slot of no bytes, of more than a slot has, or aligned oddly") {
  void* const p = first_slot();
  CHECK_FALSE(small.find(p, 0, 256));
  CHECK_FALSE(small.find(p, bytes + 1, 256));
  CHECK_FALSE(small.find(p, ~std::size_t{0}, 256));
  CHECK_FALSE(small.find(p, bytes, 0));
  CHECK_FALSE(small.find(p, bytes, 3));
  CHECK_FALSE(small.find(p, bytes, 512));
  CHECK_FALSE(small.find(p, bytes, 128));  // not as it was asked for
  CHECK(small.find(p, bytes, 256));
  CHECK(small.find(p));
}

TEST_CASE_FIXTURE(blocks_at_hand, "a slot is its owner's again when its owner frees it, else when that work is done") {
  void* const p = first_slot();
  CHECK_FALSE(small.give_own(find(p), lb));
  CHECK(small.give_own(find(p), la));
  CHECK_FALSE(find(p));
  CHECK(take() == p);
  REQUIRE(take() != nullptr);  // or the slab would go with the other one
  queue_work(b);
  CHECK(small.give(find(p), lb));
  CHECK(small.awaits(lb));
  CHECK(small.needs(lb));
  while (void* const other = take()) CHECK(other != p);
  settle(b);
  small.gather_slabs();
  CHECK_FALSE(small.awaits(lb));
  CHECK(take() == p);
}

TEST_CASE_FIXTURE(blocks_at_hand,
                  "a stream whose slots others free gets no more of them, and what is left is for blocks") {
  std::vector<void*> slots{first_slot()};
  while (void* const p = take()) slots.push_back(p);
  bool refused = false;
  for (int round = 0; round < 100 && !refused; ++round) {
    for (void* const p : slots) refused |= !small.give(find(p), lb);
    slots.clear();
    settle(b);
    small.gather_slabs();
    while (void* const p = take()) slots.push_back(p);
    if (slots.empty())
      if (void* const p = make()) slots.push_back(p);
  }
  CHECK(refused);
  CHECK(small.make(la, request(), held) == nullptr);
}

TEST_CASE_FIXTURE(blocks_at_hand, "all of it becomes blocks of the heap, live ones as they are") {
  void* const p = first_slot();
  void* const q = take();
  REQUIRE(small.give_own(find(q), la));
  CHECK(small.make_blocks());
  CHECK_FALSE(small.has_slabs());
  CHECK(small.some_slab_went());
  CHECK_FALSE(small.some_slab_went());
  CHECK(heap.find_live(reinterpret_cast<std::uintptr_t>(p)) != 0);
  CHECK(heap.find_live(reinterpret_cast<std::uintptr_t>(q)) == 0);
  CHECK_FALSE(small.make_blocks());
}

TEST_CASE_FIXTURE(blocks_at_hand, "a slab is shown piece by piece, and other blocks are not") {
  CHECK(make() == nullptr);
  CHECK_FALSE(small.for_each_shown(block, [](detail::shown_block const&) { FAIL("it is no slab"); }));
  void* const p = first_slot();
  detail::block_id const slab = heap.find_live(find(p).in->begin());
  std::size_t shown = 0, live = 0, requested = 0;
  std::uintptr_t end = heap.blocks()[slab].address();
  CHECK(small.for_each_shown(slab, [&](detail::shown_block const& piece) {
    CHECK(piece.address == end);
    end += piece.bytes;
    shown += piece.bytes;
    if (piece.state != memory_state::live) return;
    live += piece.bytes;
    requested += piece.requested;
  }));
  CHECK(shown == heap.blocks()[slab].bytes());
  CHECK(live == bytes);
  CHECK(requested == bytes);
}
