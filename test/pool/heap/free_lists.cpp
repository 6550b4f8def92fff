#include <weir/pool/heap/free_lists.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace weir::detail;

namespace {

struct laned {
  block_table table;
  free_lists free{table};
  std::uintptr_t next = unit_bytes;

  laned() { free.reserve_lanes(3); }
  block_id put(units size, lane_id lane, std::uint64_t ticket) {
    free.reserve_blocks(table.end_if_grown());
    table.reserve(2);
    block_id const id = table.add(next, size);
    next += table[id].bytes() + unit_bytes;
    free.put(id, lane, ticket);
    return id;
  }
};

}  // namespace

TEST_CASE("a block is free in one lane, under its size, until it is pulled") {
  laned l;
  block_id const id = l.put(10, 1, 1);
  CHECK(l.free.by_size(1).find(l.table, 10) == id);
  CHECK(l.free.by_size(2).find(l.table, 10) == 0);
  CHECK(l.free.free_units(1) == 10);
  l.free.pull(id);
  CHECK(l.free.by_size(1).find(l.table, 1) == 0);
  CHECK(l.free.free_units(1) == 0);
}

TEST_CASE("until ages are kept every block of a lane has the lane's latest ticket, then its own") {
  laned l;
  block_id const a = l.put(10, 1, 3), b = l.put(20, 1, 5), other = l.put(10, 2, 4);
  CHECK(l.free.ticket(a) == 5);
  CHECK(l.free.ticket(other) == 4);
  CHECK(l.free.any_until(1, 4) == 0);
  CHECK(l.free.any_until(1, 5) != 0);
  l.free.keep_ages();
  block_id const c = l.put(30, 1, 7);
  CHECK(l.free.ticket(a) == 5);
  CHECK(l.free.ticket(b) == 5);
  CHECK(l.free.ticket(c) == 7);
  l.free.pull(l.free.any_until(1, 5));
  l.free.pull(l.free.any_until(1, 5));
  CHECK(l.free.any_until(1, 6) == 0);
  CHECK(l.free.any_until(1, 7) == c);
  CHECK(l.free.valid());
}

TEST_CASE("a block that shrinks, grows or is cut stays where it is, with its size and ticket right") {
  for (bool const ages : {false, true}) {
    CAPTURE(ages);
    laned l;
    if (ages) l.free.keep_ages();
    block_id const first = l.put(100, 1, 1);
    l.put(7, 1, 2);
    l.table[l.table.split(first, 40)].set_live(1, 8);
    l.free.shrunk(first, 100);
    CHECK(l.free.free_units(1) == 67);
    CHECK(l.free.by_size(1).find(l.table, 60) == first);
    CHECK(l.free.by_size(1).find(l.table, 61) == 0);

    block_id const end = l.table.split(first, 10);
    l.free.cut(first, 60, end);
    CHECK(l.free.free_units(1) == 67);
    CHECK(l.free.by_size(1).find(l.table, 10) == end);
    CHECK(l.free.ticket(end) == (ages ? 1 : 2));

    l.free.pull(end);
    l.table.merge_right(first);
    l.free.grown(first, 50, 9);
    CHECK(l.free.free_units(1) == 67);
    CHECK(l.free.by_size(1).find(l.table, 60) == first);
    CHECK(l.free.ticket(first) == 9);
    CHECK(l.free.valid());
  }
}

TEST_CASE("room that is made with ages kept is room for ages too") {
  laned l;
  l.free.keep_ages();
  std::vector<block_id> ids;
  for (std::uint64_t ticket = 1; ticket <= 1000; ++ticket) ids.push_back(l.put(3, 1, ticket));
  l.free.reserve_lanes(40);
  l.put(3, 39, 1001);
  CHECK(l.free.valid());
  for (block_id const id : ids) l.free.pull(id);
  CHECK(l.free.free_units(1) == 0);
  CHECK(l.free.free_units(39) == 3);
}
