#include <weir/adaptors/bin.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>

#include <doctest/doctest.h>

#include <type_traits>

#include "test_source.hpp"

using namespace weir;
using namespace weir::test;

static_assert(std::is_copy_constructible_v<bin> && std::is_copy_assignable_v<bin>);

TEST_CASE("a bin is a value: copies make resources of their own") {
  source_state first_state, second_state;
  bin const original{64_KiB, pool{}};
  binning const options{.bins = {original}};
  binning const copy = options;
  auto first = make(source{&first_state} | options);
  auto second = make(source{&second_state} | copy);
  void* const p = first.allocate(host_order, 1);
  CHECK(first_state.live_count == 1);
  CHECK(second_state.live_count == 0);
  first.deallocate(host_order, p, 1);
  CHECK(original.bytes() == 64_KiB);
}

TEST_CASE("by default a bin has chunks of at most 64 MiB, of 128 blocks, or of one block") {
  auto const chunk = [](std::size_t bytes) {
    source_state state;
    auto memory = make(source{&state} | binning{.bins = {bin{bytes}}});
    memory.deallocate(host_order, memory.allocate(host_order, bytes), bytes);
    return state.live_bytes.load();
  };
  CHECK(chunk(64_KiB) == 8_MiB);
  CHECK(chunk(1_MiB) == 64_MiB);
  CHECK(chunk(6_MiB) == 60_MiB);
  CHECK(chunk(100_MiB) == 100_MiB);
}

TEST_CASE("the layer that keeps memory is found from the outside, and not beyond a reference") {
  source_state state;
  auto base = make(source{&state} | pool{});
  auto tenant = make(share(base) | limit{1_MiB});
  static_assert(std::is_null_pointer_v<decltype(detail::keeper(tenant))>);  // the pool is someone else's
  auto own = make(source{&state} | fixed_size{.block_bytes = 1_MiB} | pool{} | limit{1_MiB});
  CHECK(detail::keeper(own) == &find<pool_resource>(own));
  auto nested = make(source{&state} | binning{.bins = {bin{64_KiB, binning{.bins = {bin{4_KiB}}}}}});
  CHECK(detail::keeper(nested) == &nested);
  nested.deallocate(host_order, nested.allocate(host_order, 1), 1);
  CHECK(nested.reserved() == 2_MiB);
  CHECK(nested.trim() == 2_MiB);
}
