#include <weir/core/any_growable.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::any_growable;

namespace {

static_assert(recipe<any_growable> && has_tenants<any_growable>);
static_assert(device_accessible<any_growable> && !host_accessible<any_growable> && host_ordered<any_growable>);

constexpr std::size_t chunk = std::size_t{2} << 20;

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "a pool grows in place on a stack whose type is forgotten, and two share it") {
  any_growable const pages(virtual_memory{.max_bytes = 6 * chunk} | limit{5 * chunk});
  auto kept = make(pages | pool{.min_bytes = chunk, .name = "kept"});
  auto other = make(pages | pool{.name = "other"});
  stream const work;
  void* blocks[5];
  for (void*& p : blocks) p = other.allocate(work, chunk);
  for (int i : {0, 2, 4}) other.deallocate(work, blocks[i], chunk);
  void* const large = other.allocate(work, 3 * chunk);
  CHECK(other.numbers().moved >= 2 * chunk);
  CHECK(find_limit(other).used() == 5 * chunk);
  CHECK(contains(report_of(other).chain(), "pool > limit(10.00 MiB) > virtual_memory(0)"));
  CHECK(contains(report_of(other).lines(), "kept: holds 0 B, 0 B of it in use, at least 2.00 MiB"));
  CHECK(weir::device_of(other) == 0);
  other.deallocate(work, large, 3 * chunk);
  for (int i : {1, 3}) other.deallocate(work, blocks[i], chunk);
  other.synchronize();
  CHECK(other.trim() == 5 * chunk);
  CHECK(find_limit(kept).used() == 0);
  CHECK(weir::numbers(kept).back().reserved == 0);  // the source's: it gave all to the device
}

TEST_CASE_FIXTURE(fresh_world, "without a pool it is a resource like its source, and copies are one") {
  any_growable memory(virtual_memory{} | limit{4 * chunk});
  any_growable const copy = memory;
  stream const work;
  void* const p = memory.allocate(work, 1000);
  CHECK(copy.taken(1000, 256) == chunk);
  copy.deallocate(work, p, 1000);
  void* const q = copy.allocate(work, 1000);
  memory.deallocate_after(work, q, 1000, {host_order});
  CHECK(find_limit(memory).used() == 0);
  address_range const range = memory.reserve_range(4 * chunk);
  CHECK(range.bytes == 4 * chunk);
  CHECK(memory.map(range.begin, chunk));
  CHECK(memory.alias(static_cast<std::byte*>(range.begin) + chunk, range.begin, chunk));
  CHECK(find_limit(memory).used() == 2 * chunk);  // a view counts as what it shows
  CHECK(memory.unmap(range.begin, 2 * chunk));
  CHECK(find_limit(memory).used() == 0);
  memory.release_range(range);
}

TEST_CASE_FIXTURE(fresh_world, "one that was moved from still has the stack, as a copy") {
  any_growable memory(virtual_memory{});
  any_growable const taken = std::move(memory);
  CHECK(taken == memory);
  CHECK(memory.chunk_bytes() == chunk);
  stream const work;
  memory.deallocate(work, taken.allocate(work, 1000), 1000);
  CHECK(weir::numbers(memory).back().reserved == chunk);
}

TEST_CASE_FIXTURE(fresh_world, "what may not move stays so") {
  CHECK(chunks_may_move(any_growable(virtual_memory{} | limit{chunk})));
  CHECK_FALSE(chunks_may_move(any_growable(virtual_memory{.movable = false} | limit{chunk})));
}
