// Every CUDA call that a stack makes fails once, and every host allocation: whatever fails, nothing crashes or leaks,
// the stack is as it was before, the same request succeeds when it is made again, and no error is left behind. From
// every call on all fail: all ends, and the next stack works. Then devices of any size are filled and emptied.
#include "failures.hpp"
#include "conformance/leaks_allowed.hpp"
#include "random/hoarding.hpp"

#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/bridges/cuda_mr.hpp>
#include <weir/sources.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/parsed.hpp>
#include <support/somebodys_mr.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

using namespace weir;
using failures::trial;

// ---- host memory that runs out when it is told to

namespace {

void* host_memory(std::size_t bytes, std::size_t alignment) {
  if (failures::host_allocation_fails()) return nullptr;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(bytes) : std::aligned_alloc(alignment, bytes);
}
void* host_memory_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* const p = host_memory(bytes, alignment)) return p;
  throw std::bad_alloc();
}
// Not inline: compilers would complain of what is new'd and free'd.
[[gnu::noinline]] void give_back(void* p) noexcept { std::free(p); }
constexpr std::size_t usual = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t n) { return host_memory_or_throw(n, usual); }
void* operator new[](std::size_t n) { return host_memory_or_throw(n, usual); }
void* operator new(std::size_t n, std::nothrow_t const&) noexcept { return host_memory(n, usual); }
void* operator new[](std::size_t n, std::nothrow_t const&) noexcept { return host_memory(n, usual); }
void* operator new(std::size_t n, std::align_val_t a) { return host_memory_or_throw(n, std::size_t(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return host_memory_or_throw(n, std::size_t(a)); }
void* operator new(std::size_t n, std::align_val_t a, std::nothrow_t const&) noexcept {
  return host_memory(n, std::size_t(a));
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }

namespace {

// ---- what is done with a stack

void one_stream(trial& t) {
  auto* const p = t.take(t.a, 1000);
  auto* const q = t.take(t.a, 300'000);
  t.give(t.a, p);
  auto* const r = t.take(t.a, 500);
  t.give(t.a, q);
  t.give(t.a, r);
}

void two_streams(trial& t) {
  auto* p = t.take(t.a, 64 << 10);
  t.give(t.a, p);
  auto* const q = t.take(t.b, 64 << 10);
  p = t.take(t.a, 100 << 10);
  t.give(t.b, q);
  t.give(t.a, p);
  t.give(t.b, t.take(t.b, 200 << 10));
}

void host_ordered_requests(trial& t) {
  t.give(host_order, t.take(host_order, 5000));
  auto* const p = t.take(t.a, 5000);
  t.wait_for(t.a);
  t.give(host_order, p);
  t.give(t.b, t.take(t.b, 5000));
  t.give(host_order, t.take(host_order, 70'000, 64 << 10));
}

void until_it_is_full(trial& t) {
  std::vector<failures::block*> all;
  while (all.size() < 10) {  // the host is never full
    auto* const p = t.try_to_take(all.size() % 2 == 0 ? t.a : t.b, 512 << 10);
    if (p == nullptr) break;
    all.push_back(p);
  }
  CHECK((all.size() >= 2 || !t.works()));
  t.describe();
  for (std::size_t i = 0; i < all.size(); ++i) t.give(i % 2 == 0 ? t.a : t.b, all[i]);
  for (std::size_t i = 0; i < all.size(); ++i) t.give(t.b, t.take(t.b, 512 << 10));
}

void streams_that_end(trial& t) {
  for (int i = 0; i < 3 && t.works(); ++i) {
    failures::destroyable_stream const s;
    auto* const p = t.take(s.get(), 50'000);
    t.give(s.get(), t.take(s.get(), 1000));
    t.give(s.get(), p);
  }
  t.give(t.b, t.take(t.b, 50'000));
}

void trimming(trial& t) {
  auto* const p = t.take(t.a, 300'000);
  auto* const q = t.take(cudaStreamPerThread, 300'000);
  t.give(t.a, p);
  t.synchronize();
  t.trim();
  t.describe();
  t.give(cudaStreamPerThread, q);
  t.trim();
  t.synchronize();
  t.trim();
  t.give(t.b, t.take(t.b, 1000));
}

void default_streams(trial& t) {
  auto* p = t.take(cudaStreamLegacy, 3000);
  auto* const q = t.take(cudaStreamPerThread, 3000);
  t.give(cudaStreamLegacy, p);
  p = t.take(t.b, 3000);
  t.give(cudaStreamPerThread, q);
  t.give(t.b, p);
  t.give(t.a, t.take(t.a, 3000));
}

void used_on_two_streams(trial& t) {
  auto* p = t.take(t.a, 50'000);
  auto* const q = t.take(t.b, 300'000);
  t.read_on(t.b, p);
  t.give_after(t.a, p, t.b);
  p = t.take(t.a, 50'000);
  t.read_on(cudaStreamPerThread, q);
  t.give_after(t.b, q, cudaStreamPerThread);
  t.synchronize();
  t.trim();
  t.read_on(cudaStreamLegacy, p);
  t.give_after(t.a, p, cudaStreamLegacy);
  t.give(t.a, t.take(t.a, 200'000));
}

void captured(trial& t) {
  t.give(t.a, t.take(t.a, 5000));
  t.begin_capture(t.a);
  auto* const p = t.take(t.a, 3000);
  auto* const q = t.take(t.a, 100'000);
  t.give(t.a, p);
  t.give(t.a, t.take(t.a, 2000));
  t.end_capture(t.a);
  t.give(t.b, t.take(t.b, 5000));
  t.give(t.a, q);
  t.end_graph(t.a);
  t.give(t.a, t.take(t.a, 5000));
}

struct program {
  char const* name;
  void (*run)(trial&);
};
constexpr program programs[] = {{"one stream", one_stream},
                                {"two streams", two_streams},
                                {"host order", host_ordered_requests},
                                {"until it is full", until_it_is_full},
                                {"streams that end", streams_that_end},
                                {"trimming", trimming},
                                {"default streams", default_streams},
                                {"used on two streams", used_on_two_streams},
                                {"captured", captured}};

// ---- the stacks

struct subject {
  char const* name;
  std::function<open_stack::stack()> make;
};
template <class F>
subject of(char const* name, F const& recipe) {
  return {name, [recipe] { return open_stack::make_stack(recipe); }};
}

/// Functions that take CUDA's memory, and say why they could not.
callback calling_cuda() {
  return {.allocate = [](stream_ref s, std::size_t n, std::size_t a) -> void* {
            void* p = nullptr;
            if (a > 256) throw std::bad_alloc();  // more than CUDA can do
            cudaError_t const code = cudaMallocAsync(&p, n, s.get());
            if (code != cudaErrorMemoryAllocation) weir::detail::check(code, "cudaMallocAsync");
            if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
            return p;
          },
          .deallocate =
              [](stream_ref s, void* p, std::size_t, std::size_t) {
                if (cudaFreeAsync(p, s.get()) != cudaSuccess) static_cast<void>(cudaGetLastError());
              }};
}

std::vector<subject> subjects() {
  logging const log{.path = "/dev/null", .buffer_bytes = 256};
  return {of("async", async{}),
          of("device", device{}),
          of("pinned", pinned{}),
          of("host", host{}),
          of("managed", managed{}),
          of("system",
             [] {
               sim::set_pageable_access(true);
               return make(weir::system{.headroom_bytes = 1_MiB});
             }),
          of("pool on async", async{} | pool{}),
          of("pool on async for other processes", async{.handle_type = memory_handle::posix_fd} | pool{}),
          of("pool that waits, with a bound",
             device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 3_MiB, .pending = when_pending::wait}),
          of("pool that gives back at once on a pool",
             async{} | pool{.growth_bytes = 2_MiB} | pool{.growth_bytes = 512_KiB, .release_threshold = 0}),
          of("arena for each stream",
             device{} | arena{.max_bytes = 3_MiB, .growth_bytes = 1_MiB, .per = arena::owner::stream, .max_arenas = 2}),
          of("fixed size", async{} | fixed_size{.block_bytes = 512_KiB, .blocks_per_chunk = 2}),
          of("aligned", device{} | aligned{.alignment = 64_KiB, .from_bytes = 2000} | statistics{}),
          of("scrubbed", async{} | pool{} | scrub{} | statistics{}),
          of("prefetched", managed{} | pool{} | prefetch{.preferred_location = true} | statistics{}),
          of("bins", device{} | pool{} | binning{{bin{4_KiB}, bin{128_KiB, pool{.growth_bytes = 1_MiB}}}}),
          of("limited source", device{} | limit{.max_bytes = 3_MiB} | statistics{} | log),
          of("pool that falls back on another",
             device{} | pool{.max_bytes = 1_MiB} | fallback{pinned{} | pool{.max_bytes = 2_MiB}}),
          of("pool that waits for memory, in vain", device{} | pool{.max_bytes = 3_MiB} | wait_for_memory{1}),
          of("tenant with a reserve", [] { return any_resource{device{} | pool{} | limit{3_MiB}}; } |
                                          limit{.max_bytes = 3_MiB, .soft_bytes = 1_MiB, .reserve_bytes = 1_MiB}),
          of("pool with a hoard", open_stack::hoarding{device{} | pool{.max_bytes = 3_MiB}, 2}),
          of("counted, limited and logged", async{} | pool{} | limit{.max_bytes = 3_MiB} | statistics{} | log),
          of("pool on functions", calling_cuda() | pool{.growth_bytes = 1_MiB}),
          of("pool on a cuda::mr resource", from_cuda_mr(somebody::pool_mr{}) | pool{.growth_bytes = 1_MiB}),
          of("cuda::mr resource without streams", from_cuda_mr(somebody::plain_mr{})),
          of("tracked", device{} | tracking{} | pool{.growth_bytes = 1_MiB} | tracking{.frames = 2}),
          of("traced", device{} | trace{.events = 5} | pool{.growth_bytes = 1_MiB} | trace{.frames = 2}),
          of("counted by tag", device{} | statistics{.by_tag = true}),
          of("from text", [] { return parse("device | pool(growth=1MiB) | limit(90%) | statistics"); })};
}

/// Those whose smallest piece of memory is 2 MiB, which small devices do not have.
std::vector<subject> subjects_in_chunks() {
  return {of("virtual memory", virtual_memory{}),
          of("virtual memory of peers, with a bound",
             virtual_memory{.max_bytes = 4_MiB, .peers = true, .scrub = true} | statistics{}),
          of("traced, growing in place",
             virtual_memory{.max_bytes = 4_MiB} | trace{.events = 5} | pool{} | trace{.events = 5}),
          of("counted and limited, growing in place", virtual_memory{} | limit{6_MiB} | statistics{.by_tag = true} |
                                                          tracking{} | limit{4_MiB} | logging{.path = "/dev/null"} |
                                                          pool{}),
          of("growing in place, from text", [] { return parse("virtual_memory | limit(4MiB) | pool"); }),
          of("moving what is pending", virtual_memory{.max_bytes = 4_MiB} | pool{.max_waste = 0, .move_pending = true}),
          of("growing in place on scrubbed memory",
             virtual_memory{.max_bytes = 4_MiB} | scrub{.on_allocation = true} | pool{.max_waste = 0}),
          of("pool on virtual memory", virtual_memory{} | pool{.growth_bytes = 2_MiB}),
          of("arenas on virtual memory", virtual_memory{} | arena{.per = arena::owner::stream, .max_arenas = 2})};
}

// ---- the faults

constexpr std::uint64_t most_faults = 2000;

/// Runs the program with the first, second ... event of this kind failing, until there are no more. How many there are.
std::uint64_t fail_each(subject const& s, program const& p, failures::fault kind, sim::mode mode) {
  for (std::uint64_t k = 1; k < most_faults; ++k) {
    std::string const where = std::string(s.name) + ", " + p.name + ", " + failures::name_of(kind) + ", " +
                              (mode == sim::mode::lazy ? "lazy" : "immediate");
    INFO(where << ", number " << k);
    leaks_allowed const kept_for_good(kind == failures::fault::sticky);
    trial t(s.make, kind, k, mode);
    p.run(t);
    t.end();
    if (!t.was_hit()) return k - 1;
  }
  FAIL("more than " << most_faults << " of them");
  return 0;
}

void check_all(failures::fault kind) {
  std::uint64_t faults = 0, scenarios = 0;
  std::vector<subject> all = subjects();
  for (subject& s : subjects_in_chunks()) all.push_back(std::move(s));
#if CUDART_VERSION >= 13000
  all.push_back(of("async on managed memory", async_managed{}));
  all.push_back(of("pool on async pinned memory", async_pinned{} | pool{}));
#endif
  for (subject const& s : all) {
    bool const can_capture = s.make().pooled;
    for (program const& p : programs) {
      if (p.run == captured && !can_capture) continue;  // sources make the memory nodes of the graph, or keep it
      faults += fail_each(s, p, kind, sim::mode::lazy);
      if (kind == failures::fault::unknown) faults += fail_each(s, p, kind, sim::mode::immediate);
      ++scenarios;
    }
  }
  MESSAGE(faults << " faults in " << scenarios << " scenarios");
  CHECK(faults > 100);
}

// ---- devices of any size

/// Blocks on two streams until there is no room, but no more than the host is asked for.
std::vector<failures::block*> fill(trial& t, std::size_t bytes) {
  std::vector<failures::block*> all;
  while (all.size() < 100) {
    auto* const p = t.try_to_take(all.size() % 2 == 0 ? t.a : t.b, bytes);
    if (p == nullptr) break;
    all.push_back(p);
  }
  return all;
}
void empty(trial& t, std::vector<failures::block*> const& all) {
  for (std::size_t i = 0; i < all.size(); ++i) t.give(i % 2 == 0 ? t.a : t.b, all[i]);
}

}  // namespace

TEST_CASE("each CUDA call that runs out of memory once") { check_all(failures::fault::out_of_memory); }
TEST_CASE("each CUDA call that fails once for another reason") { check_all(failures::fault::unknown); }
TEST_CASE("each CUDA call from which on all fail") { check_all(failures::fault::sticky); }
TEST_CASE("each host allocation that fails once, and none in a deallocate") { check_all(failures::fault::host_memory); }

TEST_CASE("devices from 64 KiB to 16 MiB are filled, emptied, and filled again") {
  std::size_t without_memory = 0, tried = 0;
  for (std::size_t capacity = 64_KiB; capacity <= 16_MiB; capacity *= 2)
    for (subject const& s : subjects()) {
      INFO(s.name << " on " << capacity << " B");
      trial t(s.make, failures::fault::none, 0, sim::mode::lazy, capacity);
      ++tried;
      std::size_t const bytes = std::min(capacity / 8, 256_KiB);
      auto const all = t.has_stack() ? fill(t, bytes) : std::vector<failures::block*>();
      if (all.empty()) {  // the one has to begin with 1 MiB, the other takes 512 KiB at least
        CHECK(capacity < (t.has_stack() ? 512_KiB : 1_MiB));
        ++without_memory;
        continue;
      }
      empty(t, all);
      // No less than before, out of what is kept; and exactly as much once that went back.
      auto const kept = fill(t, bytes);
      CHECK(kept.size() >= all.size());
      empty(t, kept);
      t.synchronize();
      t.trim();
      if (t.can_trim()) CHECK_EQ(sim::live_allocations(), 0);
      auto const again = fill(t, bytes);
      CHECK_EQ(again.size(), all.size());
      empty(t, again);
      t.end();
      CHECK_EQ(sim::live_bytes(0), 0);
      void* whole = nullptr;
      CHECK_EQ(cudaMalloc(&whole, capacity), cudaSuccess);
      CHECK_EQ(cudaFree(whole), cudaSuccess);
    }
  CHECK(without_memory < tried / 10);
}
