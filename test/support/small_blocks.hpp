#pragma once
// A pool on memory that is counted, for tests of what streams have at hand: its books are looked at after each call.

#include <weir/core/shown_memory.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/pool/caching_allocator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

namespace weir::test {

/// A pool, two streams that do not end, and one that may.
struct small_blocks {
  lazy_world const world;
  source_state state;
  source_resource upstream{state};
  weir::stream const a, b;
  destroyable_stream const mortal;
  detail::caching_allocator<source_resource> memory;

  explicit small_blocks(pool const& options = {.growth_bytes = 2_MiB}) : memory(upstream, options, 0) {}

  void* take(stream_ref stream, std::size_t bytes = 1024) {
    void* const p = memory.allocate(stream, bytes, 256, detail::pool_effort::all);
    check_books();
    return p;
  }
  std::vector<void*> take(stream_ref stream, std::size_t bytes, std::size_t count) {
    std::vector<void*> blocks(count);
    for (void*& p : blocks) REQUIRE((p = memory.allocate(stream, bytes, 256, detail::pool_effort::all)) != nullptr);
    check_books();
    return blocks;
  }
  /// Until there is no more.
  std::vector<void*> take_all(stream_ref stream, std::size_t bytes = 1024) {
    std::vector<void*> blocks;
    while (void* const p = memory.allocate(stream, bytes, 256, detail::pool_effort::all)) blocks.push_back(p);
    check_books();
    return blocks;
  }
  void give(stream_ref stream, void* p, std::size_t bytes = 1024) {
    REQUIRE(memory.deallocate(stream, p, bytes, 256));
    check_books();
  }
  void give(stream_ref stream, std::vector<void*> const& blocks, std::size_t bytes = 1024) {
    for (void* const p : blocks) REQUIRE(memory.deallocate(stream, p, bytes, 256));
    check_books();
  }
  /// Queues work, so that what is freed there now is not done.
  static void work(stream_ref stream) {
    REQUIRE(cudaLaunchHostFunc(
                stream.get(), [](void*) {}, nullptr) == cudaSuccess);
  }
  static void finish(stream_ref stream) { REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess); }
  /// Asks CUDA what is done, and gives nothing back.
  void look() { memory.trim(~std::size_t{0}); }
  /// True if the stream gets a block among its next ones; they are freed again.
  bool gets(stream_ref stream, void* wanted, std::size_t bytes = 1024, std::size_t count = 200) {
    std::vector<void*> const blocks = take(stream, bytes, count);
    give(stream, blocks, bytes);
    return std::find(blocks.begin(), blocks.end(), wanted) != blocks.end();
  }

  /// What the pool counts is what it shows, piece by piece, and pieces fill their segments.
  void check_books() const {
    struct : detail::memory_visitor {
      std::size_t bytes[5] = {}, requested = 0, live = 0, segments = 0, gaps = 0;
      std::uintptr_t end = 0;
      void see(detail::shown_block const& piece) override {
        bytes[static_cast<int>(piece.state)] += piece.bytes;
        requested += piece.requested;
        live += piece.state == memory_state::live;
        segments += piece.begins_segment;
        gaps += !piece.begins_segment && piece.address != end;
        end = piece.address + piece.bytes;
      }
      void see(detail::shown_holder const&) override {}
    } shown;
    memory.show_memory(shown);
    pool_numbers const n = memory.numbers();
    auto const of = [&](memory_state s) { return shown.bytes[static_cast<int>(s)]; };
    CHECK(of(memory_state::live) == n.allocated.current);
    CHECK(of(memory_state::free) == n.free);
    CHECK(of(memory_state::pending) == n.pending);
    CHECK(of(memory_state::captured) == n.captured);
    CHECK(n.reserved.current == n.allocated.current + n.free + n.pending + n.captured);
    CHECK(n.reserved.current == state.live_bytes);
    CHECK(shown.requested == n.requested.current);
    CHECK(shown.live == n.allocations - n.deallocations);
    CHECK(shown.segments == state.live_count);
    CHECK(shown.gaps == 0);
  }
};

}  // namespace weir::test
