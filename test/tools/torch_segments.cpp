#include <weir/tools/torch_segments.hpp>

#include <doctest/doctest.h>
#include <support/python.hpp>

#include <string>

using namespace weir;
using weir::detail::damaged_pickle;
using weir::test::python;

namespace {

/// The pickle of a snapshot whose segments are given as Python writes them.
std::string pickled(std::string const& segments) {
  std::string const digits =
      python("print(pickle.dumps({'segments': " + segments + ", 'device_traces': []}).hex())", "");
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}
memory_snapshot read(std::string const& segments) {
  std::string const bytes = pickled(segments);
  return detail::torch_segments(detail::pickle(bytes), 100);
}

}  // namespace

TEST_CASE("segments have their blocks, one behind the other") {
  memory_snapshot const seen = read(
      "[{'device': 1, 'address': 4096, 'total_size': 1536, 'stream': 7, 'is_expandable': True, 'blocks': ["
      "{'address': 4096, 'size': 512, 'requested_size': 500, 'state': 'active_allocated', 'category': 'kv'}, "
      "{'address': 4608, 'size': 512, 'requested_size': 400, 'state': 'active_pending_free'}, "
      "{'address': 5120, 'size': 512, 'requested_size': 300, 'state': 'inactive'}]}]");
  REQUIRE(seen.segments.size() == 1);
  memory_segment const& s = seen.segments[0];
  CHECK(s.address == 4096);
  CHECK(s.bytes == 1536);
  CHECK(s.device == 1);
  CHECK(s.is_range);
  CHECK(s.layer == "PyTorch");
  REQUIRE(s.blocks.size() == 3);
  CHECK(s.blocks[0] ==
        memory_block{
            .address = 4096, .bytes = 512, .requested = 500, .stream = 7, .state = memory_state::live, .tag = "kv"});
  CHECK(s.blocks[1] == memory_block{.address = 4608, .bytes = 512, .stream = 7, .state = memory_state::pending});
  CHECK(s.blocks[2] == memory_block{.address = 5120, .bytes = 512, .state = memory_state::free});
}

TEST_CASE("what older snapshots do not say follows from the rest") {
  memory_snapshot const seen = read(
      "[{'device': 0, 'address': 4096, 'stream': 0, 'blocks': [{'size': 512, 'state': 'inactive'}, "
      "{'size': 256, 'state': 'active_allocated'}]}]");
  REQUIRE(seen.segments.size() == 1);
  CHECK_FALSE(seen.segments[0].is_range);
  CHECK(seen.segments[0].blocks.at(1).address == 4608);
  CHECK(seen.segments[0].blocks.at(1).requested == 256);
}

TEST_CASE("a snapshot without segments has none, and one with too many is refused") {
  CHECK(read("[]").segments.empty());
  CHECK(read("5").segments.empty());
  std::string const bytes = pickled("[{'address': 4096, 'blocks': [{'size': 1}] * 100}]");
  detail::pickle const in(bytes);
  CHECK(detail::torch_segments(in, 101).segments.at(0).bytes == 100);
  CHECK_THROWS_AS(static_cast<void>(detail::torch_segments(in, 100)), damaged_pickle);
}

TEST_CASE("a segment of a device that no machine has is refused") {
  CHECK(read("[{'device': 4095}]").segments.at(0).device == 4095);
  CHECK_THROWS_WITH_AS(read("[{'device': 0}, {'device': 4096}]"),
                       doctest::Contains("a segment's device is 4096; no machine has so many"), damaged_pickle);
}
