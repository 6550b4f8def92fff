#include <weir/pool/order/joint_lists.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

using namespace weir::detail;

namespace {

/// Lists of streams, and those that these have together.
struct lists_with_joint {
  stream_lists<stream_key> all;
  joint_lists joint{all};

  explicit lists_with_joint(std::size_t count) { all.add(count); }
  list_id stream(std::uint64_t id) {
    bool opened = false;
    return all.find_or_open(stream_identity::key_for(stream_identity::lasting, id), opened);
  }
  list_id both(list_id a, list_id b) {
    return joint.both(a, b, [&](stream_key key, joint_lists::two_lists) {
      bool opened = false;
      return all.find_or_open(key, opened);
    });
  }
};

}  // namespace

TEST_CASE("a joint list is told by its key, and so is what it is of") {
  lists_with_joint l(8);
  list_id const one = l.stream(1), two = l.stream(2), both = l.both(two, one);
  CHECK(l.joint.is_joint(both));
  CHECK_FALSE(l.joint.is_joint(one));
  CHECK(l.joint.parts(both).first == std::min(one, two));
  CHECK(l.joint.parts(both).second == std::max(one, two));
}

TEST_CASE("the list of two is the same whichever comes first, and of a part and the whole it is the whole") {
  lists_with_joint l(16);
  list_id const one = l.stream(1), two = l.stream(2), three = l.stream(3);
  list_id const both = l.both(one, two);
  CHECK(l.both(two, one) == both);
  CHECK(l.both(one, one) == one);
  list_id const all = l.both(both, three);
  CHECK(l.both(all, one) == all);
  CHECK(l.both(two, all) == all);
  CHECK(l.both(both, all) == all);
  CHECK(l.both(two, three) != both);
}

TEST_CASE("several streams have one list, in whatever order they are named") {
  lists_with_joint l(24);
  std::array<list_id, 4> order{l.stream(1), l.stream(2), l.stream(3), l.stream(4)};
  std::ranges::sort(order);
  list_id const all = l.both(l.both(l.both(order[0], order[1]), order[2]), order[3]);
  do {
    CHECK(l.both(l.both(l.both(order[0], order[1]), order[2]), order[3]) == all);
  } while (std::ranges::next_permutation(order).found);
  CHECK(l.all.open_count() == 4 + 6 + 4 + 1);  // of one, of two, of three, of all
}

TEST_CASE("there is room for what streams free together if there was for so many lists as they may need") {
  for (std::size_t const count : {2u, 3u, 4u, 5u, 12u}) {
    CAPTURE(count);
    std::size_t const needed = joint_lists::lists_for(count);
    lists_with_joint l(needed);
    std::vector<list_id> streams;
    for (std::size_t i = 1; i <= count; ++i) streams.push_back(l.stream(i));
    std::ranges::sort(streams, std::greater{});
    list_id all = streams[0];
    for (std::size_t i = 1; i < count; ++i) all = l.both(all, streams[i]);
    CHECK(all != shared);
  }
}

TEST_CASE("without room for the list of all, or for one on the way to it, there is none") {
  lists_with_joint l(5);
  std::array<list_id, 3> streams{l.stream(1), l.stream(2), l.stream(3)};
  std::ranges::sort(streams);
  list_id const both = l.both(streams[1], streams[2]);
  REQUIRE(both != shared);
  CHECK(l.both(both, streams[0]) == shared);  // there is one left, for the lower two
  CHECK(l.both(streams[0], streams[1]) != shared);
  CHECK(l.both(streams[0], streams[2]) == shared);
}
