#include <weir/pool/heap/free_order.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace weir::detail;

namespace {

std::vector<block_id> in_order(free_order const& ages, lane_id lane) {
  std::vector<block_id> order;
  for (block_id id = ages.oldest(lane); id != 0; id = ages.newer(id)) order.push_back(id);
  return order;
}

}  // namespace

TEST_CASE("each lane has its blocks oldest first, whichever leave") {
  free_order ages;
  ages.reserve(10, 3);
  std::uint64_t ticket = 0;
  for (block_id const id : {4u, 2u, 7u}) ages.append(1, id, ++ticket);
  for (block_id const id : {5u, 1u}) ages.append(2, id, ++ticket);
  CHECK(in_order(ages, 1) == std::vector<block_id>{4, 2, 7});
  CHECK(in_order(ages, 2) == std::vector<block_id>{5, 1});
  CHECK(ages.ticket(7) == 3);
  ages.insert_after(1, 2, 9, 2);
  ages.insert_after(1, 0, 3, 1);
  CHECK(in_order(ages, 1) == std::vector<block_id>{3, 4, 2, 9, 7});
  ages.remove(1, 2);
  CHECK(in_order(ages, 1) == std::vector<block_id>{3, 4, 9, 7});
  ages.remove(1, 3);
  ages.remove(1, 7);
  CHECK(in_order(ages, 1) == std::vector<block_id>{4, 9});
  ages.append(1, 3, ++ticket);
  CHECK(in_order(ages, 1) == std::vector<block_id>{4, 9, 3});
  for (block_id const id : {4u, 9u, 3u}) ages.remove(1, id);
  CHECK(in_order(ages, 1).empty());
  CHECK(in_order(ages, 2) == std::vector<block_id>{5, 1});
}

TEST_CASE("more room keeps what is there") {
  free_order ages;
  ages.reserve(2, 2);
  ages.append(1, 1, 5);
  ages.reserve(100'000, 40);
  ages.append(1, 99'999, 6);
  ages.append(39, 50, 7);
  CHECK(in_order(ages, 1) == std::vector<block_id>{1, 99'999});
  CHECK(in_order(ages, 39) == std::vector<block_id>{50});
}
