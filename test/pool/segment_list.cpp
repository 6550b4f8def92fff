#include <weir/pool/segment_list.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>

using namespace weir::detail;

namespace {

segment numbered(std::uint32_t i) { return {reinterpret_cast<void*>(std::uintptr_t{i} << 12), i * 256, i}; }

std::set<std::uint32_t> all_of(segment_list const& list) {
  std::set<std::uint32_t> found;
  for (segment const& s : list) {
    CHECK_EQ(s.address, numbered(s.first).address);
    CHECK_EQ(s.bytes, numbered(s.first).bytes);
    found.insert(s.first);
  }
  return found;
}

}  // namespace

TEST_CASE("segments come and go in any order") {
  segment_list list;
  CHECK_EQ(list.size(), 0);
  CHECK(all_of(list).empty());
  for (std::uint32_t i = 1; i <= 40; ++i) {
    list.reserve();
    list.add(numbered(i));
  }
  CHECK_EQ(list.size(), 40);
  CHECK_EQ(all_of(list).size(), 40);
  std::set<std::uint32_t> left = all_of(list);
  for (std::size_t const at : {std::size_t{39}, std::size_t{0}, std::size_t{17}, std::size_t{0}}) {
    std::uint32_t const expected = list[at].first;
    CHECK_EQ(list.remove(at).first, expected);
    left.erase(expected);
    CHECK(all_of(list) == left);
  }
  CHECK_EQ(list.size(), 36);
  while (list.size() != 0) list.remove(0);
  list.reserve();
  list.add(numbered(7));
  CHECK(all_of(list) == std::set<std::uint32_t>{7});
}
