#include <weir/pool/order/spare_lists.hpp>

#include <doctest/doctest.h>

#include <cstdint>

using namespace weir::detail;

namespace {

stream_key key(std::uint64_t id) { return stream_identity::key_for(stream_identity::destroyable, id); }

}  // namespace

TEST_CASE("each stream that found no list is counted once, up to a bound, and only where none was left") {
  spare_lists spare;
  std::size_t const at_first = spare.wanted();
  CHECK(at_first == spare_lists::least);
  for (int time = 0; time < 100; ++time)
    for (std::uint64_t id = 1; id <= 3; ++id) spare.missed(key(id), true);
  CHECK(spare.wanted() == at_first + 3);
  spare.missed(key(4), false);
  CHECK(spare.wanted() == at_first + 3);
  for (std::uint64_t id = 10; id <= 3000; ++id) spare.missed(key(id), true);
  CHECK(spare.wanted() == 256);
}

TEST_CASE("once there is room a stream that finds none again is counted again") {
  spare_lists spare;
  spare.missed(key(1), true);
  spare.made_room();
  spare.missed(key(1), true);
  CHECK(spare.wanted() == spare_lists::least + 2);
}

TEST_CASE("most streams come again if more than half of those met were forgotten of late") {
  spare_lists spare;
  CHECK_FALSE(spare.most_come_again());
  for (std::uint64_t id = 1; id <= 3; ++id) spare.forgot(key(id));
  for (std::uint64_t id = 1; id <= 5; ++id) spare.met(key(id));
  CHECK(spare.most_come_again());
  CHECK_FALSE(spare.most_come_again());  // of the streams since then
  for (std::uint64_t id = 1; id <= 3; ++id) spare.met(key(id));
  for (std::uint64_t id = 7; id <= 9; ++id) spare.met(key(id));
  CHECK_FALSE(spare.most_come_again());  // half
  for (std::uint64_t id = 100; id < 164; ++id) spare.forgot(key(id));
  for (std::uint64_t id = 1; id <= 3; ++id) spare.met(key(id));
  CHECK_FALSE(spare.most_come_again());  // too many were forgotten since
}
