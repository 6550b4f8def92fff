#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_resource.hpp>

#include <doctest/doctest.h>

#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::limit_below;

TEST_CASE("the first limit is found, through layers that pass requests on and through erased types") {
  source_state state;
  auto memory = make(source{&state} | limit{8_KiB} | limit{4_KiB} | statistics{});
  CHECK(limit_below(memory).layer() == &find<limit_resource>(memory));
  auto shared = share(memory);
  CHECK(limit_below(shared).layer() == &find<limit_resource>(memory));
  any_ref erased(memory);
  CHECK(limit_below(erased).layer() == &find<limit_resource>(memory));
}

TEST_CASE("no limit is found behind a layer that makes other requests of those that it gets") {
  source_state state;
  auto none = make(source{&state} | statistics{});
  CHECK_FALSE(limit_below(none));
  CHECK(limit_below(none).layer() == nullptr);
  auto pooled = make(source{&state} | limit{64_MiB} | pool{} | statistics{});
  CHECK_FALSE(limit_below(pooled));
  auto bins = make(source{&state} | limit{64_MiB} | binning::powers_of_two(8, 10));
  CHECK_FALSE(limit_below(bins));
}

TEST_CASE("it is charged ahead and credited") {
  source_state state;
  auto memory = make(source{&state} | limit{4_KiB});
  limit_below const below(memory);
  below.reserve(1_KiB, 256, "search: limit");
  CHECK(memory.used() == 1_KiB);
  CHECK_THROWS_AS(below.reserve(4_KiB, 256, "search: limit"), out_of_memory);
  CHECK_THROWS_AS(below.reserve(1_KiB, 512, "search: limit"), std::invalid_argument);
  below.release(1_KiB);
  CHECK(memory.used() == 0);
}
