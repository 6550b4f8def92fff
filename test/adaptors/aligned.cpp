#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>
#include <support/test_source.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::test;

namespace {

using request = std::pair<std::size_t, std::size_t>;  // bytes, alignment

/// Writes down what it is asked for.
struct recording_resource {
  std::vector<request>* allocated;
  std::vector<request>* freed;

  void* allocate(stream_ref, std::size_t bytes, std::size_t alignment) {
    allocated->emplace_back(bytes, alignment);
    return this;
  }
  void deallocate(stream_ref, void*, std::size_t bytes, std::size_t alignment) noexcept {
    freed->emplace_back(bytes, alignment);
  }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return bytes + alignment; }
};

bool is_aligned(void* p, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(p) % alignment == 0; }

}  // namespace

TEST_CASE("the upstream is asked for the larger of both alignments, from a size on, and at the free as well") {
  std::vector<request> allocated, freed;
  auto const recording = [&] { return recording_resource{&allocated, &freed}; };
  auto memory = make(recording | aligned{.alignment = 4096, .from_bytes = 1000});
  std::vector<request> const asked{{999, 256}, {1000, 256}, {1000, 8}, {5000, 4096}, {5000, 65536}};
  for (auto const& [bytes, alignment] : asked)
    memory.deallocate(stream_ref(), memory.allocate(stream_ref(), bytes, alignment), bytes, alignment);
  std::vector<request> const passed{{999, 256}, {1000, 4096}, {1000, 4096}, {5000, 4096}, {5000, 65536}};
  CHECK(allocated == passed);
  CHECK(freed == passed);
}

TEST_CASE("what a request takes is what the upstream takes for the raised alignment") {
  std::vector<request> allocated, freed;
  auto const recording = [&] { return recording_resource{&allocated, &freed}; };
  auto const memory = make(recording | aligned{.alignment = 4096, .from_bytes = 1000});
  CHECK(taken(memory, 999) == 999 + 256);
  CHECK(taken(memory, 1000) == 1000 + 4096);
  CHECK(taken(memory, 1000, 8192) == 1000 + 8192);
}

TEST_CASE("a budget above pays for the room to move in over a source, and for nothing over a pool") {
  fresh_world const world;
  auto bare = make(device{} | aligned{.alignment = 4096} | limit{.max_bytes = 1_MiB});
  void* const p = bare.allocate(host_order, 4096);
  CHECK(is_aligned(p, 4096));
  CHECK(bare.used() == 4096 + (4096 - 256));
  bare.deallocate(host_order, p, 4096);
  CHECK(bare.used() == 0);
  auto pooled = make(device{} | pool{} | aligned{.alignment = 4096} | limit{.max_bytes = 1_MiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) {
    blocks.push_back(pooled.allocate(host_order, 300));
    CHECK(is_aligned(blocks.back(), 4096));
  }
  CHECK(pooled.used() == 10 * 512);
  for (void* const block : blocks) pooled.deallocate(host_order, block, 300);
}

TEST_CASE("an alignment that no resource honours is still refused") {
  fresh_world const world;
  auto memory = make(device{} | aligned{.alignment = 4096});
  for (std::size_t const wrong : {std::size_t{0}, std::size_t{3}, std::size_t{300}, 2 * max_alignment})
    CHECK_THROWS_AS(memory.allocate(host_order, 1000, wrong), std::invalid_argument);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("zero bytes are nothing") {
  source_state state;
  auto memory = make(source{&state} | aligned{});
  CHECK(memory.allocate(stream_ref(), 0) == nullptr);
  memory.deallocate(stream_ref(), nullptr, 0);
  CHECK(state.calls == 0);
}

TEST_CASE("what the upstream throws passes through, with a line of this layer") {
  source_state state;
  auto memory = make(source{&state} | aligned{.alignment = 4096, .from_bytes = 64_KiB});
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(stream_ref(), 1000); });
  CHECK(contains(what, "refused by source; chain: aligned(4.00 KiB) > source"));
  CHECK(contains(what, "to 4.00 KiB, requests from 64.00 KiB on"));
  state.fail = failing::null;
  CHECK(contains(message_of<out_of_memory>([&] { memory.allocate(stream_ref(), 1000); }),
                 "refused by a resource that returned null"));
}

TEST_CASE("an alignment must be one that resources honour") {
  auto const said = [](std::size_t alignment) {
    return "aligned: alignment is " + std::to_string(alignment) + " B; it must be a power of two, 256 B to 2 MiB";
  };
  CHECK(aligned{.alignment = 128}.problem() == said(128));
  CHECK(aligned{.alignment = 3000}.problem() == said(3000));
  CHECK(!aligned{.alignment = 2 * max_alignment}.valid());
  CHECK(aligned{.alignment = 256}.valid());
  CHECK(aligned{.alignment = max_alignment}.valid());
  CHECK_THROWS_AS(static_cast<void>(make(host{} | aligned{.alignment = 1})), std::invalid_argument);
}
