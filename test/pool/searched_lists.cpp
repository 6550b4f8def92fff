#include <weir/pool/searched_lists.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace weir::detail;

namespace {

list_id list(std::size_t number) { return static_cast<list_id>(number); }
std::vector<list_id> lists_of(std::initializer_list<std::size_t> numbers) {
  std::vector<list_id> all;
  for (std::size_t const n : numbers) all.push_back(list(n));
  return all;
}

/// A heap with a free block in some lists.
struct some_free {
  block_heap heap;

  explicit some_free(std::initializer_list<std::size_t> with_free) {
    heap.reserve_lists(200);
    heap.reserve();
    heap.add_segment(0x7f00'0000'0000u, 1000);
    std::uint64_t sequence = 0;
    for (std::size_t const number : with_free) {
      heap.reserve();
      auto const r = block_heap::request::of(256, 256, 256, ~units{0});
      block_id const id = heap.take_tightest(shared, r), between = heap.take_tightest(shared, r);
      REQUIRE(between != 0);
      heap.give(id, list(number), sequence_number{++sequence});
    }
  }
  std::vector<list_id> of(searched_lists const& looked_at) {
    std::vector<list_id> found;
    looked_at.for_each_with_free(heap, [&](list_id l) { found.push_back(l); });
    return found;
  }
};

std::vector<list_id> all_of(searched_lists const& looked_at) {
  std::vector<list_id> found;
  looked_at.for_each([&](list_id l) { found.push_back(l); });
  return found;
}

}  // namespace

TEST_CASE("all lists are those from 1 on") {
  searched_lists const all(4);
  CHECK(all.are_all());
  CHECK(all.count() == 4);
  CHECK(all_of(all) == lists_of({1, 2, 3, 4}));
  CHECK(all_of(searched_lists(0)).empty());
}

TEST_CASE("some go on behind the last with the first, and so does who counts beyond them") {
  searched_lists const some(3, 3, 5);
  CHECK_FALSE(some.are_all());
  CHECK(all_of(some) == lists_of({4, 5, 1}));
  CHECK(some[2] == list(1));
  CHECK(some[3] == list(4));
}

TEST_CASE("of those with free blocks all are met that are among them, in the same order") {
  some_free heap({1, 4, 63, 64, 65, 199});
  CHECK(heap.of(searched_lists(199)) == lists_of({1, 4, 63, 64, 65, 199}));
  CHECK(heap.of(searched_lists(64)) == lists_of({1, 4, 63, 64}));
  CHECK(heap.of(searched_lists(2, 62, 199)) == lists_of({4, 63, 64}));
  CHECK(heap.of(searched_lists(64, 140, 199)) == lists_of({65, 199, 1, 4}));
  CHECK(heap.of(searched_lists(198, 1, 199)) == lists_of({199}));
  CHECK(heap.of(searched_lists(4, 10, 199)).empty());
}

TEST_CASE("the first result that is not 0 ends it") {
  some_free heap({1, 4, 63});
  std::vector<list_id> asked;
  block_id const found = searched_lists(3, 70, 100).first_of(heap.heap, [&](list_id l) -> block_id {
    asked.push_back(l);
    return l == list(4) ? 17 : 0;
  });
  CHECK(found == 17);
  CHECK(asked == lists_of({4}));
}
