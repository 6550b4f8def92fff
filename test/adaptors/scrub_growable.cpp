// `scrub` between a pool and the growable memory that it stands on: no chunk goes on with what was in it, and no chunk
// that is in use is zeroed.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "support/sim_fixture.hpp"
#include "support/test_growable.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = std::size_t{2} << 20;

/// The simulated runtime's memory is the host's.
std::size_t count_of(void const* p, std::size_t bytes, unsigned char value) {
  auto const* const begin = static_cast<unsigned char const*>(p);
  return static_cast<std::size_t>(std::count(begin, begin + bytes, value));
}
std::byte* at(address_range range, std::size_t chunks) { return static_cast<std::byte*>(range.begin) + chunks * chunk; }

}  // namespace

TEST_CASE("what a pool gives back is zero for who has the chunk next") {
  for (bool const scrubs : {false, true}) {
    CAPTURE(scrubs);
    fresh_world const world(sim::mode::lazy);
    auto pages = make(virtual_memory{.max_bytes = 4 * chunk});
    auto scrubbing = make(share(pages) | scrub{.on_free = scrubs, .on_allocation = !scrubs});
    auto mine = make(share(scrubbing) | pool{});
    auto yours = make(share(pages) | pool{});
    stream const work;
    void* const secret = mine.allocate(work, 3 * chunk);
    cudaMemsetAsync(secret, 42, 3 * chunk, work.get());
    mine.deallocate(work, secret, 3 * chunk);
    mine.synchronize();
    void* const found = yours.allocate(work, 4 * chunk);
    CHECK(count_of(found, 4 * chunk, 42) == (scrubs ? 0 : 3 * chunk));
    yours.deallocate(work, found, 4 * chunk);
  }
}

TEST_CASE("what a pool takes is zero, whatever was in the chunk before") {
  for (bool const scrubs : {false, true}) {
    CAPTURE(scrubs);
    fresh_world const world;
    auto pages = make(virtual_memory{.max_bytes = 4 * chunk});
    void* const old = pages.allocate(host_order, 4 * chunk);
    std::memset(old, 42, 4 * chunk);
    pages.deallocate(host_order, old, 4 * chunk);
    auto memory = make(share(pages) | scrub{.on_free = !scrubs, .on_allocation = scrubs} | pool{});
    void* const p = memory.allocate(host_order, 4 * chunk);
    CHECK(count_of(p, 4 * chunk, 42) == (scrubs ? 0 : 4 * chunk));
    memory.deallocate(host_order, p, 4 * chunk);
  }
}

TEST_CASE("a chunk that is shown elsewhere too is not zeroed before the last address that shows it goes") {
  fresh_world const world;
  auto pages = make(virtual_memory{});
  auto memory = make(share(pages) | scrub{});
  address_range const range = memory.reserve_range(8 * chunk);
  REQUIRE(memory.map(range.begin, 3 * chunk));
  std::memset(range.begin, 42, 3 * chunk);
  REQUIRE(memory.alias(at(range, 5), at(range, 1), chunk));
  REQUIRE(memory.alias(at(range, 6), at(range, 5), chunk));  // a view of a view
  CHECK(memory.unmap(range.begin, 3 * chunk));               // two go, the one between them stays
  CHECK(count_of(at(range, 5), chunk, 42) == chunk);
  CHECK(memory.unmap(at(range, 5), chunk));
  CHECK(count_of(at(range, 6), chunk, 42) == chunk);
  CHECK(memory.unmap(at(range, 6), chunk));
  REQUIRE(pages.map(range.begin, 3 * chunk));  // the same three
  CHECK(pages.numbers().reserved.current == 3 * chunk);
  CHECK(count_of(range.begin, 3 * chunk, 0) == 3 * chunk);
  memory.release_range(range);
}

TEST_CASE("a pool that moves what is pending over scrubbed memory keeps what is written at the new place") {
  fresh_world const world(sim::mode::lazy);
  auto memory = make(virtual_memory{.max_bytes = 4 * chunk} | scrub{} | pool{.max_waste = 0, .move_pending = true});
  stream const work;
  void* blocks[4];
  for (void*& p : blocks) p = memory.allocate(work, chunk);
  for (int i : {0, 2}) memory.deallocate(work, blocks[i], chunk);
  void* const large = memory.allocate(work, 2 * chunk);
  CHECK(memory.numbers().moved != 0);
  cudaMemsetAsync(large, 42, 2 * chunk, work.get());
  work.synchronize();
  memory.trim();  // the old views go
  CHECK(count_of(large, 2 * chunk, 42) == 2 * chunk);
  memory.deallocate(work, large, 2 * chunk);
  for (int i : {1, 3}) memory.deallocate(work, blocks[i], chunk);
}

TEST_CASE("memory that cannot be zeroed is neither mapped nor handed on") {
  fresh_world const world;
  auto pages = make(virtual_memory{});
  auto memory = make(share(pages) | scrub{.on_free = true, .on_allocation = true});
  address_range const range = memory.reserve_range(4 * chunk);
  REQUIRE(memory.map(range.begin, 2 * chunk));
  auto const fail_both_attempts = [] {
    sim::fail_call("cudaMemsetAsync", 1, cudaErrorUnknown);
    sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  };
  fail_both_attempts();
  CHECK_FALSE(memory.unmap(range.begin, 2 * chunk));
  CHECK(pages.numbers().allocated.current == 2 * chunk);
  fail_both_attempts();
  CHECK_THROWS_AS(memory.map(at(range, 2), chunk), cuda_error);
  CHECK(pages.numbers().allocated.current == 2 * chunk);
  CHECK(memory.map(at(range, 2), chunk));
  CHECK(memory.unmap(range.begin, 3 * chunk));
  CHECK(memory.kept_bytes() == 0);
  memory.release_range(range);
}

TEST_CASE("a view that could not be made, or not be taken away, is no view") {
  test_growable below;  // which refuses every view
  auto memory = make(share(below) | scrub{});
  address_range const range = memory.reserve_range(4 * chunk);
  REQUIRE(memory.map(range.begin, chunk));
  CHECK_FALSE(memory.alias(at(range, 1), range.begin, chunk));
  std::memset(range.begin, 42, chunk);
  below.refuse_unmap = true;
  CHECK_FALSE(memory.unmap(range.begin, chunk));
  CHECK(count_of(range.begin, chunk, 0) == chunk);  // as if it were the only one
  below.refuse_unmap = false;
  CHECK(memory.unmap(range.begin, chunk));
  memory.release_range(range);
}
