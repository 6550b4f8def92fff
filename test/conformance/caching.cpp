// The adaptors that keep memory keep the laws: arena, binning, and fixed_size as far as its one size allows. The same
// where they grow in place.
#include <conformance/facts_rise.hpp>
#include <conformance/resource_laws.hpp>

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/sources.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <memory>
#include <string>
#include <type_traits>

using namespace weir;
using laws::check_resource;
using laws::facts_rise;
using laws::kib;
using laws::mib;

namespace {

static_assert(facts_rise<arena>);
static_assert(facts_rise<binning>);
static_assert(facts_rise<fixed_size>);

// Small chunks: the laws give 64 MiB to all bins together.
binning const bins{{bin{4 * kib, fixed_size{.block_bytes = 4 * kib, .blocks_per_chunk = 512}},
                    bin{128 * kib, fixed_size{.block_bytes = 128 * kib, .blocks_per_chunk = 16}},
                    bin{1 * mib, pool{}}}};

}  // namespace

TEST_CASE("arena keeps the laws") {
  SUBCASE("async") { check_resource(async{} | arena{}); }
  SUBCASE("device") { check_resource(device{} | arena{}); }
  SUBCASE("managed") { check_resource(managed{} | arena{}); }
  SUBCASE("pinned") { check_resource(pinned{} | arena{}); }
  SUBCASE("host") { check_resource(host{} | arena{}); }
}
TEST_CASE("arena with a budget keeps the laws") { check_resource(device{} | arena{.max_bytes = 60 * mib}); }
TEST_CASE("arena for each stream keeps the laws") { check_resource(device{} | arena{.per = arena::owner::stream}); }
TEST_CASE("pool that grows in place keeps the laws") { check_resource(virtual_memory{} | pool{}, 512 * mib); }
TEST_CASE("pool that grows in place through other layers keeps the laws") {
  check_resource(virtual_memory{} | limit{512 * mib} | statistics{.by_tag = true} | tracking{} |
                     limit{.max_bytes = 512 * mib, .reserve_bytes = 4 * mib} | logging{.path = "/dev/null"} | pool{},
                 512 * mib);
}
TEST_CASE("pool that grows in place on scrubbed memory keeps the laws") {
  check_resource(virtual_memory{} | scrub{.on_allocation = true} | pool{.move_pending = true}, 512 * mib);
}
TEST_CASE("arena that grows in place keeps the laws") { check_resource(virtual_memory{} | arena{}, 512 * mib); }
TEST_CASE("arena with one for all keeps the laws") { check_resource(async{} | arena{.max_arenas = 1}); }

TEST_CASE("binning keeps the laws") {
  SUBCASE("async") { check_resource(async{} | bins); }
  SUBCASE("device") { check_resource(device{} | bins); }
  SUBCASE("managed") { check_resource(managed{} | bins); }
  SUBCASE("pinned") { check_resource(pinned{} | bins); }
  SUBCASE("host") { check_resource(host{} | bins); }
}
TEST_CASE("binning of powers of two keeps the laws") { check_resource(device{} | binning::powers_of_two(8, 20)); }
TEST_CASE("binning of stacks on a pool keeps the laws") {
  check_resource(async{} | pool{} |
                 binning{{bin{64 * kib, pool{}}, bin{1 * mib, [](auto up) { return up | pool{} | limit{50 * mib}; }}}});
}

TEST_CASE("fixed_size keeps the laws about sizes up to a block") {
  auto const check = [](void (*law)(laws::maker const&, laws::findings&), std::size_t block_bytes) {
    for (std::size_t const blocks : {4U, 16U}) {
      laws::findings found;
      auto const recipe = device{} | fixed_size{.block_bytes = block_bytes, .blocks_per_chunk = blocks};
      law([&] { return std::make_unique<laws::subject_of<made_by<decltype(recipe)>>>(recipe); }, found);
      CHECK(found.list().empty());
      for (std::string const& what : found.list()) FAIL_CHECK(what);
    }
  };
  check(laws::facts_law, 1000);
  check(laws::alignment_law, 70'000);
  check(laws::no_overlap_law, 512 * kib);
  check(laws::zero_bytes_law, 1000);
  check(laws::reuse_law, mib);
  check(laws::stream_order_law, 300 * kib);
  check(laws::dead_streams_law, mib);
  check(laws::overflow_law, mib);
}
