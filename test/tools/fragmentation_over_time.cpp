#include <weir/tools/fragmentation_over_time.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using weir::trace_action;

namespace {

struct step {
  trace_action action;
  std::uint64_t address, bytes;
};
std::vector<weir::free_memory> series(std::vector<step> const& steps, std::size_t samples = 200) {
  weir::recorded_trace trace{.layers = {"trace"}};
  for (step const& s : steps) trace.events.push_back({.address = s.address, .bytes = s.bytes, .action = s.action});
  return weir::fragmentation_over_time(weir::timeline_of(trace), samples);
}

}  // namespace

TEST_CASE("free memory and its largest piece follow the blocks") {
  auto const s = series({{trace_action::grow, 65536, 4096},
                         {trace_action::allocate, 66560, 1000},  // takes 1,024, from 1,024 on
                         {trace_action::free, 66560, 1000},
                         {trace_action::trim, 65536, 4096}});
  REQUIRE(s.size() == 5);
  CHECK(s[0].reserved == 0);
  CHECK(s[1].free == 4096);
  CHECK(s[1].largest == 4096);
  CHECK(s[2].reserved == 4096);
  CHECK(s[2].free == 3072);
  CHECK(s[2].largest == 2048);
  CHECK(s[2].fragmentation() == doctest::Approx(1.0 / 3));
  CHECK(s[3].free == 4096);
  CHECK(s[4].reserved == 0);
  CHECK(s[4].fragmentation() == 0);
}

TEST_CASE("pieces of a range that touch are one, segments that touch are two") {
  auto const range = series({{trace_action::map, 65536, 4096}, {trace_action::map, 69632, 4096}});
  CHECK(range.back().largest == 8192);
  auto const segments = series({{trace_action::grow, 65536, 4096}, {trace_action::grow, 69632, 4096}});
  CHECK(segments.back().free == 8192);
  CHECK(segments.back().largest == 4096);
}

TEST_CASE("a long trace is looked at in a few places, the last one included") {
  std::vector<step> steps = {{trace_action::grow, 65536, 4096}};
  for (int i = 0; i < 500; ++i) {
    steps.push_back({trace_action::allocate, 65536, 256});
    steps.push_back({trace_action::free, 65536, 256});
  }
  auto const s = series(steps, 10);
  CHECK(s.size() == 11);
  CHECK(s.front().moment == 0);
  CHECK(s.back().moment == steps.size());
  CHECK(s.back().free == 4096);
}

TEST_CASE("where no segment is known, nothing is") {
  CHECK(series({{trace_action::allocate, 65536, 256}}).empty());
  CHECK(series({}).empty());
}
