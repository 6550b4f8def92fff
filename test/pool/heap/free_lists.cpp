#include <weir/pool/heap/free_lists.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "numbers.hpp"

using namespace weir::detail;
using namespace weir::test;

namespace {

struct laned {
  block_table table;
  free_lists free{table};
  std::uintptr_t next = unit_bytes;

  laned() {
    free.reserve_lists(3);
    free.reserve_size(1000);
  }
  block_id put(units size, list_id list, sequence_number sequence) {
    free.reserve_blocks(table.end_if_grown());
    table.reserve(2);
    block_id const id = table.add(next, size);
    next += table[id].bytes() + unit_bytes;
    free.put(id, list, sequence);
    return id;
  }
};

}  // namespace

TEST_CASE("a block is free in one free list, under its size, until it is pulled") {
  laned l;
  block_id const id = l.put(10, 1_list, 1_seq);
  CHECK(l.free.by_size(1_list).find(l.table, 10) == id);
  CHECK(l.free.by_size(2_list).find(l.table, 10) == 0);
  CHECK(l.free.free_units(1_list) == 10);
  l.free.pull(id);
  CHECK(l.free.by_size(1_list).find(l.table, 1) == 0);
  CHECK(l.free.free_units(1_list) == 0);
}

TEST_CASE(
    "a list takes host memory up to the largest block, and keeps what is in it when there is to be a larger one") {
  laned l;
  block_id const a = l.put(10, 1_list, 1_seq), b = l.put(1000, 2_list, 2_seq);
  std::size_t const before = l.free.host_bytes();
  l.free.reserve_size(1000);
  CHECK(l.free.host_bytes() == before);
  l.free.reserve_size(100'000);
  CHECK(l.free.host_bytes() > before);
  block_id const c = l.put(100'000, 1_list, 3_seq);
  CHECK(l.free.valid());
  CHECK(l.free.by_size(1_list).find(l.table, 10) == a);
  CHECK(l.free.by_size(2_list).find(l.table, 10) == b);
  CHECK(l.free.by_size(1_list).find(l.table, 1001) == c);
  CHECK(l.free.free_units(1_list) == 100'010);
  l.free.reserve_lists(5);
  CHECK(l.free.valid());
  CHECK(l.free.by_size(1_list).find(l.table, 1001) == c);
  CHECK(l.free.by_size(4_list).empty());
}

TEST_CASE("until ages are kept every block of a free list has the free list's latest sequence number, then its own") {
  laned l;
  block_id const a = l.put(10, 1_list, 3_seq), b = l.put(20, 1_list, 5_seq), other = l.put(10, 2_list, 4_seq);
  CHECK(l.free.sequence(a) == 5_seq);
  CHECK(l.free.sequence(other) == 4_seq);
  CHECK(l.free.pull_until(1_list, 4_seq) == 0);
  block_id const any = l.free.pull_until(1_list, 5_seq);
  CHECK(any == a);
  CHECK(l.free.free_units(1_list) == 20);
  l.free.put(any, 1_list, 5_seq);
  l.free.keep_ages();
  block_id const c = l.put(30, 1_list, 7_seq);
  CHECK(l.free.sequence(a) == 5_seq);
  CHECK(l.free.sequence(b) == 5_seq);
  CHECK(l.free.sequence(c) == 7_seq);
  CHECK(l.free.pull_until(1_list, 5_seq) != 0);
  CHECK(l.free.pull_until(1_list, 5_seq) != 0);
  CHECK(l.free.pull_until(1_list, 6_seq) == 0);
  CHECK(l.free.free_units(1_list) == 30);
  CHECK(l.free.valid());
  CHECK(l.free.pull_until(1_list, 7_seq) == c);
  CHECK(l.free.pull_until(1_list, 7_seq) == 0);
  CHECK(l.free.valid());
}

TEST_CASE("a block that shrinks, grows or is cut stays where it is, with its size and sequence number right") {
  for (bool const ages : {false, true}) {
    CAPTURE(ages);
    laned l;
    if (ages) l.free.keep_ages();
    block_id const first = l.put(100, 1_list, 1_seq);
    l.put(7, 1_list, 2_seq);
    l.table[l.table.split(first, 40)].set_live(1, 8);
    l.free.shrunk(first, 100);
    CHECK(l.free.free_units(1_list) == 67);
    CHECK(l.free.by_size(1_list).find(l.table, 60) == first);
    CHECK(l.free.by_size(1_list).find(l.table, 61) == 0);

    block_id const end = l.table.split(first, 10);
    l.free.cut(first, 60, end);
    CHECK(l.free.free_units(1_list) == 67);
    CHECK(l.free.by_size(1_list).find(l.table, 10) == end);
    CHECK(l.free.sequence(end) == (ages ? 1_seq : 2_seq));

    l.free.pull(end);
    l.table.merge_right(first);
    l.free.grown(first, 50, 9_seq);
    CHECK(l.free.free_units(1_list) == 67);
    CHECK(l.free.by_size(1_list).find(l.table, 60) == first);
    CHECK(l.free.sequence(first) == 9_seq);
    CHECK(l.free.valid());
  }
}

TEST_CASE("room that is made with ages kept is room for ages too") {
  laned l;
  l.free.keep_ages();
  std::vector<block_id> ids;
  for (sequence_number sequence = 1_seq; sequence <= 1000_seq; sequence = next(sequence))
    ids.push_back(l.put(3, 1_list, sequence));
  l.free.reserve_lists(40);
  l.put(3, 39_list, 1001_seq);
  CHECK(l.free.valid());
  for (block_id const id : ids) l.free.pull(id);
  CHECK(l.free.free_units(1_list) == 0);
  CHECK(l.free.free_units(39_list) == 3);
}

TEST_CASE("which lists have free blocks is known without a look at each") {
  laned l;
  l.free.reserve_lists(200);
  auto const with_free = [&](std::size_t from, std::size_t end) {
    std::vector<list_id> found;
    for (list_id at{static_cast<std::uint16_t>(from)}; (at = l.free.next_with_free(at, end)) != shared;
         at = list_id{static_cast<std::uint16_t>(static_cast<std::size_t>(at) + 1)})
      found.push_back(at);
    return found;
  };
  CHECK(with_free(1, 200).empty());
  block_id const a = l.put(3, 63_list, 1_seq), b = l.put(3, 64_list, 2_seq);
  l.put(3, 64_list, 3_seq);
  l.put(3, 1_list, 4_seq);
  l.put(3, 199_list, 5_seq);
  CHECK(with_free(1, 200) == std::vector<list_id>{1_list, 63_list, 64_list, 199_list});
  CHECK(with_free(2, 199) == std::vector<list_id>{63_list, 64_list});
  CHECK(with_free(64, 65) == std::vector<list_id>{64_list});
  CHECK(with_free(65, 128).empty());
  CHECK(l.free.has_free(63_list));
  CHECK_FALSE(l.free.has_free(62_list));
  l.free.pull(a);
  l.free.pull(b);
  CHECK(l.free.pull_until(1_list, 4_seq) != 0);
  CHECK(with_free(1, 200) == std::vector<list_id>{64_list, 199_list});
  CHECK_FALSE(l.free.has_free(63_list));
  CHECK(l.free.valid());
}
