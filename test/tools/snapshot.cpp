#include <weir/tools/snapshot.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <cstdint>
#include <string>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;

namespace {

std::uint64_t number_of(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }
/// The live block at an address; fails if there is none.
memory_block live_at(memory_snapshot const& all, void const* p) {
  for (memory_segment const& segment : all.segments)
    for (memory_block const& block : segment.blocks)
      if (block.address == number_of(p) && block.state == memory_state::live) return block;
  FAIL("no live block is shown there");
  return {};
}

template <class Memory>
void knows_who_holds_what(Memory& memory) {
  stream const a;
  void *p = nullptr, *q = nullptr;
  {
    tag const scope{"decoder"};
    p = memory.allocate(a, 1000);
  }
  q = memory.allocate(a, 2000);
  memory.deallocate(a, q, 2000);
  q = memory.allocate(host_order, 2000);
  memory_snapshot const now = snapshot(memory);
  CHECK(live_at(now, p).tag == "decoder");
  CHECK(live_at(now, p).stream == number_of(a.get()));
  CHECK(live_at(now, p).requested == 1000);
  CHECK(live_at(now, p).thread == detail::thread_id());
  CHECK(live_at(now, q).tag.empty());
  CHECK(live_at(now, q).stream == 0);
  CHECK(snapshot(any_ref(memory)).segments == now.segments);
  memory.deallocate(a, p, 1000);
  memory.deallocate(host_order, q, 2000);
}

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "segments come by address, and their blocks fill them") {
  stream const a;
  auto memory = make(device{} | pool{.growth_bytes = 2_MiB});
  CHECK(snapshot(memory).segments.empty());
  void* blocks[4] = {};
  for (void*& p : blocks) p = memory.allocate(a, 2_MiB);
  memory.deallocate(a, blocks[0], 2_MiB);
  memory_snapshot const now = snapshot(memory);
  REQUIRE(now.segments.size() == 4);
  CHECK(now.taken > 0);
  std::uint64_t last = 0, held = 0;
  for (memory_segment const& segment : now.segments) {
    CHECK(segment.address > last);
    last = segment.address;
    CHECK(segment.layer == "pool");
    CHECK(segment.device == 0);
    CHECK_FALSE(segment.is_range);
    std::uint64_t sum = 0;
    for (memory_block const& block : segment.blocks) sum += block.bytes;
    CHECK(sum == segment.bytes);
    held += sum;
  }
  CHECK(held == memory.numbers().reserved.current);
  for (int i = 1; i < 4; ++i) memory.deallocate(a, blocks[i], 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "tags, streams and threads of live blocks are those that tracking and trace know") {
  SUBCASE("tracking") {
    auto memory = make(device{} | pool{} | tracking{});
    knows_who_holds_what(memory);
  }
  SUBCASE("trace") {
    auto memory = make(device{} | pool{} | trace{});
    knows_who_holds_what(memory);
  }
  SUBCASE("without a pool: blocks are segments") {
    auto memory = make(device{} | tracking{});
    knows_who_holds_what(memory);
  }
}

TEST_CASE_FIXTURE(fresh_world, "what a trace below a pool saw is no holder of the pool's blocks") {
  stream const a;
  auto memory = make(device{} | trace{} | pool{.growth_bytes = 2_MiB});
  void* p = nullptr;
  {
    tag const scope{"who grew"};
    p = memory.allocate(a, 2_MiB);
  }
  memory.deallocate(a, p, 2_MiB);
  p = memory.allocate(a, 2_MiB);
  CHECK(live_at(snapshot(memory), p).tag.empty());
  memory.deallocate(a, p, 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "who took a pool's segment does not hold the pool's block that fills it") {
  stream const a;
  auto memory = make(device{} | tracking{} | pool{.growth_bytes = 2_MiB} | tracking{});
  void *first = nullptr, *second = nullptr;
  {
    tag const scope{"who grew"};
    first = memory.allocate(a, 2_MiB);
    memory.deallocate(a, first, 2_MiB);
  }
  {
    tag const scope{"who holds"};
    second = memory.allocate(a, 2_MiB);
  }
  REQUIRE(first == second);
  CHECK(live_at(snapshot(memory), second).tag == "who holds");
  CHECK(snapshot(memory).segments.size() == 1);
  memory.deallocate(a, second, 2_MiB);
  second = memory.allocate(a, 1_MiB);  // at the segment's end
  CHECK(live_at(snapshot(memory), second).tag.empty());
  memory.deallocate(a, second, 1_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "a growable range ends where its memory does") {
  stream const a;
  auto memory = make(virtual_memory{.chunk_bytes = 2_MiB} | pool{});
  void* const p = memory.allocate(a, 2_MiB);
  void* const q = memory.allocate(a, 2_MiB);
  memory.deallocate(a, p, 2_MiB);
  synchronize(memory);
  memory.trim();
  memory_snapshot const now = snapshot(memory);
  REQUIRE(now.segments.size() == 1);
  CHECK(now.segments[0].is_range);
  REQUIRE(now.segments[0].blocks.size() == 2);
  CHECK(now.segments[0].blocks[0].state == memory_state::unmapped);
  CHECK(now.segments[0].bytes == 4_MiB);
  memory.deallocate(a, q, 2_MiB);
  synchronize(memory);
  memory.trim();
  CHECK(snapshot(memory).segments.empty());
}
