#include <weir/pool/heap/tlsf_index.hpp>
#include <weir/support/tailed_array.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

using namespace weir::detail;

namespace {

/// Free blocks that are no neighbours, and the index that holds them.
struct indexed_blocks {
  block_table table;
  tailed_array<tlsf_index> room;
  tlsf_index& index;
  std::set<block_id> free;
  std::uintptr_t next_address = unit_bytes;

  indexed_blocks() : index(with_room(room)) {}
  static tlsf_index& with_room(tailed_array<tlsf_index>& room) {
    room.grow(1, tlsf_index::bytes_behind(~units{0}));
    return room[0];
  }

  block_id add(units size) {
    table.reserve(1);
    block_id const id = table.add(next_address, size);
    next_address += table[id].bytes() + unit_bytes;
    table[id].set_free(shared);
    index.insert(table, id);
    free.insert(id);
    return id;
  }
  void remove(block_id id) {
    index.remove(table, id);
    table.drop(id);
    free.erase(id);
  }
  units largest() const {
    units most = 0;
    for (block_id const id : free) most = std::max(most, table[id].size);
    return most;
  }
};

}  // namespace

TEST_CASE("an empty index has nothing") {
  indexed_blocks blocks;
  CHECK(blocks.index.empty());
  CHECK(blocks.index.find(blocks.table, 1) == 0);
  CHECK(blocks.index.largest(blocks.table) == 0);
  CHECK(blocks.index.valid(blocks.table));
}

TEST_CASE("a block serves requests up to its own size, exactly") {
  for (units const size :
       {1u, 2u, 31u, 32u, 33u, 63u, 64u, 65u, 127u, 128u, 4095u, 4096u, 4097u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    CAPTURE(size);
    indexed_blocks blocks;
    block_id const only = blocks.add(size);
    CHECK(blocks.index.find(blocks.table, size) == only);
    CHECK(blocks.index.find(blocks.table, 1) == only);
    if (size > 1) CHECK(blocks.index.find(blocks.table, size - 1) == only);
    if (size < 0xffffffffu) CHECK(blocks.index.find(blocks.table, size + 1) == 0);
  }
}

TEST_CASE("what is larger than the largest block may be asked for, and nothing is read where no list can be") {
  indexed_blocks blocks;
  block_id const elsewhere = blocks.add(1000), largest = blocks.add(100), other = blocks.add(7);
  tailed_array<tlsf_index> two;  // behind the first one lies the second, which begins as the number of `elsewhere`
  two.grow(2, tlsf_index::bytes_behind(100));
  REQUIRE(elsewhere == 1);
  two[0].insert(blocks.table, largest);
  two[1].insert(blocks.table, other);
  auto const any = [](block const&) { return true; };
  for (units const size : {101u, 103u, 104u, 128u, 1u << 20, ~0u}) {
    CAPTURE(size);
    CHECK(two[0].find(blocks.table, size) == 0);
    CHECK(two[0].find_in_class(blocks.table, size, any) == 0);
  }
  int seen = 0;
  two[0].any_from_largest(blocks.table, 1, ~0u, [&](block_id id) { return seen += id == largest ? 1 : 100, false; });
  CHECK(seen == 1);
  CHECK(two[0].valid(blocks.table, 100));
  CHECK(two[0].largest(blocks.table) == 100);
}

TEST_CASE("among a few blocks of a class the tightest is taken") {
  indexed_blocks blocks;
  blocks.add(1029);
  block_id const tight = blocks.add(1026);
  blocks.add(1030);
  blocks.add(1024);  // too small
  CHECK(blocks.index.find(blocks.table, 1025) == tight);
  block_id const exact = blocks.add(1025);
  CHECK(blocks.index.find(blocks.table, 1025) == exact);
}

TEST_CASE("a block of the request's class comes before one of a larger class") {
  indexed_blocks blocks;
  blocks.add(5000);
  block_id const near = blocks.add(1030);
  blocks.add(2000);
  CHECK(blocks.index.find(blocks.table, 1026) == near);
  blocks.remove(near);
  CHECK(blocks.table[blocks.index.find(blocks.table, 1026)].size == 2000);
}

TEST_CASE("the first block that is accepted is found in the request's class or a later one, within so many looks") {
  indexed_blocks blocks;
  std::vector<block_id> ids;
  for (units const size : {1000u, 1030u, 1500u, 5000u, 1u << 20}) ids.push_back(blocks.add(size));
  auto const first = [&](units size, unsigned looks, block_id wanted) {
    return blocks.index.find_first(blocks.table, size, looks,
                                   [&](block const& b) { return &b == &blocks.table[wanted]; });
  };
  for (std::size_t i = 1; i < ids.size(); ++i) {  // the smallest is never looked at
    CAPTURE(i);
    CHECK(first(1026, static_cast<unsigned>(i), ids[i]) == ids[i]);
    CHECK(first(1026, static_cast<unsigned>(i - 1), ids[i]) == 0);
  }
  CHECK(first(1026, 16, ids[0]) == 0);
  CHECK(first(1031, 16, ids[1]) == 0);  // of the same class, but too small
  CHECK(first(units{1} << 21, 16, ids[4]) == 0);
}

TEST_CASE("a block that became larger or smaller is found by the size that it has") {
  for (units const before : {1u, 31u, 32u, 63u, 64u, 1000u, 1u << 20})
    for (units const after : {1u, 31u, 32u, 63u, 64u, 1000u, 1001u, 1u << 20}) {
      CAPTURE(before);
      CAPTURE(after);
      indexed_blocks b;
      block_id const id = b.add(before);
      b.table[id].size = after;
      b.index.resized(b.table, id, before);
      CHECK(b.index.find(b.table, after) == id);
      CHECK(b.index.find(b.table, after + 1) == 0);
      CHECK(b.index.largest(b.table) == after);
      CHECK(b.index.valid(b.table));
    }
}

TEST_CASE("blocks are seen from the class of one size down to that of another") {
  indexed_blocks blocks;
  for (units const size : {3u, 5u, 40u, 64u, 70u, 71u, 500u, 5000u}) blocks.add(size);
  auto const seen = [&](units least, units most) {
    std::vector<units> sizes;
    blocks.index.any_from_largest(blocks.table, least, most,
                                  [&](block_id id) { return sizes.push_back(blocks.table[id].size), false; });
    return sizes;
  };
  CHECK(seen(1, ~0u) == std::vector<units>{5000, 500, 71, 70, 64, 40, 5, 3});
  CHECK(seen(5, 500) == std::vector<units>{500, 71, 70, 64, 40, 5});
  CHECK(seen(6, 69) == std::vector<units>{64, 40});
  CHECK(seen(40, 40) == std::vector<units>{40});
  CHECK(seen(41, 63).empty());
  CHECK(blocks.index.any_from_largest(blocks.table, 1, ~0u, [&](block_id id) { return blocks.table[id].size == 64; }));
}

TEST_CASE("all blocks can be removed, one after the other, without a name") {
  indexed_blocks b;
  CHECK(b.index.remove_any(b.table) == 0);
  for (units const size : std::vector<units>{3, 40, 40, 41, 5000, 3}) b.add(size);
  while (!b.free.empty()) {
    block_id const gone = b.index.remove_any(b.table);
    REQUIRE(b.free.erase(gone) == 1);
    b.table.drop(gone);
    CHECK(b.index.valid(b.table));
  }
  CHECK(b.index.empty());
  CHECK(b.index.remove_any(b.table) == 0);
}

TEST_CASE("what is found fits and wastes little, for random blocks and requests") {
  std::mt19937 random(7);
  indexed_blocks blocks;
  for (int step = 0; step < 20'000; ++step) {
    auto const size = static_cast<units>(1 + random() % (1u << (1 + random() % 16)));
    if (random() % 2 == 0 || blocks.free.empty()) {
      blocks.add(size);
    } else {
      block_id const found = blocks.index.find(blocks.table, size);
      // A later class always serves; the request's own class is searched for a few blocks only.
      bool later = false;
      units tightest = ~units{0};
      for (block_id const id : blocks.free) {
        units const has = blocks.table[id].size;
        later = later || size_class::of(has).least() > size;
        if (has >= size) tightest = std::min(tightest, has);
      }
      if (later) REQUIRE(found != 0);
      if (found != 0) {
        REQUIRE(blocks.free.count(found) == 1);
        REQUIRE(blocks.table[found].size >= size);
        REQUIRE(blocks.table[found].size <= tightest + tightest / 16 + (blocks.free.size() > 8 ? tightest / 32 : 0));
        blocks.remove(found);
      }
    }
    REQUIRE(blocks.index.empty() == blocks.free.empty());
    if (step % 16 == 0) {
      REQUIRE(blocks.index.valid(blocks.table));
      REQUIRE(blocks.index.largest(blocks.table) == blocks.largest());
    }
  }
}
