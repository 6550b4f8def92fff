#include <weir/tools/memory_snapshot.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;

TEST_CASE("each state has its word, and a snapshot is a plain value") {
  CHECK(std::string(name_of(memory_state::live)) == "live");
  CHECK(std::string(name_of(memory_state::pending)) == "pending");
  CHECK(std::string(name_of(memory_state::unmapped)) == "unmapped");
  memory_snapshot const one{.taken = 1, .segments = {{.address = 4096, .bytes = 256}}};
  memory_snapshot other = one;
  CHECK(other == one);
  other.segments[0].blocks.push_back({.bytes = 256});
  CHECK(other != one);
}
