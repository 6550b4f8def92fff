#include <weir/pool/pool_refusal.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;
using namespace weir::detail;
using namespace weir::literals;

namespace {

pool_snapshot holding(std::size_t free, std::size_t pending, std::size_t captured, std::size_t largest) {
  pool_snapshot s;
  s.numbers.free = free;
  s.numbers.pending = pending;
  s.numbers.captured = captured;
  s.numbers.reserved.add(16_MiB);
  s.largest_free = largest;
  return s;
}
bool contains(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a bar has 64 cells, each for what most of its share is") {
  occupancy_bar bar(128);
  bar.add(60, memory_state::live);
  bar.add(2, memory_state::pending);
  bar.add(1000, memory_state::unmapped);
  bar.add(2, memory_state::captured);
  bar.add(64, memory_state::free);
  CHECK(bar.text() == "[" + std::string(30, '*') + "xc" + std::string(32, '_') + "]");
  occupancy_bar fine(64 * 10);  // cells of 10 bytes
  for (int i = 0; i < 64; ++i) {
    fine.add(4, memory_state::live);
    fine.add(6, memory_state::free);
  }
  CHECK(fine.text() == "[" + std::string(64, '_') + "]");
}

TEST_CASE("a bar of nothing is empty, one of a few bytes is short, and none is too long") {
  CHECK(occupancy_bar().text().empty());
  occupancy_bar few(3);
  few.add(3, memory_state::live);
  CHECK(few.text() == "[***]");
  occupancy_bar grown(64);  // the pool grew meanwhile
  grown.add(1000, memory_state::live);
  CHECK(grown.text() == "[" + std::string(64, '*') + "]");
}

TEST_CASE("what was tried is told with what it gave") {
  CHECK(tried_text({}).empty());
  CHECK(tried_text({.searched = true}) == "did not wait for freed blocks; no fit");
  CHECK(tried_text({.searched = true, .waited = true, .done = 3_MiB, .given_back = 1_MiB}) ==
        "waited for freed blocks: 3.00 MiB became free; gave 1.00 MiB back and asked for a segment again; no fit");
}

TEST_CASE("how much of what is free lies outside of the largest piece") {
  CHECK(outside_text(holding(1_MiB, 0, 0, 1_MiB)).empty());
  CHECK(outside_text(holding(750, 250, 0, 53)) == ", 94.7 % lies outside of it");
}

TEST_CASE("the hint is the first remedy that alone would have served the request") {
  auto const hint = [](pool_snapshot const& s, std::size_t max_bytes = 0, bool is_capturing = false) {
    return refusal_hint(s, 8_MiB, max_bytes, is_capturing);
  };
  CHECK(contains(hint(holding(8_MiB, 0, 0, 1_MiB)), "not in one piece"));
  CHECK(contains(hint(holding(4_MiB, 4_MiB, 0, 1_MiB)), "4.00 MiB was freed on streams whose work is not done"));
  CHECK(contains(hint(holding(4_MiB, 4_MiB, 0, 1_MiB), 0, true), "the stream is being captured"));
  for (bool const is_capturing : {false, true}) {
    CHECK(contains(refusal_hint(holding(4_MiB, 4_MiB, 0, 1_MiB), 8_MiB, 0, is_capturing, true), "capture is declared"));
    CHECK(!contains(refusal_hint(holding(4_MiB, 1_MiB, 0, 1_MiB), 8_MiB, 0, is_capturing, true), "is declared"));
  }
  CHECK(contains(hint(holding(4_MiB, 0, 4_MiB, 4_MiB)), "4.00 MiB is kept for captured graphs"));
  CHECK(contains(hint(holding(4_MiB, 0, 0, 4_MiB), 20_MiB), "not in one piece"));      // with 4 MiB that may be taken
  CHECK(contains(hint(holding(8_MiB, 0, 0, 4_MiB), 100_MiB), "not in one piece"));     // the upstream has no more
  CHECK(contains(hint(holding(8_MiB, 0, 0, 8_MiB)), "the layer below gave no more"));  // another thread's by now
  CHECK(contains(hint(holding(3_MiB, 0, 0, 3_MiB), 20_MiB), "raise max_bytes"));
  CHECK(contains(hint(holding(4_MiB, 0, 0, 4_MiB), 100_MiB), "the layer below gave no more"));
  CHECK(contains(hint(holding(4_MiB, 0, 0, 4_MiB)), "the layer below gave no more"));
  CHECK(contains(hint(holding(0, 0, 0, 0), 4_MiB), "larger than the pool may ever be (at most 4.00 MiB)"));
  CHECK(contains(refusal_hint(holding(0, 0, 0, 0), 0, 0, false), "no pool serves a request of that size"));
  CHECK(contains(refusal_hint(holding(0, 0, 0, 0), 8_MiB, 1, false), "less than a chunk"));
  pool_snapshot in_range = holding(4_MiB, 0, 0, 4_MiB);
  in_range.numbers.allocated.add(12_MiB);
  in_range.range_bytes = 20_MiB;
  CHECK(contains(hint(in_range), "the layer below gave no more"));
  in_range.range_bytes = 18_MiB;
  CHECK(contains(hint(in_range), "raise range_bytes"));
  pool_snapshot parked = holding(8_MiB, 0, 0, 8_MiB);
  parked.is_parked = true;
  CHECK(contains(hint(parked), "unpark()"));
}
