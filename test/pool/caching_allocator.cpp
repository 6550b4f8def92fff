// What stands on a caching allocator is tested with `pool`, `pool_streams` and `arena`; here is what only they ask of
// it.
#include <weir/pool/caching_allocator.hpp>

#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
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
#include "support/small_blocks.hpp"
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

TEST_CASE("a thread that only looks for what is there gets no cache, which all searches would enter") {
  source_state state;
  source_resource upstream(state);
  allocator memory(upstream, pool{.thread_caches = true}, 0);
  weir::stream const s;
  void* const p = memory.allocate(s, 1000, 256, pool_effort::grow);
  CHECK(memory.deallocate(s, p, 1000, 256));
  std::size_t const before = memory.snapshot().host_bytes;
  std::thread([&] {
    void* const q = memory.allocate(s, 1000, 256, pool_effort::reuse);
    CHECK(q != nullptr);
    CHECK(memory.deallocate(s, q, 1000, 256));
  }).join();
  CHECK(memory.snapshot().host_bytes < before + sizeof(detail::thread_cache));
  CHECK(memory.numbers().growths == 1);
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
