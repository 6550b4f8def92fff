#include <weir/pool/heap/block_heap.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "numbers.hpp"

using namespace weir::detail;
using namespace weir::test;

namespace {

constexpr units splits_all = ~units{0};
// Aligned to more than any request asks for.
constexpr std::uintptr_t base = 0x7f00'0000'0000u;

block_request request_of(units size, std::size_t alignment = unit_bytes, units max_split = splits_all) {
  return {.size = size,
          .alignment = alignment,
          .max_split = max_split,
          .requested = size * std::uint64_t{unit_bytes},
          .alignment_log = static_cast<std::uint8_t>(std::countr_zero(alignment))};
}

/// A store with room reserved, and an address for the next segment.
struct filled_store : block_heap {
  std::uintptr_t next_address = base;
  sequence_number now{};

  explicit filled_store(std::size_t lists = 4) { reserve_lists(lists); }
  block_id segment(units size) {
    reserve();
    block_id const id = add_segment(next_address, size);
    next_address += (std::uintptr_t{1} << 32);
    return id;
  }
  block_id take_from(list_id list, units size) {
    reserve();
    block_id const found = find(list, request_of(size));
    REQUIRE(found != 0);
    return take(found, request_of(size));
  }
  void free_on(list_id list, block_id id) { give(id, list, list == shared ? sequence_number::none : now = next(now)); }
};

}  // namespace

TEST_CASE("what a request leaves stays free, and comes together again when the block is freed") {
  filled_store store;
  block_id const segment = store.segment(100);
  CHECK(store.is_idle(segment));
  block_id const a = store.take_from(shared, 30);
  block_id const b = store.take_from(shared, 70);
  CHECK(store.free_bytes(shared) == 0);
  CHECK(store.find(shared, request_of(1)) == 0);
  store.free_on(shared, a);
  CHECK_FALSE(store.is_idle(segment));
  store.free_on(shared, b);
  CHECK(store.is_idle(segment));
  CHECK(store.largest_free(shared) == 100 * unit_bytes);
  CHECK(store.valid());
  store.remove_segment(segment);
  CHECK(store.free_bytes(shared) == 0);
  CHECK(store.blocks().used() == 0);
}

TEST_CASE("a live block remembers what was asked for") {
  filled_store store;
  store.segment(100);
  block_heap::request r = request_of(3, 1024);
  r.requested = 700;
  block_id const id = store.take(store.find(shared, r), r);
  CHECK(store.blocks()[id].requested() == 700);
  CHECK(store.blocks()[id].alignment_log() == 10);
  CHECK(store.find_live(store.blocks()[id].address()) == id);
  CHECK(store.find_live(store.blocks()[id].address() + unit_bytes) == 0);
}

TEST_CASE("neighbours of different free lists, or with a live block between them, stay apart") {
  filled_store store;
  block_id const segment = store.segment(40);
  block_id blocks[4];
  for (block_id& id : blocks) id = store.take_from(shared, 10);
  store.free_on(1_list, blocks[0]);
  store.free_on(2_list, blocks[1]);
  store.free_on(1_list, blocks[3]);
  CHECK(store.largest_free(1_list) == 10 * unit_bytes);
  CHECK(store.largest_free(2_list) == 10 * unit_bytes);
  store.free_on(1_list, blocks[2]);
  CHECK(store.largest_free(1_list) == 20 * unit_bytes);
  CHECK_FALSE(store.is_idle(segment));
  store.complete(1_list, store.now);
  CHECK(store.free_bytes(shared) == 30 * unit_bytes);
  CHECK_FALSE(store.is_idle(segment));
  store.complete(2_list, store.now);
  CHECK(store.is_idle(segment));
  CHECK(store.valid());
}

TEST_CASE("blocks of two segments are never joined, even where the segments touch") {
  filled_store store;
  store.segment(8);
  store.next_address = base + 8 * unit_bytes;
  store.segment(8);
  CHECK(store.find(shared, request_of(9)) == 0);
  block_id const a = store.take_from(shared, 8);
  block_id const b = store.take_from(shared, 8);
  store.free_on(1_list, a);
  store.free_on(1_list, b);
  CHECK(store.largest_free(1_list) == 8 * unit_bytes);
  CHECK(store.find_run(1_list, request_of(9), [](block_id) { return true; }).first == 0);
}

namespace {

/// A segment that two lists have by turns, block by block.
struct alternating_store : filled_store {
  std::vector<block_id> by_address;
  explicit alternating_store(std::uint16_t count) {
    segment(count * 10u);
    for (std::uint16_t i = 0; i < count; ++i) by_address.insert(by_address.begin(), take_from(shared, 10));
    for (std::uint16_t i = 0; i < count; ++i) free_on(i % 2 == 0 ? 1_list : 2_list, by_address[i]);
  }
  /// Blocks that are looked at for a run of `size` that has one of the first list.
  std::size_t looks_for_run(units size, bool is_there) {
    std::size_t looks = 0;
    auto const found = find_run(1_list, request_of(size), [&](block_id) { return ++looks != 0; });
    CHECK((found.first != 0) == is_there);
    CHECK((found.first == 0 || found.size >= size));
    return looks;
  }
};

}  // namespace

TEST_CASE("what a search for a run looks at grows with the blocks, not with their square") {
  alternating_store few(500), many(1000);
  CHECK(many.looks_for_run(10'001, false) <= 3 * few.looks_for_run(5'001, false));
  CHECK(many.looks_for_run(10'000, true) <= 3 * few.looks_for_run(5'000, true));
  CHECK(many.looks_for_run(100, true) < 100);
}

TEST_CASE("whether a segment is all free is known from the nearer of two blocks that are not") {
  alternating_store store(1000);
  std::size_t looks = 0;
  auto const may_end = [&](list_id) { return ++looks != 0; };
  CHECK(store.is_all_free(store.by_address[500], may_end));
  for (std::size_t const live : {3u, 996u}) {
    store.reserve();
    block_id const id = store.take(store.by_address[live], request_of(10));
    looks = 0;
    CHECK_FALSE(store.is_all_free(store.by_address[live - 2], may_end));
    CHECK_FALSE(store.is_all_free(store.by_address[live + 2], may_end));
    CHECK_FALSE(store.is_all_free(id, may_end));
    CHECK(looks < 20);
    store.free_on(1_list, id);
  }
}

TEST_CASE("a merged block carries the latest sequence number of its parts") {
  filled_store store;
  store.keep_ages();
  store.segment(30);
  block_id const a = store.take_from(shared, 10), b = store.take_from(shared, 10), c = store.take_from(shared, 10);
  store.give(a, 1_list, 5_seq);
  store.give(c, 1_list, 6_seq);
  CHECK(store.sequence(a) == 5_seq);
  CHECK(store.sequence(c) == 6_seq);
  CHECK(store.sequence(store.give(b, 1_list, 9_seq)) == 9_seq);
  store.complete(1_list, 8_seq);  // c alone would be done
  CHECK(store.free_bytes(shared) == 0);
  store.complete(1_list, 9_seq);
  CHECK(store.free_bytes(shared) == 30 * unit_bytes);
}

TEST_CASE("an aligned block leaves its front and its rest free") {
  filled_store store;
  store.next_address = base + unit_bytes;
  store.segment(100);
  auto const r = request_of(16, 16 * unit_bytes);
  CHECK(r.span() == 31);
  block_id const id = store.take(store.find(shared, r), r);
  CHECK(store.blocks()[id].address() == base + 80 * unit_bytes);  // the segment ends at 101
  CHECK(store.blocks()[id].size == 16);
  CHECK(store.free_bytes(shared) == 84 * unit_bytes);
  CHECK(store.valid());
  CHECK(store.blocks()[store.take_from(shared, 5)].address() == base + 96 * unit_bytes);
  CHECK(store.blocks()[store.take_from(shared, 79)].address() == base + unit_bytes);
}

TEST_CASE("where an aligned block was there is room for another one, though not at any address") {
  filled_store store;
  store.segment(256);
  auto const r = request_of(2, 64 * unit_bytes);
  std::vector<block_id> taken;
  auto const take_all = [&] {
    for (store.reserve(); block_id const id = store.take_fitting(1_list, r); store.reserve()) {
      taken.push_back(id);
      REQUIRE(store.blocks()[id].address() % r.alignment == 0);
    }
    return taken.size();
  };
  CHECK(take_all() == 4);
  for (std::size_t const i : {0u, 2u}) {
    store.free_on(i == 0 ? shared : 1_list, taken[i]);
    taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(take_all() == 4);
  }
  CHECK(store.valid());
}

TEST_CASE("a block that is kept whole does not serve an aligned request that it is too small for at other addresses") {
  filled_store store;
  store.segment(64);
  CHECK(store.take_fitting(1_list, request_of(2, 64 * unit_bytes, 64)) == 0);
  CHECK(store.take_fitting(1_list, request_of(2, 64 * unit_bytes)) != 0);
}

TEST_CASE("a large block is kept whole and only serves requests as large") {
  constexpr units limit = 4096;
  filled_store store;
  store.segment(limit + 100);
  CHECK(store.find(shared, request_of(1, unit_bytes, limit)) == 0);
  CHECK(store.find(shared, request_of(limit - 1, unit_bytes, limit)) == 0);
  auto const large = request_of(limit, unit_bytes, limit);
  block_id const id = store.take(store.find(shared, large), large);
  CHECK(store.blocks()[id].size == limit + 100);
  CHECK(store.free_bytes(shared) == 0);
  store.free_on(1_list, id);

  // A segment below the limit is cut as usual.
  store.segment(limit - 1);
  auto const small = request_of(1, unit_bytes, limit);
  CHECK(store.blocks()[store.take(store.find(shared, small), small)].size == 1);
  CHECK(store.valid());
}

TEST_CASE("a large block is not wasted on a request that is much smaller") {
  constexpr units limit = 4096;
  constexpr units slack = (20u << 20) / unit_bytes;
  filled_store store;
  store.segment(limit + slack);
  CHECK(store.find(shared, request_of(limit, unit_bytes, limit)) != 0);
  store.remove_segment(store.find(shared, request_of(limit, unit_bytes, limit)));
  store.segment(limit + slack + 1);
  CHECK(store.find(shared, request_of(limit, unit_bytes, limit)) == 0);
  CHECK(store.find(shared, request_of(limit + 1, unit_bytes, limit)) != 0);
}

TEST_CASE("a segment that is all free is cut last, and used whole where it fits") {
  filled_store store;
  block_id const whole = store.segment(100);
  block_id const part = store.segment(5000);
  CHECK(store.blocks()[store.find(shared, request_of(60))].size == 100);  // both are whole: the tighter one
  store.take(part, request_of(1000));
  CHECK(store.find(shared, request_of(60)) == part);
  CHECK(store.find(shared, request_of(100)) == whole);
  store.take(part, request_of(3950));
  CHECK(store.find(shared, request_of(60)) == whole);  // nothing else is as large
  CHECK(store.valid());
}

TEST_CASE("of blocks that are kept whole none is taken for a part, if it is too large for the request") {
  filled_store store;
  constexpr units kept = 4096;
  block_id const whole = store.segment(kept + 10);
  block_id const part = store.segment(1000 * kept);
  store.take(part, request_of(kept));
  CHECK(store.find(shared, request_of(kept, unit_bytes, kept)) == whole);
}

TEST_CASE("a stream that outgrows its own last block extends it") {
  filled_store store;
  store.segment(100);
  block_id const first = store.take_from(shared, 10);
  store.free_on(1_list, first);
  auto const r = request_of(30);
  block_id const id = store.take_extending(1_list, store.find(shared, r), r);
  CHECK(id == first);
  CHECK(store.blocks()[id].size == 30);
  CHECK(store.blocks()[id].address() == base + 70 * unit_bytes);
  CHECK(store.free_bytes(1_list) == 0);
  CHECK(store.free_bytes(shared) == 70 * unit_bytes);
  CHECK(store.valid());
  // Not into another stream's block.
  store.free_on(1_list, id);
  auto const more = request_of(50);
  CHECK(store.take_extending(2_list, store.find(shared, more), more) != first);
  CHECK(store.free_bytes(1_list) == 30 * unit_bytes);
}

TEST_CASE("a run takes neighbours that may be used, and none beyond one that may not") {
  filled_store store(6);
  store.segment(50);
  block_id blocks[5];  // by address: each is cut off the segment's end
  for (int i = 4; i >= 0; --i) blocks[i] = store.take_from(shared, 10);
  for (std::uint16_t i = 0; i < 5; ++i) store.free_on(list_id{static_cast<std::uint16_t>(i + 1)}, blocks[i]);
  auto const anyone = [](block_id) { return true; };
  auto const not_third = [&](block_id id) { return store.blocks()[id].list != 3_list; };
  CHECK(store.find_run(1_list, request_of(50), anyone).first == blocks[0]);
  CHECK(store.find_run(3_list, request_of(50), anyone).first == blocks[0]);
  CHECK(store.find_run(1_list, request_of(51), anyone).first == 0);
  CHECK(store.find_run(1_list, request_of(20), not_third).first == blocks[0]);
  CHECK(store.find_run(5_list, request_of(20), not_third).first == blocks[3]);
  CHECK(store.find_run(1_list, request_of(21), not_third).first == 0);
  CHECK(store.find_run(3_list, request_of(1), not_third).first == 0);

  // No wider than asked for: every block more may be one more stream to wait for.
  CHECK(store.find_run(1_list, request_of(20), anyone).size == 20);
  CHECK(store.find_run(3_list, request_of(25), anyone).size == 30);
  CHECK(store.find_run(5_list, request_of(11), anyone).first == blocks[3]);

  auto const run = store.find_run(4_list, request_of(20), not_third);
  std::vector<list_id> lists;
  store.for_each_in(run, [&](block_id id) { lists.push_back(store.blocks()[id].list); });
  CHECK(lists == std::vector<list_id>{4_list, 5_list});
  block_id const joined = store.merge(run, 4_list, store.now = next(store.now));
  CHECK(store.blocks()[joined].size == 20);
  CHECK(store.free_bytes(4_list) == 20 * unit_bytes);
  CHECK(store.free_bytes(5_list) == 0);
  CHECK(store.sequence(joined) == store.now);
  CHECK(store.valid());
}

namespace {

/// The same operations on a plain array of units: who has each, and since which free.
class model {
 public:
  struct cell {
    bool live = false;
    list_id list = shared;
    sequence_number sequence{};
    block_id id = 0;
  };
  struct segment {
    block_id first;
    std::vector<cell> cells;
  };

  std::map<std::uintptr_t, segment> segments;
  std::map<block_id, block_heap::request> live;

  cell* cells_of(block const& b) {
    auto const found = std::prev(segments.upper_bound(b.address()));
    std::size_t const offset = (b.address() - found->first) / unit_bytes;
    REQUIRE(offset + b.size <= found->second.cells.size());  // a block lies in one segment
    return found->second.cells.data() + offset;
  }

  /// What `may_have(cell)` says must hold for every unit of a block that is handed out.
  template <class MayHave>
  void taken(block_heap const& store, block_id id, block_heap::request const& r, MayHave may_have) {
    block const& b = store.blocks()[id];
    REQUIRE(b.address() % r.alignment == 0);
    REQUIRE(b.size >= r.size);
    if (b.size < r.max_split) REQUIRE(b.size == r.size);
    cell* const cells = cells_of(b);
    REQUIRE(std::all_of(cells, cells + b.size, [&](cell const& c) { return !c.live && may_have(c); }));
    std::fill_n(cells, b.size, cell{.live = true, .id = id});
    live.emplace(id, r);
  }
  void given(block const& b, block_id id, list_id list, sequence_number sequence) {
    std::fill_n(cells_of(b), b.size, cell{.list = list, .sequence = sequence});
    live.erase(id);
  }
  /// The store's blocks are the model's cells; in the shared list are only those whose work is done.
  void check(block_heap const& store, std::vector<sequence_number> const& completed) {
    REQUIRE(store.valid());
    std::vector<std::size_t> free(store.list_count());
    std::size_t blocks = 0;
    for (auto& [address, s] : segments) {
      std::uintptr_t at = address;
      block_id previous = 0;
      for (block_id id = s.first; id != 0; previous = id, id = store.blocks()[id].right, ++blocks) {
        block const& b = store.blocks()[id];
        REQUIRE(b.address() == at);
        at += b.bytes();
        cell* const cells = cells_of(b);
        bool const is_free = b.is_free();
        REQUIRE(std::all_of(cells, cells + b.size, [&](cell const& c) {
          if (!is_free) return c.live && c.id == id;
          if (b.list == shared) return !c.live && c.sequence <= completed[number(c.list)];
          return !c.live && c.list == b.list && c.sequence <= store.sequence(id);
        }));
        if (is_free && b.list == shared) std::fill_n(cells, b.size, cell{});
        if (is_free) free[number(b.list)] += b.bytes();
        if (is_free && previous != 0 && store.blocks()[previous].is_free())
          REQUIRE(store.blocks()[previous].list != b.list);
      }
      REQUIRE(at == address + s.cells.size() * unit_bytes);
    }
    for (std::size_t list = 0; list < free.size(); ++list)
      REQUIRE(store.free_bytes(static_cast<list_id>(list)) == free[list]);
    REQUIRE(store.blocks().used() == blocks);
  }
};

void random_operations(unsigned seed, units max_split, int steps, int ages_from) {
  CAPTURE(seed);
  constexpr std::uint16_t lists = 5;
  std::mt19937 random(seed);
  auto const below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  filled_store store(lists);
  model m;
  std::vector<sequence_number> completed(lists);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    store.reserve();
    if (step == ages_from) store.keep_ages();
    auto const size = static_cast<units>(1 + below(1u << below(9)));
    auto const r = request_of(size, unit_bytes << (below(4) == 0 ? below(5) : 0), max_split);
    auto const list = static_cast<list_id>(below(lists));
    switch (below(8)) {
      case 0:
        if (m.segments.size() < 4) {
          auto const cells = static_cast<units>(1 + below(400));
          std::uintptr_t const address =
              base + (std::uintptr_t{1} << 32) * static_cast<unsigned>(step) + below(16) * unit_bytes;
          m.segments[address] = {store.add_segment(address, cells), std::vector<model::cell>(cells)};
        } else {
          auto const it = std::next(m.segments.begin(), below(4));
          if (store.is_idle(it->second.first)) {
            store.remove_segment(it->second.first);
            m.segments.erase(it);
          }
        }
        break;
      case 1:
      case 2:
      case 3: {
        block_id const found = store.find(list, r);
        if (found == 0) break;
        block_id const id =
            list == shared && below(2) == 0 ? store.take_extending(2_list, found, r) : store.take(found, r);
        m.taken(store, id, r, [&](model::cell const& c) {
          return c.list == list || c.sequence <= completed[number(c.list)] || (list == shared && c.list == 2_list);
        });
        break;
      }
      case 4:
      case 5:
        if (!m.live.empty()) {
          auto const it = std::next(m.live.begin(), below(static_cast<std::uint32_t>(m.live.size())));
          block_id const id = it->first;
          REQUIRE(store.find_live(store.blocks()[id].address()) == id);
          sequence_number const sequence = list == shared ? sequence_number::none : store.now = next(store.now);
          m.given(block(store.blocks()[id]), id, list, sequence);
          store.give(id, list, sequence);
        }
        break;
      case 6:
        if (list != shared) {
          sequence_number& upto = completed[number(list)];
          upto =
              std::max(upto, sequence_number{number(store.now) - std::min(number(store.now), std::uint64_t{below(6)})});
          store.complete(list, upto);
        }
        break;
      default: {
        if (list == shared) break;
        list_id const barred = static_cast<list_id>(below(lists));
        auto const may_use = [&](block_id id) { return store.blocks()[id].list != barred; };
        auto const run = store.find_run(list, r, may_use);
        if (run.first == 0) break;
        bool from_list = false;
        store.for_each_in(run, [&](block_id part) {
          block const& b = store.blocks()[part];
          REQUIRE(may_use(part));
          REQUIRE(b.size < max_split);
          from_list = from_list || b.list == list;
        });
        REQUIRE(from_list);
        REQUIRE(run.size >= r.span());
        sequence_number const sequence = store.now = next(store.now);
        store.for_each_in(run, [&](block_id part) {
          block const& b = store.blocks()[part];
          std::fill_n(m.cells_of(b), b.size, model::cell{.list = list, .sequence = sequence});
        });
        block_id const id = store.take(store.merge(run, list, sequence), r);
        m.taken(store, id, r, [&](model::cell const& c) { return c.list == list; });
      }
    }
    m.check(store, completed);
  }
}

}  // namespace

TEST_CASE("random operations keep every byte accounted for, no two live blocks overlap, and neighbours are merged") {
  for (unsigned seed = 1; seed <= 6; ++seed) random_operations(seed, splits_all, 3000, 0);
}

TEST_CASE("the same where blocks of a size and more are kept whole") {
  for (unsigned seed = 11; seed <= 16; ++seed) random_operations(seed, 100, 3000, 0);
}

TEST_CASE("the same without ages, and with ages from some time on") {
  for (unsigned seed = 21; seed <= 24; ++seed) random_operations(seed, splits_all, 3000, 3000);
  for (unsigned seed = 31; seed <= 34; ++seed) random_operations(seed, splits_all, 3000, 1000);
}

TEST_CASE("with ages a free list is completed in part, without them only as a whole") {
  for (bool const ages : {true, false}) {
    CAPTURE(ages);
    filled_store store;
    if (ages) store.keep_ages();
    store.segment(30);
    block_id const a = store.take_from(shared, 10), b = store.take_from(shared, 10);
    store.take_from(shared, 10);
    store.give(a, 1_list, 4_seq);
    store.give(store.take_from(1_list, 5), 1_list, 6_seq);
    store.give(b, 2_list, 7_seq);
    store.complete(2_list, 6_seq);
    CHECK(store.free_bytes(2_list) == 10 * unit_bytes);
    store.complete(2_list, 7_seq);
    CHECK(store.free_bytes(2_list) == 0);
    store.complete(1_list, 5_seq);
    CHECK(store.free_bytes(shared) == 10 * unit_bytes);  // the part that was used since merged with the other
    store.complete(1_list, 6_seq);
    CHECK(store.free_bytes(shared) == 20 * unit_bytes);
  }
  filled_store store;
  store.keep_ages();
  store.segment(30);
  block_id const a = store.take_from(shared, 10), between = store.take_from(shared, 10),
                 b = store.take_from(shared, 10);
  store.give(a, 1_list, 4_seq);
  store.give(b, 1_list, 6_seq);
  store.complete(1_list, 5_seq);
  CHECK(store.free_bytes(shared) == 10 * unit_bytes);
  CHECK(store.free_bytes(1_list) == 10 * unit_bytes);
  store.give(between, shared, sequence_number::none);
  CHECK(store.largest_free(shared) == 20 * unit_bytes);
}

TEST_CASE("ages that begin late are never too young") {
  filled_store store;
  store.segment(30);
  block_id const a = store.take_from(shared, 10), between = store.take_from(shared, 10),
                 b = store.take_from(shared, 10);
  store.give(a, 1_list, 4_seq);
  store.give(b, 1_list, 6_seq);
  store.keep_ages();
  store.complete(1_list, 5_seq);
  CHECK(store.free_bytes(shared) == 0);
  store.complete(1_list, 6_seq);
  CHECK(store.free_bytes(shared) == 20 * unit_bytes);
  CHECK(store.blocks()[between].state() == block_state::live);
}

TEST_CASE("a live block may belong to a capture until it is freed or the capture is forgotten") {
  filled_store store;
  store.segment(100);
  block_id const a = store.take_from(shared, 30), b = store.take_from(shared, 20), c = store.take_from(shared, 10);
  store.set_captured(a, 2_list);
  store.set_captured(b, 3_list);
  CHECK(store.blocks()[a].captured == 2_list);
  CHECK(store.blocks()[c].captured == shared);
  store.forget_captured([](list_id list) { return list == 2_list; });
  CHECK(store.blocks()[a].captured == shared);
  CHECK(store.blocks()[b].captured == 3_list);
  CHECK(store.valid());
  store.set_captured(b, shared);
  for (block_id const id : {a, b, c}) store.free_on(shared, id);
  CHECK(store.blocks()[store.take_from(shared, 100)].captured == shared);
  CHECK(store.valid());
}

TEST_CASE("a live block is taken apart into live and free ones, which merge with their neighbours") {
  filled_store store;
  block_id const segment = store.segment(100);
  block_id const last = store.take_from(shared, 10), whole = store.take_from(shared, 60);
  std::uintptr_t const begin = store.blocks()[whole].address();
  store.free_on(2_list, last);
  store.reserve_pieces(4);
  store.take_apart(whole);
  CHECK(store.find_live(begin) == 0);
  block_id const d = store.cut_end(whole, 20), c = store.cut_end(whole, 10), b = store.cut_end(whole, 5);
  CHECK(store.free_piece(d, 2_list, store.now = next(store.now)) == d);
  store.enlist_piece(c, 2000, 4);
  store.free_piece(b, 1_list, store.now = next(store.now));
  CHECK(store.free_piece(whole, shared, sequence_number::none) == segment);
  CHECK(store.valid());
  CHECK(store.free_bytes(shared) == 55 * unit_bytes);
  CHECK(store.free_bytes(1_list) == 5 * unit_bytes);
  CHECK(store.largest_free(2_list) == 30 * unit_bytes);
  CHECK(store.find_live(begin + 30 * unit_bytes) == c);
  CHECK(store.blocks()[c].requested() == 2000);
  CHECK(store.blocks()[c].alignment_log() == 4);
  store.free_on(shared, c);
  store.complete(1_list, store.now);
  store.complete(2_list, store.now);
  CHECK(store.is_idle(segment));
}

TEST_CASE("with room for pieces, as many blocks need no more host memory") {
  filled_store store;
  store.segment(2000);
  block_id const whole = store.take_from(shared, 1000);
  store.reserve_pieces(1000);
  std::size_t const before = store.host_bytes();
  store.take_apart(whole);
  for (int i = 1; i < 1000; ++i) store.enlist_piece(store.cut_end(whole, 1), 256, 8);
  store.enlist_piece(whole, 256, 8);
  CHECK(store.host_bytes() == before);
  CHECK(store.blocks().live() == 1000);
  CHECK(store.valid());
}

TEST_CASE("room for a share lasts for more than a hundred blocks where there are few") {
  filled_store store;
  block_id const segment = store.segment(2000);
  store.reserve_share();
  block_heap::request const r = request_of(1);
  for (int i = 0; i < 120; ++i) {
    REQUIRE_FALSE(store.is_short_of_room());
    store.take(segment, r);
  }
  CHECK(store.valid());
}
