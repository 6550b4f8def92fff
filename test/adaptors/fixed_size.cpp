// needs: tsan
#include <weir/adaptors/fixed_size.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using blocks = fixed_size_resource<source_resource>;
static_assert(resource<blocks>);
static_assert(device_accessible<blocks> && host_accessible<blocks> && host_ordered<blocks>);
static_assert(!host_accessible<fixed_size_resource<device_resource>>);

std::string refusal(fixed_size const& options) {
  source_state state;
  return message_of<std::invalid_argument>([&] { [[maybe_unused]] auto memory = make(source{&state} | options); });
}

}  // namespace

TEST_CASE("wrong options are refused with their values") {
  CHECK(contains(refusal({}), "block_bytes is 0 B; it must be 1 B to"));
  CHECK(contains(refusal({.block_bytes = SIZE_MAX}), "18446744073709551615"));
  CHECK(contains(refusal({.block_bytes = 1000, .max_bytes = 1000}), "at least a block, 1024 B"));
  CHECK(fixed_size{.block_bytes = 1000, .max_bytes = 1024}.valid());
  CHECK(fixed_size{.block_bytes = 1}.valid());
  CHECK_FALSE(fixed_size{}.valid());
}

TEST_CASE_FIXTURE(fresh_world, "a request of any size up to a block takes a whole block, and they follow each other") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 1000});
  CHECK(memory.block_bytes() == 1024);
  std::vector<std::byte*> got;
  std::size_t const sizes[] = {1, 256, 257, 1000, 1024};
  for (std::size_t const bytes : sizes) got.push_back(static_cast<std::byte*>(memory.allocate(host_order, bytes)));
  for (std::size_t i = 1; i < got.size(); ++i) CHECK(got[i - 1] - got[i] == 1024);  // from the chunk's end
  CHECK(memory.numbers().allocated.current == 5 * 1024);
  CHECK(memory.numbers().requested.current == 1 + 256 + 257 + 1000 + 1024);
  for (std::size_t i = 0; i < got.size(); ++i) memory.deallocate(host_order, got[i], sizes[i]);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE_FIXTURE(fresh_world, "chunks come when they are needed, each with room for so many blocks") {
  source_state state;
  {
    auto memory = make(source{&state} | fixed_size{.block_bytes = 1_MiB, .blocks_per_chunk = 4});
    CHECK(state.calls == 0);
    std::vector<void*> got;
    for (int i = 0; i < 4; ++i) got.push_back(memory.allocate(host_order, 1_MiB));
    CHECK(state.live_bytes == 4_MiB);
    got.push_back(memory.allocate(host_order, 1));
    CHECK(state.live_bytes == 8_MiB);
    for (std::size_t i = 0; i < 4; ++i) memory.deallocate(host_order, got[i], 1_MiB);
    memory.deallocate(host_order, got[4], 1);
    CHECK(state.live_bytes == 8_MiB);
    for (int i = 0; i < 100; ++i) memory.deallocate(host_order, memory.allocate(host_order, 7), 7);
    CHECK(memory.numbers().growths == 2);
  }
  CHECK(state.live_count == 0);
}

TEST_CASE_FIXTURE(fresh_world, "with no number of blocks given a chunk is what a pool grows by") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 4_KiB, .blocks_per_chunk = 0});
  memory.deallocate(host_order, memory.allocate(host_order, 1), 1);
  CHECK(state.live_bytes == 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "a number of blocks that no segment holds is cut down to what it can") {
  // The product of the last two wraps around to something small.
  for (std::size_t const blocks : {std::size_t{1} << 30, SIZE_MAX, std::size_t{1} << 44, (std::size_t{1} << 44) + 1}) {
    source_state state;
    auto memory =
        make(source{&state} | fixed_size{.block_bytes = 1_MiB, .blocks_per_chunk = blocks, .max_bytes = 5_MiB});
    void* const p = memory.allocate(host_order, 1);
    CHECK(state.live_bytes == 5_MiB);
    memory.deallocate(host_order, p, 1);
  }
}

TEST_CASE_FIXTURE(fresh_world, "where the upstream is short, a chunk is what can be had, down to one block") {
  sim::set_capacity(0, 5_MiB);
  auto memory = make(device{} | fixed_size{.block_bytes = 1_MiB});
  std::vector<void*> got;
  for (int i = 0; i < 5; ++i) got.push_back(memory.allocate(host_order, 1_MiB));
  CHECK_THROWS_AS(memory.allocate(host_order, 1_MiB), out_of_memory);
  CHECK(memory.numbers().out_of_memory == 1);
  for (void* p : got) memory.deallocate(host_order, p, 1_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "more than a block is refused and says so, and nothing is taken") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 64_KiB});
  for (std::size_t const bytes : {64_KiB + 1, std::size_t{1} << 50, SIZE_MAX}) {
    try {
      memory.allocate(host_order, bytes);
      FAIL("it was not refused");
    } catch (out_of_memory const& failure) {
      CHECK(failure.bytes() == bytes);
      CHECK(std::string(failure.refused_by()) == "fixed_size");
      CHECK(contains(failure.what(), "chain: fixed_size(64.00 KiB) > source"));
      CHECK(contains(failure.what(), "more than a block: blocks of 64.00 KiB"));
    }
  }
  CHECK(state.calls == 0);
  CHECK(memory.numbers().out_of_memory == 3);
}

TEST_CASE_FIXTURE(fresh_world, "the budget is never exceeded, and all of it can be used") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 1_MiB, .blocks_per_chunk = 4, .max_bytes = 6_MiB});
  std::vector<void*> got;
  for (int i = 0; i < 6; ++i) got.push_back(memory.allocate(host_order, 1_MiB));
  CHECK_THROWS_AS(memory.allocate(host_order, 1), out_of_memory);
  CHECK(state.peak_bytes == 6_MiB);
  memory.deallocate(host_order, got.back(), 1_MiB);
  got.back() = memory.allocate(host_order, 1_MiB);
  for (void* p : got) memory.deallocate(host_order, p, 1_MiB);
}

TEST_CASE_FIXTURE(fresh_world,
                  "a wrong size, alignment or pointer is reported, also where the size is within the block") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 64_KiB});
  void* const p = memory.allocate(host_order, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(host_order, p, 1001);
    CHECK(contains(misuse.last(), "weir: fixed_size: deallocate of"));
    CHECK(contains(misuse.last(), "it was allocated with 1000 B aligned to 256"));
    memory.deallocate(host_order, p, 64_KiB);
    memory.deallocate(host_order, p, 1000, 128);
    CHECK(misuse.count() == 3);
    memory.deallocate(host_order, static_cast<std::byte*>(p) + 256, 1000);
    CHECK(contains(misuse.last(), "no live block starts there"));
    int elsewhere = 0;
    memory.deallocate(host_order, &elsewhere, 1000);
    CHECK(contains(misuse.last(), "not this pool's memory"));
  }
  CHECK(memory.numbers().requested.current == 1000);
  memory.deallocate(host_order, p, 1000);
  caught_misuse const misuse;
  memory.deallocate(host_order, p, 1000);
  CHECK(misuse.count() == 1);
}

TEST_CASE_FIXTURE(fresh_world, "alignments above 256 are honoured, and bad ones refused") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 1280, .blocks_per_chunk = 64});
  std::vector<std::pair<void*, std::size_t>> got;
  for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2) {
    got.emplace_back(memory.allocate(host_order, 1280, alignment), alignment);
    std::memset(got.back().first, 1, 1280);
    CHECK(reinterpret_cast<std::uintptr_t>(got.back().first) % alignment == 0);
  }
  for (auto [p, alignment] : got) memory.deallocate(host_order, p, 1280, alignment);
  CHECK_THROWS_AS(memory.allocate(host_order, 1, 3), std::invalid_argument);
  memory.trim();
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(fresh_world, "zero bytes are nothing") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 256});
  CHECK(memory.allocate(host_order, 0) == nullptr);
  memory.deallocate(host_order, nullptr, 0);
  CHECK(state.calls == 0);
  CHECK(memory.numbers().allocations == 0);
}

TEST_CASE_FIXTURE(fresh_world, "on one stream a block is used again without any CUDA call") {
  auto memory = make(device{} | fixed_size{.block_bytes = 4_KiB});
  weir::stream const s;
  memory.deallocate(s, memory.allocate(s, 100), 100);
  sim::reset_counters();
  void* const p = memory.allocate(s, 100);
  memory.deallocate(s, p, 100);
  CHECK(memory.allocate(s, 4000) == p);
  memory.deallocate(s, p, 4000);
  CHECK(sim::calls() == 0);
}

TEST_CASE_FIXTURE(fresh_world, "a block whose work is not done goes to no other stream before that") {
  sim::set_mode(sim::mode::lazy);
  auto memory = make(device{} | fixed_size{.block_bytes = 1_MiB, .blocks_per_chunk = 1, .max_bytes = 2_MiB});
  weir::stream const a, b;
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(a, 1_MiB);
  cudaMemsetAsync(p, 1, 1_MiB, a.get());
  memory.deallocate(a, p, 1_MiB);
  void* const r = memory.allocate(b, 1_MiB);  // the only one left: b has to wait for a
  CHECK(r == p);
  CHECK(memory.numbers().waits == 1);
  CHECK(memory.numbers().synchronizations == 0);
  cudaMemsetAsync(r, 2, 1_MiB, b.get());
  b.synchronize();
  CHECK(*static_cast<unsigned char*>(r) == 2);
  sim::run_all();
  CHECK(*static_cast<unsigned char*>(r) == 2);
  memory.deallocate(a, q, 1_MiB);
  memory.deallocate(b, r, 1_MiB);
  memory.synchronize();
  CHECK(memory.trim() == 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "trim gives back idle chunks and keeps what it is told to") {
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 2_MiB, .blocks_per_chunk = 1});
  std::vector<void*> got;
  for (int i = 0; i < 4; ++i) got.push_back(memory.allocate(host_order, 1));
  for (std::size_t i = 1; i < 4; ++i) memory.deallocate(host_order, got[i], 1);
  CHECK(memory.trim(6_MiB) == 2_MiB);
  CHECK(memory.trim() == 4_MiB);
  CHECK(state.live_bytes == 2_MiB);
  memory.deallocate(host_order, got[0], 1);
}

TEST_CASE_FIXTURE(fresh_world, "with caching off every request goes through") {
  setenv("WEIR_NO_CACHING", "1", 1);
  source_state state;
  auto memory = make(source{&state} | fixed_size{.block_bytes = 64_KiB});
  unsetenv("WEIR_NO_CACHING");
  void* const p = memory.allocate(host_order, 1000);
  CHECK(state.live_bytes == 1000);
  CHECK_THROWS_AS(memory.allocate(host_order, 64_KiB + 1), out_of_memory);
  memory.deallocate(host_order, p, 1000);
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(fresh_world, "eight threads with a stream each never get the same block") {
  auto memory = make(device{} | fixed_size{.block_bytes = 4_KiB, .blocks_per_chunk = 16});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      weir::stream const s;
      std::vector<void*> mine;
      for (int i = 0; i < 500; ++i) {
        void* const p = memory.allocate(s, 4000);
        std::memset(p, t, 4000);
        mine.push_back(p);
        if (mine.size() < 4) continue;
        for (void* q : mine) {
          if (static_cast<unsigned char*>(q)[3999] != t) ++wrong;
          memory.deallocate(s, q, 4000);
        }
        mine.clear();
      }
      for (void* q : mine) memory.deallocate(s, q, 4000);
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(memory.numbers().allocated.current == 0);
  CHECK(memory.numbers().allocations == 4000);
}
