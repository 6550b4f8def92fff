// What pools show of their memory: `tools/snapshot.hpp` makes values of it.
#include <weir/core/shown_memory.hpp>

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/sim_fixture.hpp>

#include <string>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;
using weir::test::lazy_world;

namespace {

/// `[live:1000/1024 free:2048]`, a bracket for each segment.
struct writer final : detail::memory_visitor {
  void see(detail::shown_block const& b) override {
    if (b.begins_segment) text += text.empty() ? "[" : "] [";
    if (!b.begins_segment) {
      CHECK(b.address == end);  // without a gap
      text += " ";
    }
    constexpr char const* names[] = {"live", "free", "pending", "captured", "unmapped"};
    text += names[static_cast<int>(b.state)];
    text += ":" + (b.requested == 0 ? "" : std::to_string(b.requested) + "/");
    text += b.state == memory_state::unmapped ? "..." : std::to_string(b.bytes >> 10) + "K";
    if (b.stream != 0) stream = b.stream;
    end = b.address + b.bytes;
  }
  void see(detail::shown_holder const&) override { FAIL("a pool knows no holders"); }

  std::string text;
  std::uint64_t stream = 0;
  std::uintptr_t end = 0;
};
template <class Memory>
writer shown(Memory& memory) {
  writer out;
  layer_ref(memory).show_memory(out);
  if (!out.text.empty()) out.text += "]";
  return out;
}

}  // namespace

TEST_CASE_FIXTURE(lazy_world, "a pool shows live, pending and free blocks of each segment") {
  stream const a;
  auto memory = make(device{} | pool{.growth_bytes = 2_MiB});
  CHECK(shown(memory).text.empty());
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(a, 300'000);
  void* const r = memory.allocate(a, 2_MiB);
  CHECK(shown(memory).text == "[free:704K live:300000/320K live:1048576/1024K] [live:2097152/2048K]");
  REQUIRE(cudaMemsetAsync(p, 0, 1_MiB, a.get()) == cudaSuccess);
  memory.deallocate(a, p, 1_MiB);
  CHECK(shown(memory).text == "[free:704K live:300000/320K pending:1024K] [live:2097152/2048K]");
  CHECK(shown(memory).stream == reinterpret_cast<std::uintptr_t>(a.get()));
  synchronize(memory);
  memory.deallocate(a, q, 300'000);
  synchronize(memory);
  CHECK(shown(memory).text == "[free:2048K] [live:2097152/2048K]");
  memory.deallocate(a, r, 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "what is kept for a graph is shown as captured") {
  stream const a;
  auto memory = make(device{} | pool{.growth_bytes = 2_MiB});
  capture_scope const capturing;
  test::begin_capture(a);
  memory.deallocate(a, memory.allocate(a, 1_MiB), 1_MiB);
  test::captured_graph const graph(a);
  CHECK(shown(memory).text == "[free:1024K captured:1024K]");
}

TEST_CASE_FIXTURE(fresh_world, "a growable range shows its addresses without memory") {
  stream const a;
  auto memory = make(virtual_memory{.chunk_bytes = 2_MiB} | pool{});
  CHECK(shown(memory).text.empty());
  void* const p = memory.allocate(a, 2_MiB);
  void* const wall = memory.allocate(a, 2_MiB);
  CHECK(shown(memory).text == "[live:2097152/2048K live:2097152/2048K unmapped:...]");
  memory.deallocate(a, p, 2_MiB);
  synchronize(memory);
  memory.trim();
  CHECK(shown(memory).text == "[unmapped:... live:2097152/2048K unmapped:...]");
  memory.deallocate(a, wall, 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "arenas and blocks of one size show theirs") {
  stream const a;
  auto arenas = make(device{} | arena{.growth_bytes = 2_MiB});
  void* const p = arenas.allocate(a, 2_MiB);
  CHECK(shown(arenas).text == "[live:2097152/2048K]");
  arenas.deallocate(a, p, 2_MiB);
  auto blocks = make(device{} | fixed_size{.block_bytes = 1_MiB, .blocks_per_chunk = 2});
  void* const q = blocks.allocate(a, 10);
  CHECK(shown(blocks).text == "[free:1024K live:10/1024K]");
  blocks.deallocate(a, q, 10);
}
