// Every adaptor keeps the laws, over several sources.
#include <conformance/facts_rise.hpp>
#include <conformance/resource_laws.hpp>

#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/spill.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/sources.hpp>

using namespace weir;
using laws::check_resource;
using laws::facts_rise;
using laws::mib;

namespace {

/// Runs the laws on an adaptor over each source.
template <class Adaptor>
void check_over_all_sources(Adaptor const& adaptor) {
  SUBCASE("async") { check_resource(async{} | adaptor); }
  SUBCASE("device") { check_resource(device{} | adaptor); }
  SUBCASE("managed") { check_resource(managed{} | adaptor); }
  SUBCASE("pinned") { check_resource(pinned{} | adaptor); }
  SUBCASE("host") { check_resource(host{} | adaptor); }
}

static_assert(facts_rise<aligned>);
static_assert(facts_rise<limit>);
static_assert(facts_rise<statistics>);
static_assert(facts_rise<logging>);
static_assert(facts_rise<pool>);
static_assert(facts_rise<prefetch>);
static_assert(facts_rise<scrub>);
static_assert(facts_rise<spill>);
static_assert(facts_rise<fallback<pinned>>);
static_assert(facts_rise<wait_for_memory>);
static_assert(facts_rise<on_failure>);

/// A reclaimer that says what it is told to say.
on_failure reclaiming(std::size_t gives) {
  return {{{"the same each time", [gives](memory_request const&) { return gives; }}}};
}
static_assert(facts_rise<trace>);
static_assert(facts_rise<tracking>);

}  // namespace

TEST_CASE("aligned keeps the laws") { check_over_all_sources(aligned{.alignment = 4096, .from_bytes = 2000}); }
TEST_CASE("limit keeps the laws") { check_over_all_sources(limit{.max_bytes = 60 * mib}); }
TEST_CASE("limit of a fraction keeps the laws") {
  check_resource(device{} | limit{.fraction = 0.9});
  check_resource(device{} | limit{.fraction_of_free = 0.9});
}
TEST_CASE("limit with a soft limit and a reserve keeps the laws") {
  check_resource(device{} | pool{} | limit{60 * mib} |
                 limit{.max_bytes = 60 * mib, .soft_bytes = 1 * mib, .reserve_bytes = 2 * mib});
}
TEST_CASE("statistics keeps the laws") { check_over_all_sources(statistics{}); }
TEST_CASE("statistics by tag keeps the laws") { check_over_all_sources(statistics{.by_tag = true}); }
TEST_CASE("logging keeps the laws") { check_over_all_sources(logging{.path = "/dev/null"}); }
TEST_CASE("logging of each line at once keeps the laws") {
  check_resource(device{} | logging{.path = "/dev/null", .buffer_bytes = 0});
}
TEST_CASE("trace keeps the laws") { check_over_all_sources(trace{.events = 10}); }
TEST_CASE("trace with call stacks keeps the laws") { check_resource(async{} | trace{.frames = 4}); }
TEST_CASE("tracking keeps the laws") { check_over_all_sources(tracking{}); }
TEST_CASE("tracking with call stacks keeps the laws") { check_resource(async{} | tracking{.frames = 4}); }
TEST_CASE("pool keeps the laws") { check_over_all_sources(pool{}); }
TEST_CASE("pool with memory taken at once and a limit keeps the laws") {
  check_resource(async{} | pool{.initial_bytes = 4 * mib, .max_bytes = 56 * mib});
}
TEST_CASE("pool with a fixed step keeps the laws") { check_resource(device{} | pool{.growth_bytes = 8 * mib}); }
TEST_CASE("pool with large blocks unsplit keeps the laws") {
  check_resource(device{} | pool{.max_split_bytes = 1 * mib});
}
TEST_CASE("pool that gives back early keeps the laws") {
  check_resource(device{} | pool{.release_threshold = 4 * mib});
}
TEST_CASE("pool that waits rather than grows keeps the laws") {
  check_resource(async{} | pool{.pending = when_pending::wait});
}
TEST_CASE("spill keeps the laws") {
  auto to = make(host{});
  check_over_all_sources(spill{.to = share(to)});
}
TEST_CASE("spill over a pool keeps the laws") {
  auto to = make(host{});
  check_resource(async{} | pool{.max_bytes = 56 * mib} | spill{.to = share(to)});
}
TEST_CASE("on_failure keeps the laws, whether reclaimers give nothing or say that they do") {
  SUBCASE("nothing") { check_over_all_sources(reclaiming(0)); }
  SUBCASE("what is not there") { check_over_all_sources(reclaiming(1)); }
}
TEST_CASE("fallback keeps the laws, whoever serves") {
  SUBCASE("the first") { check_over_all_sources(fallback{pinned{}}); }
  SUBCASE("the second") { check_resource(device{} | limit{256} | fallback{managed{}}); }
  SUBCASE("both, pools") {
    check_resource(device{} | pool{.max_bytes = 2 * mib} | fallback{managed{} | pool{.max_bytes = 60 * mib}});
  }
}
TEST_CASE("scrub keeps the laws") { check_over_all_sources(scrub{}); }
TEST_CASE("scrub of what is allocated keeps the laws") {
  check_over_all_sources(scrub{.on_free = false, .on_allocation = true});
}
TEST_CASE("scrub over a pool keeps the laws") { check_resource(async{} | pool{} | scrub{.on_allocation = true}); }
TEST_CASE("prefetch keeps the laws") {
  check_over_all_sources(prefetch{.preferred_location = true, .accessed_by = true, .read_mostly = true});
}
TEST_CASE("prefetch over a pool keeps the laws") { check_resource(managed{} | pool{} | prefetch{}); }
TEST_CASE("wait_for_memory keeps the laws") { check_over_all_sources(wait_for_memory{1}); }
