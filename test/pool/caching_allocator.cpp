// What stands on a caching allocator is tested with `pool`, `pool_streams` and `arena`; here is what only they ask of
// it.
#include <weir/core/shown_memory.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::pool_effort;
using allocator = detail::caching_allocator<source_resource>;

TEST_CASE("a request goes no further than it may") {
  lazy_world const world;
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{.max_bytes = 2_MiB}, 0);
  destroyable_stream const s, t;
  CHECK(memory.allocate(s, 1000, 256, pool_effort::reuse) == nullptr);
  CHECK(state.calls == 0);
  void* const p = memory.allocate(s, 2_MiB, 256, pool_effort::grow);
  REQUIRE(p != nullptr);
  CHECK(memory.allocate(s, 1000, 256, pool_effort::all) == nullptr);
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void*) {}, nullptr) == cudaSuccess);
  CHECK(memory.deallocate(s, p, 2_MiB, 256));
  CHECK(memory.allocate(host_order, 2_MiB, 256, pool_effort::grow) == nullptr);  // that would make the host wait
  CHECK(memory.allocate(t, 2_MiB, 256, pool_effort::reuse) == p);                // a wait between streams is reuse
  CHECK(memory.numbers().waits == 1);
  CHECK(memory.deallocate(t, p, 2_MiB, 256));
  CHECK(memory.allocate(host_order, 2_MiB, 256, pool_effort::all) == p);
  CHECK(memory.deallocate(host_order, p, 2_MiB, 256));
}

TEST_CASE("a block may be larger than the request, which is what counts as requested") {
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{}, 0);
  void* const p = memory.allocate(host_order, 100, 256, pool_effort::all, 4096);
  CHECK(memory.numbers().requested.current == 100);
  CHECK(memory.numbers().allocated.current == 4096);
  CHECK_FALSE(memory.deallocate(host_order, p, 4096, 256));
  CHECK(memory.deallocate(host_order, p, 100, 256));
}

TEST_CASE("a deallocation that is wrong changes nothing, and can be explained") {
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{}, 0);
  void* const p = memory.allocate(host_order, 100, 256, pool_effort::all);
  CHECK_FALSE(memory.deallocate(host_order, p, 101, 256));
  CHECK(contains(memory.misuse(p, 101, 256), "allocated with 100 B"));
  CHECK_FALSE(memory.deallocate(host_order, &state, 100, 256));
  CHECK(contains(memory.misuse(&state, 100, 256), "not this pool's memory"));
  CHECK(memory.numbers().requested.current == 100);
  CHECK(memory.deallocate(host_order, p, 100, 256));
  CHECK(contains(memory.misuse(p, 100, 256), "freed twice"));
}

// ---- Small blocks: slabs, and blocks that a stream has at hand.

namespace {

/// A pool, two streams that do not end, and one that may.
struct small_blocks {
  lazy_world const world;
  source_state state;
  source_resource upstream{state};
  weir::stream const a, b;
  destroyable_stream const mortal;
  allocator memory;

  explicit small_blocks(pool const& options = {.growth_bytes = 2_MiB}) : memory(upstream, options, 0) {}

  void* take(stream_ref stream, std::size_t bytes = 1024) {
    void* const p = memory.allocate(stream, bytes, 256, pool_effort::all);
    check_books();
    return p;
  }
  std::vector<void*> take(stream_ref stream, std::size_t bytes, std::size_t count) {
    std::vector<void*> blocks(count);
    for (void*& p : blocks) REQUIRE((p = memory.allocate(stream, bytes, 256, pool_effort::all)) != nullptr);
    check_books();
    return blocks;
  }
  /// Until there is no more.
  std::vector<void*> take_all(stream_ref stream, std::size_t bytes = 1024) {
    std::vector<void*> blocks;
    while (void* const p = memory.allocate(stream, bytes, 256, pool_effort::all)) blocks.push_back(p);
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

}  // namespace

TEST_CASE_FIXTURE(small_blocks,
                  "many small blocks of a size are slots of a few slabs, each shown as it was asked for") {
  std::vector<void*> const blocks = take(a, 1000, 2000);
  CHECK(memory.snapshot().blocks < 1000);
  CHECK(std::set<void*>(blocks.begin(), blocks.end()).size() == 2000);
  CHECK(memory.numbers().requested.current == 2000 * 1000);
  live_block const found = memory.find_block(blocks[1500]);
  CHECK(found.bytes == 1000);
  CHECK(found.alignment == 256);
  sim::reset_counters();
  give(a, blocks, 1000);
  CHECK(sim::calls() == 0);
  CHECK_FALSE(memory.find_block(blocks[300]));
  CHECK(memory.find_block(blocks[300]).inside);
  void* const again = take(a, 1000);
  CHECK(std::find(blocks.begin(), blocks.end(), again) != blocks.end());
  give(a, again, 1000);
  CHECK(take(a, 1000) == again);
}

TEST_CASE_FIXTURE(small_blocks, "a stream has its slots also where many others came since") {
  std::vector<weir::stream> streams(150);
  std::vector<std::vector<void*>> blocks;
  for (weir::stream const& s : streams) blocks.push_back(take(s, 1024, 25));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    give(streams[i], {blocks[i].begin(), blocks[i].end() - 1});
    blocks[i].erase(blocks[i].begin(), blocks[i].end() - 1);  // the last is a slot
  }
  std::size_t const before = memory.snapshot().host_bytes;
  for (std::size_t i = 0; i < streams.size(); ++i) blocks[i].push_back(take(streams[i]));
  CHECK(memory.snapshot().host_bytes == before);
  for (std::size_t i = 0; i < streams.size(); ++i) give(streams[i], blocks[i]);
  look();
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  memory.trim(0);
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(small_blocks, "streams that may end get no slabs, and nothing is kept for them") {
  std::vector<void*> const blocks = take(mortal, 1024, 2000);
  CHECK(memory.snapshot().blocks >= 2000);
  finish(mortal);
  give(mortal, blocks);
  finish(mortal);
  look();
  CHECK(memory.numbers().pending == 0);
}

TEST_CASE("a wrong free of a slot changes nothing, and is told in words") {
  small_blocks s;
  std::vector<void*> const blocks = s.take(s.a, 1000, 1000);
  std::size_t const before = s.memory.numbers().allocated.current;
  auto const told = [&](void* p, std::size_t bytes, std::size_t alignment) {
    CHECK_FALSE(s.memory.deallocate(s.a, p, bytes, alignment));
    CHECK_FALSE(s.memory.deallocate_after(s.a, std::vector<stream_ref>{s.b}, p, bytes, alignment));
    CHECK(s.memory.numbers().allocated.current == before);
    return s.memory.misuse(p, bytes, alignment);
  };
  for (void* const p : blocks) {
    CHECK(contains(told(p, 999, 256), "allocated with 1000 B aligned to 256"));
    CHECK(contains(told(p, 1000, 128), "allocated with 1000 B aligned to 256"));
  }
  void* const p = blocks[500];
  for (std::size_t const alignment : {std::size_t{0}, std::size_t{3}, std::size_t{512}, std::size_t{1} << 40})
    CHECK(contains(told(p, 1000, alignment), "allocated with 1000 B aligned to 256"));
  for (std::size_t const bytes : {std::size_t{0}, 1024ul, 1_MiB, ~std::size_t{0}})
    CHECK(contains(told(p, bytes, 256), "allocated with 1000 B"));
  CHECK(contains(told(static_cast<std::byte*>(p) + 256, 1000, 256), "no live block starts there"));
  CHECK(contains(told(static_cast<std::byte*>(p) + 1, 1000, 256), "no live block starts there"));
  CHECK(contains(told(&s, 1000, 256), "not this pool's memory"));
  s.check_books();
  s.give(s.a, blocks, 1000);
  CHECK_FALSE(s.memory.deallocate(s.a, p, 1000, 256));
}

TEST_CASE_FIXTURE(small_blocks, "a slot that is freed twice is told so, whichever slot it is and whoever has it") {
  std::vector<void*> const blocks = take(a, 1024, 600);
  give(b, blocks[450]);
  for (std::size_t i = 0; i < 400; ++i) give(a, blocks[i]);
  auto const twice = [&](void* p) {
    CHECK_FALSE(memory.find_block(p));
    for (std::size_t const bytes : {std::size_t{0}, std::size_t{1024}})
      for (std::size_t const alignment : {std::size_t{1}, std::size_t{256}}) {
        CHECK_FALSE(memory.deallocate(a, p, bytes, alignment));
        CHECK(contains(memory.misuse(p, bytes, alignment), "freed twice"));
      }
  };
  twice(blocks[450]);
  for (std::size_t i = 0; i < 400; ++i) twice(blocks[i]);
  check_books();
}

TEST_CASE_FIXTURE(small_blocks, "a block that is kept at hand is freed, to whoever frees it again or looks") {
  std::vector<void*> const blocks = take(a, 200'000, 3);
  give(a, blocks[1], 200'000);
  CHECK_FALSE(memory.find_block(blocks[1]));
  CHECK_FALSE(memory.deallocate(a, blocks[1], 200'000, 256));
  CHECK(contains(memory.misuse(blocks[1], 200'000, 256), "freed twice"));
  CHECK(take(a, 200'000) == blocks[1]);
}

TEST_CASE_FIXTURE(small_blocks, "what a request takes is known before, whoever serves it") {
  for (int i = 0; i < 60; ++i)
    for (std::size_t const bytes : {1ul, 300ul, 4097ul, 5000ul, 60'000ul, 70'000ul, 900'000ul, 1'100'000ul})
      for (stream_ref const stream : {stream_ref(a), stream_ref(mortal)}) {
        std::size_t const before = memory.numbers().allocated.current;
        void* const p = memory.allocate(stream, bytes, 256, pool_effort::all);
        REQUIRE(memory.numbers().allocated.current - before == memory.taken(bytes, 256));
        if (bytes > 10'000) REQUIRE(memory.deallocate(stream, p, bytes, 256));
      }
  check_books();
}

TEST_CASE_FIXTURE(small_blocks, "a slot may be larger than the request, which is what counts as requested") {
  take(a, 4096, 100);
  std::size_t const before = memory.numbers().requested.current;
  void* const p = memory.allocate(a, 100, 256, pool_effort::all, 4096);
  CHECK(memory.numbers().requested.current == before + 100);
  CHECK(memory.numbers().allocated.current == 101 * 4096);
  CHECK_FALSE(memory.deallocate(a, p, 4096, 256));
  give(a, p, 100);
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed on another stream is its owner's when that work is done, not before") {
  void* const x = take(a, 1024, 1000)[700];
  work(b);
  give(b, x);
  look();
  CHECK(memory.numbers().pending >= 1024);
  CHECK_FALSE(gets(a, x));
  finish(b);
  look();
  CHECK(gets(a, x));
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed by a stream that ends is its owner's when that work is done") {
  void* const x = take(a, 1024, 1000)[700];
  {
    destroyable_stream const other;
    work(other);
    give(other, x);
    look();
    CHECK_FALSE(gets(a, x));
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  look();
  CHECK(gets(a, x));
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed in host order is its owner's at once") {
  void* const x = take(a, 1024, 1000)[700];
  give(host_order, x);
  CHECK(take(a) == x);
}

TEST_CASE("where memory is short, a slot freed on another stream is that stream's") {
  small_blocks s({.max_bytes = 2_MiB});
  std::vector<void*> const blocks = s.take(s.a, 1024, 2000);
  REQUIRE(s.memory.snapshot().blocks < 1500);
  while (s.memory.snapshot().largest_free != 0) REQUIRE(s.take(s.mortal, 256) != nullptr);
  for (stream_ref const other : {stream_ref(s.b), stream_ref(s.mortal)}) {
    void* const x = blocks[other == stream_ref(s.b) ? 800 : 1000];
    s.work(other);
    s.give(other, x);
    sim::reset_counters();
    CHECK(s.take(other) == x);
    CHECK(sim::calls("cudaStreamWaitEvent") == 0);
    CHECK(s.memory.numbers().synchronizations == 0);
  }
}

TEST_CASE("nothing is refused for what streams have at hand") {
  for (std::size_t const bytes : {std::size_t{1024}, std::size_t{128} << 10})
    for (pool_effort const effort : {pool_effort::reuse, pool_effort::grow, pool_effort::all})
      for (bool const some_elsewhere : {false, true}) {
        CAPTURE(bytes);
        CAPTURE(some_elsewhere);
        small_blocks s({.max_bytes = 4_MiB});
        REQUIRE(s.memory.grow(4_MiB));
        std::vector<void*> const blocks = s.take(s.a, bytes, 31 * 128_KiB / bytes);
        s.work(s.a);
        for (std::size_t i = 0; i < blocks.size(); ++i)
          s.memory.deallocate(some_elsewhere && i % 7 == 0 ? s.b : s.a, blocks[i], bytes, 256);
        s.check_books();
        void* const p = s.memory.allocate(s.b, 4_MiB, 256, effort);
        CHECK(p != nullptr);
        CHECK(s.memory.numbers().synchronizations == 0);
        s.check_books();
      }
}

TEST_CASE_FIXTURE(small_blocks, "nothing is taken from the upstream while streams have enough at hand that is done") {
  sim::set_mode(sim::mode::immediate);
  REQUIRE(memory.grow(4_MiB));
  give(a, take(a, 128_KiB, 8), 128_KiB);
  give(a, take(a, 1024, 500));
  std::size_t const growths = memory.numbers().growths;
  void* const p = take(b, 4_MiB);
  CHECK(memory.numbers().growths == growths);
  CHECK(memory.numbers().waits == 0);
  give(b, p, 4_MiB);
}

TEST_CASE("nothing is refused for what lies free in slabs beside live slots") {
  small_blocks s({.max_bytes = 4_MiB});
  REQUIRE(s.memory.grow(4_MiB));
  std::vector<void*> blocks = s.take(s.a, 1024, 4000);
  std::sort(blocks.begin(), blocks.end());
  s.work(s.a);
  for (std::size_t i = 0; i + 4 < blocks.size(); i += 2) s.give(s.a, blocks[i]);
  std::size_t const free = s.memory.numbers().pending;
  REQUIRE(free > 1_MiB);
  std::vector<void*> const others = s.take_all(s.b);
  CHECK(others.size() * 1024 >= free);
  CHECK(s.memory.numbers().pending == 0);
}

TEST_CASE_FIXTURE(small_blocks, "all goes back when all is freed and done, wherever it was") {
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (int i = 0; i < 200; ++i)
    for (std::size_t const bytes : {256ul, 1024ul, 20'000ul, 100'000ul})
      for (stream_ref const stream : {stream_ref(a), stream_ref(b), stream_ref(mortal)})
        blocks.emplace_back(memory.allocate(stream, bytes, 256, pool_effort::all), bytes);
  check_books();
  stream_ref const streams[] = {a, b, mortal};
  for (std::size_t i = 0; i < blocks.size(); ++i)
    memory.deallocate(streams[i % 31 % 3], blocks[i].first, blocks[i].second, 256);
  check_books();
  look();
  for (stream_ref const stream : streams) finish(stream);
  memory.trim(0);
  CHECK(state.live_bytes == 0);
  CHECK(memory.snapshot().blocks == 0);
  check_books();
}

TEST_CASE("a segment goes back with its last slot, also where other slabs of its size stay") {
  small_blocks s({.growth_bytes = 256_KiB, .release_threshold = 0});
  sim::set_mode(sim::mode::immediate);
  std::vector<void*> const kept = s.take(s.a, 1024, 300);
  s.give(s.a, kept.front());  // its slab has a free slot
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<void*> others = s.take(s.a, 1024, 400);
    std::shuffle(others.begin(), others.end(), random);
    for (void* const p : others) {
      REQUIRE(s.memory.deallocate(s.a, p, 1024, 256));
      REQUIRE(s.memory.trim(0) == 0);
    }
  }
  s.give(s.a, {kept.begin() + 1, kept.end()});
  CHECK(s.state.live_bytes == 0);
}

TEST_CASE("above the threshold nothing idle is held, whoever frees what small blocks where") {
  for (std::size_t const threshold : {std::size_t{0}, 3_MiB}) {
    CAPTURE(threshold);
    small_blocks s({.growth_bytes = 512_KiB, .release_threshold = threshold});
    sim::set_mode(sim::mode::immediate);
    stream_ref const streams[] = {s.a, s.b, s.mortal, host_order};
    std::size_t const sizes[] = {1024, 10'000, 60'000, 150'000};
    std::vector<std::pair<void*, std::size_t>> live;
    std::mt19937 random(11);
    for (int step = 0; step < 1500; ++step) {
      CAPTURE(step);
      bool const grows = step / 250 % 2 == 0;
      if (live.empty() || random() % 8 < (grows ? 7 : 1)) {
        std::size_t const bytes = sizes[random() % 4];
        live.emplace_back(s.memory.allocate(streams[random() % 3], bytes, 256, pool_effort::all), bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        s.memory.deallocate(streams[random() % 4], live.back().first, live.back().second, 256);
        live.pop_back();
      }
      REQUIRE(s.memory.trim(threshold) == 0);
    }
    s.check_books();
    CHECK(s.memory.numbers().releases > 0);
    for (auto const& [p, bytes] : live) s.memory.deallocate(host_order, p, bytes, 256);
    CHECK(s.state.live_bytes <= threshold);
  }
}

TEST_CASE_FIXTURE(small_blocks, "a slot that several streams used is its owner's after the work of all") {
  std::vector<void*> const blocks = take(a, 1024, 1000);
  auto const give_after = [&](stream_ref stream, std::vector<stream_ref> const& others, void* p) {
    REQUIRE(memory.deallocate_after(stream, others, p, 1024, 256));
    check_books();
  };
  give_after(a, {}, blocks[600]);
  CHECK(take(a) == blocks[600]);
  give_after(a, {a}, blocks[600]);
  CHECK(take(a) == blocks[600]);
  give_after(host_order, {}, blocks[600]);
  CHECK(take(a) == blocks[600]);
  work(b);
  give_after(a, {b}, blocks[700]);
  work(mortal);
  give_after(b, {mortal}, blocks[701]);  // of the same slab, most likely
  look();
  auto const a_gets = [&](void* wanted) { return gets(a, wanted, 1024, 1000); };  // slabs may have so many slots free
  CHECK_FALSE(a_gets(blocks[700]));
  CHECK_FALSE(a_gets(blocks[701]));
  finish(a);
  finish(b);
  look();
  CHECK(a_gets(blocks[700]));
  finish(mortal);
  look();
  memory.synchronize();
  CHECK(memory.numbers().pending == 0);
}

TEST_CASE_FIXTURE(small_blocks, "a slot freed in a capture is the capture's until that is released") {
  std::vector<void*> const blocks = take(a, 1024, 1000);
  begin_capture(mortal);
  give(mortal, blocks[700]);
  CHECK(memory.numbers().captured == 1024);
  CHECK_FALSE(gets(a, blocks[700]));
  void* const again = memory.allocate(mortal, 1024, 256, pool_effort::all);
  CHECK(again != blocks[700]);  // it was not the capture's before
  CHECK(memory.deallocate(mortal, again, 1024, 256));
  { captured_graph const graph(mortal); }
  CHECK_FALSE(gets(a, blocks[700]));
  CHECK(memory.release_captured(0) == 2048);
  CHECK(memory.numbers().captured == 0);
  give(a, blocks[699]);
  give(a, blocks[701]);
  check_books();
  CHECK(sim::captures_invalidated() == 0);
}

TEST_CASE_FIXTURE(small_blocks, "a slot that a stream in a capture used is that capture's") {
  std::vector<void*> const blocks = take(a, 1024, 1000);
  begin_capture(mortal);
  REQUIRE(memory.deallocate_after(a, std::vector<stream_ref>{mortal}, blocks[700], 1024, 256));
  check_books();
  CHECK(memory.numbers().captured == 1024);
  REQUIRE(memory.deallocate_after(mortal, std::vector<stream_ref>{a}, blocks[500], 1024, 256));
  check_books();
  CHECK(memory.numbers().captured == 2048);
  { captured_graph const graph(mortal); }
  CHECK_FALSE(gets(a, blocks[700]));
  CHECK(memory.release_captured(0) == 2048);
  check_books();
  CHECK(sim::captures_invalidated() == 0);
}

TEST_CASE_FIXTURE(small_blocks, "what a stream has at hand is not for its captures, nor the other way round") {
  std::vector<void*> const blocks = take(a, 1024, 1000), large = take(a, 200'000, 4);
  work(a);
  for (std::size_t i = 0; i < 500; ++i) give(a, blocks[i]);
  give(a, large, 200'000);
  std::set<void*> const at_hand(blocks.begin(), blocks.begin() + 500);
  void *inside = nullptr, *inside_large = nullptr;
  {
    capture_scope const scope;
    begin_capture(a, cudaStreamCaptureModeThreadLocal);
    inside = memory.allocate(a, 1024, 256, pool_effort::all);
    inside_large = memory.allocate(a, 200'000, 256, pool_effort::all);
    CHECK(at_hand.count(inside) == 0);
    CHECK(std::find(large.begin(), large.end(), inside_large) == large.end());
    REQUIRE(memory.deallocate(a, inside, 1024, 256));
    REQUIRE(memory.deallocate(a, inside_large, 200'000, 256));
    captured_graph const graph(a);
  }
  CHECK(memory.numbers().captured > 200'000);
  CHECK_FALSE(gets(a, inside));
  CHECK_FALSE(gets(a, inside_large, 200'000, 8));
  CHECK(sim::captures_invalidated() == 0);
  check_books();
}

TEST_CASE_FIXTURE(small_blocks, "the slabs of a thread that ended are everyone's before the pool takes more") {
  sim::set_mode(sim::mode::immediate);
  std::vector<void*> blocks;
  std::thread([&] {
    blocks = take(cudaStreamPerThread, 1024, 1900);
    for (std::size_t i = 0; i < blocks.size(); i += 2) memory.deallocate(cudaStreamPerThread, blocks[i], 1024, 256);
  }).join();
  std::size_t const growths = memory.numbers().growths;
  take(a, 1024, 900);
  CHECK(memory.numbers().growths == growths);
  for (std::size_t i = 1; i < blocks.size(); i += 2) give(a, blocks[i]);
}

TEST_CASE_FIXTURE(small_blocks, "a list that was a thread's keeps nothing for a stream that may end") {
  std::thread([&] {
    std::vector<void*> const blocks = take(cudaStreamPerThread, 200'000, 4);
    give(cudaStreamPerThread, blocks, 200'000);
    give(cudaStreamPerThread, take(cudaStreamPerThread, 1024, 100));
    finish(cudaStreamPerThread);
  }).join();
  memory.synchronize();
  look();
  REQUIRE(memory.snapshot().lanes == 0);
  {
    std::vector<std::unique_ptr<destroyable_stream>> streams;
    for (int i = 0; i < 20; ++i) {
      streams.push_back(std::make_unique<destroyable_stream>());
      void* const p = take(*streams.back(), 200'000);
      work(*streams.back());
      give(*streams.back(), p, 200'000);
    }
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  look();
  CHECK(memory.numbers().pending == 0);
}

TEST_CASE("live blocks never overlap, and the numbers are those of the pieces, whatever streams do") {
  small_blocks s({.max_bytes = 6_MiB, .growth_bytes = 1_MiB});
  stream_ref const streams[] = {s.a, s.b, s.mortal, cudaStreamLegacy, host_order};
  std::size_t const sizes[] = {256, 256, 1000, 1024, 5000, 60'000, 200'000, 700'000};
  std::map<std::uintptr_t, std::size_t> live;
  std::mt19937 random(5);
  int refused = 0;
  for (int step = 0; step < 1500; ++step) {
    CAPTURE(step);
    stream_ref const stream = streams[random() % 5];
    bool const grows = step / 300 % 2 == 0;
    if (live.empty() || random() % 8 < (grows ? 7 : 2)) {
      std::size_t const bytes = sizes[random() % (random() % 4 == 0 ? 8 : 4)];
      auto const p = reinterpret_cast<std::uintptr_t>(s.memory.allocate(stream, bytes, 256, pool_effort::all));
      if (p == 0) {
        ++refused;
      } else {
        auto const next = live.lower_bound(p);
        if (next != live.end()) REQUIRE(p + bytes <= next->first);
        if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= p);
        live.emplace(p, bytes);
      }
    } else {
      auto const gone = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      auto* const p = reinterpret_cast<void*>(gone->first);
      if (random() % 8 == 0)
        REQUIRE(s.memory.deallocate_after(stream, std::vector{streams[random() % 4]}, p, gone->second, 256));
      else
        REQUIRE(s.memory.deallocate(stream, p, gone->second, 256));
      live.erase(gone);
    }
    if (random() % 16 == 0) s.work(streams[random() % 4]);
    if (random() % 64 == 0) s.finish(streams[random() % 4]);
    if (random() % 256 == 0) s.memory.trim(random() % 4 * 1_MiB);
    if (random() % 256 == 0) s.memory.synchronize();
    s.check_books();
  }
  CHECK(refused > 0);
  for (auto const& [p, bytes] : live) s.memory.deallocate(host_order, reinterpret_cast<void*>(p), bytes, 256);
  s.memory.synchronize();
  s.memory.trim(0);
  CHECK(s.state.live_bytes == 0);
}
