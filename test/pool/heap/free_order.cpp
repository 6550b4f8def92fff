#include <weir/pool/heap/free_order.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "numbers.hpp"

using namespace weir::detail;
using namespace weir::test;

namespace {

std::vector<block_id> in_order(free_order const& ages, list_id list) {
  std::vector<block_id> order;
  for (block_id id = ages.oldest(list); id != 0; id = ages.newer(id)) order.push_back(id);
  return order;
}

}  // namespace

TEST_CASE("each free list has its blocks oldest first, whichever leave") {
  free_order ages;
  ages.reserve(10, 3);
  sequence_number sequence{};
  for (block_id const id : {4u, 2u, 7u}) ages.append(1_list, id, sequence = next(sequence));
  for (block_id const id : {5u, 1u}) ages.append(2_list, id, sequence = next(sequence));
  CHECK(in_order(ages, 1_list) == std::vector<block_id>{4, 2, 7});
  CHECK(in_order(ages, 2_list) == std::vector<block_id>{5, 1});
  CHECK(ages.sequence(7) == 3_seq);
  ages.insert_after(1_list, 2, 9, 2_seq);
  ages.insert_after(1_list, 0, 3, 1_seq);
  CHECK(in_order(ages, 1_list) == std::vector<block_id>{3, 4, 2, 9, 7});
  ages.remove(1_list, 2);
  CHECK(in_order(ages, 1_list) == std::vector<block_id>{3, 4, 9, 7});
  ages.remove(1_list, 3);
  ages.remove(1_list, 7);
  CHECK(in_order(ages, 1_list) == std::vector<block_id>{4, 9});
  ages.append(1_list, 3, sequence = next(sequence));
  CHECK(in_order(ages, 1_list) == std::vector<block_id>{4, 9, 3});
  for (block_id const id : {4u, 9u, 3u}) ages.remove(1_list, id);
  CHECK(in_order(ages, 1_list).empty());
  CHECK(in_order(ages, 2_list) == std::vector<block_id>{5, 1});
}

TEST_CASE("more room keeps what is there") {
  free_order ages;
  ages.reserve(2, 2);
  ages.append(1_list, 1, 5_seq);
  ages.reserve(100'000, 40);
  ages.append(1_list, 99'999, 6_seq);
  ages.append(39_list, 50, 7_seq);
  CHECK(in_order(ages, 1_list) == std::vector<block_id>{1, 99'999});
  CHECK(in_order(ages, 39_list) == std::vector<block_id>{50});
}
