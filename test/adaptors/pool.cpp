#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/pinned.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

// What the host's memory is asked for, and when it says no.
thread_local std::uint64_t host_allocations = 0;
thread_local std::uint64_t host_failure_in = 0;  // 0: never

void* host_memory(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
  ++host_allocations;
  if (host_failure_in != 0 && --host_failure_in == 0) throw std::bad_alloc();
  if (void* const p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return host_memory(bytes); }
void* operator new[](std::size_t bytes) { return host_memory(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a) { return host_memory(bytes, std::size_t(a)); }
void* operator new(std::size_t bytes, std::align_val_t a, std::nothrow_t const&) noexcept {
  return std::aligned_alloc(std::size_t(a), (bytes + std::size_t(a) - 1) / std::size_t(a) * std::size_t(a));
}
// Not inlined, or g++ sees `free` beside `operator new` and takes them for a mismatch.
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace {

stream_ref const legacy = cudaStreamLegacy;
using pooled = pool_resource<source_resource>;

static_assert(resource<pooled> && device_accessible<pooled> && host_accessible<pooled> && host_ordered<pooled>);
static_assert(device_accessible<made_by<decltype(device{} | pool{})>> &&
              !host_accessible<made_by<decltype(device{} | pool{})>>);
static_assert(host_accessible<made_by<decltype(pinned{} | pool{})>> &&
              host_accessible<made_by<decltype(managed{} | pool{})>>);
static_assert(!device_accessible<made_by<decltype(host{} | pool{})>>);
static_assert(!std::is_copy_constructible_v<pooled> && !std::is_move_constructible_v<pooled>);

bool balanced(pool_numbers const& n) { return n.reserved.current == n.allocated.current + n.free + n.pending; }

template <class Recipe>
void serves_on(Recipe const& bottom) {
  fresh_world const world;
  {
    auto memory = make(bottom | pool{.initial_bytes = 1_MiB});
    void* const p = memory.allocate(legacy, 1000, 512);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 512 == 0);
    void* const q = memory.allocate(legacy, 3_MiB);
    memory.deallocate(legacy, p, 1000, 512);
    memory.deallocate(legacy, q, 3_MiB);
    CHECK(memory.numbers().growths == 2);
  }
  CHECK(sim::live_allocations() == 0);
}

}  // namespace

TEST_CASE("a pool stands on every source, and gives everything back") {
  serves_on(device{});
  serves_on(async{});
  serves_on(managed{});
  serves_on(pinned{});
  serves_on(host{});
}

TEST_CASE("no bytes are nothing: no call, no count") {
  source_state state;
  auto memory = make(source{&state} | pool{});
  CHECK(memory.allocate(legacy, 0) == nullptr);
  memory.deallocate(legacy, nullptr, 0);
  CHECK(state.calls == 0);
  CHECK(memory.numbers().allocations == 0);
  CHECK(memory.numbers().deallocations == 0);
}

TEST_CASE("every alignment up to 2 MiB is honoured, and others are refused") {
  source_state state;
  auto memory = make(source{&state} | pool{.initial_bytes = 1_MiB});
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2)
    for (int i = 0; i < 2; ++i) {
      blocks.emplace_back(memory.allocate(legacy, 300, alignment), alignment);
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back().first) % std::max(alignment, default_alignment) == 0);
    }
  for (auto [p, alignment] : blocks) memory.deallocate(legacy, p, 300, alignment);
  pool_numbers const before = memory.numbers();
  for (std::size_t alignment : {std::size_t{0}, std::size_t{3}, std::size_t{768}, max_alignment * 2, SIZE_MAX})
    CHECK_THROWS_AS(memory.allocate(legacy, 1, alignment), std::invalid_argument);
  CHECK(memory.numbers().allocations == before.allocations);
}

TEST_CASE("sizes that cannot be rounded, or that no segment can have, are out of memory") {
  fresh_world const world;
  auto memory = make(device{} | pool{});
  for (std::size_t k = 0; k <= 512; ++k) CHECK_THROWS_AS(memory.allocate(legacy, SIZE_MAX - k), out_of_memory);
  for (std::size_t alignment : {default_alignment, max_alignment})
    for (std::size_t bytes : {detail::max_block_bytes, detail::max_block_bytes + 1, detail::max_block_bytes - 1,
                              detail::max_block_bytes - max_alignment, std::size_t{1} << 62})
      CHECK_THROWS_AS(memory.allocate(legacy, bytes, alignment), out_of_memory);
  CHECK(sim::live_bytes(0) == 0);
  CHECK(memory.numbers().reserved.peak == 0);
  CHECK(memory.numbers().out_of_memory > 512);
}

TEST_CASE("the numbers are exact") {
  source_state state;
  auto memory = make(source{&state} | pool{.initial_bytes = 1_MiB});
  CHECK(memory.numbers().reserved.current == 1_MiB);
  CHECK(memory.numbers().growths == 1);
  void* const a = memory.allocate(legacy, 1);
  void* const b = memory.allocate(legacy, 257);
  pool_numbers n = memory.numbers();
  CHECK(n.requested.current == 258);
  CHECK(n.allocated.current == 768);
  CHECK(n.pending == 0);
  CHECK(n.free == 1_MiB - 768);
  memory.deallocate(legacy, a, 1);
  n = memory.numbers();
  CHECK(n.requested.current == 257);
  CHECK(n.requested.peak == 258);
  CHECK(n.allocated.current == 512);
  CHECK(n.allocated.peak == 768);
  CHECK(n.pending == 256);
  memory.deallocate(legacy, b, 257);
  n = memory.numbers();
  CHECK(n.allocations == 2);
  CHECK(n.deallocations == 2);
  CHECK(n.requested_total == 258);
  CHECK(n.requested.current == 0);
  CHECK(balanced(n));
  memory.synchronize();
  CHECK(memory.numbers().free == 1_MiB);
  CHECK(memory.snapshot().blocks == 1);
  CHECK(memory.snapshot().segments == 1);
  CHECK(memory.snapshot().largest_free == 1_MiB);
  CHECK(memory.trim() == 1_MiB);
  n = memory.numbers();
  CHECK(n.reserved.current == 0);
  CHECK(n.reserved.peak == 1_MiB);
  CHECK(n.releases == 1);
  CHECK(state.live_bytes == 0);
}

TEST_CASE("the numbers agree with a model, and the upstream with the pool, through random traffic") {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    sim::reset();
    source_state state;
    std::mt19937 random(seed);
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    {
      auto memory = make(source{&state} | pool{.max_bytes = seed % 2 ? 8_MiB : 0,
                                               .growth_bytes = seed % 3 ? 1_MiB : 0,
                                               .max_split_bytes = seed % 4 ? 0 : 1_MiB,
                                               .release_threshold = seed % 5 ? ~std::size_t{0} : 3_MiB});
      struct live {
        void* p;
        std::size_t bytes, alignment;
      };
      std::vector<live> blocks;
      pool_numbers m;
      for (int step = 0; step < 2000; ++step) {
        stream_ref const order = below(4) == 0 ? stream_ref(host_order) : legacy;
        if (below(5) < 3) {
          std::size_t const bytes = 1 + below(std::size_t{1} << (6 + below(15)));
          std::size_t const alignment = std::size_t{1} << below(12);
          try {
            void* const p = memory.allocate(order, bytes, alignment);
            blocks.push_back({p, bytes, alignment});
            ++m.allocations;
            m.requested.add(bytes);
            m.requested_total += bytes;
          } catch (out_of_memory const&) {
            ++m.out_of_memory;
          }
        } else if (!blocks.empty()) {
          std::swap(blocks[below(blocks.size())], blocks.back());
          memory.deallocate(order, blocks.back().p, blocks.back().bytes, blocks.back().alignment);
          ++m.deallocations;
          m.requested.current -= blocks.back().bytes;
          blocks.pop_back();
        }
        pool_numbers const n = memory.numbers();
        REQUIRE(balanced(n));
        REQUIRE(n.reserved.current == state.live_bytes);
        REQUIRE(n.growths - n.releases == state.live_count);
        REQUIRE(n.requested.current == m.requested.current);
        REQUIRE(n.requested.peak == m.requested.peak);
        REQUIRE(n.requested_total == m.requested_total);
        REQUIRE(n.allocations == m.allocations);
        REQUIRE(n.deallocations == m.deallocations);
        REQUIRE(n.out_of_memory == m.out_of_memory);
        std::size_t rounded = 0;
        for (live const& b : blocks) rounded += taken(memory, b.bytes, b.alignment);
        if (seed % 4 != 0) REQUIRE(n.allocated.current == rounded);  // whole blocks may be larger
        REQUIRE(n.allocated.current >= rounded);
        if (seed % 2) REQUIRE(state.peak_bytes <= 8_MiB);
      }
      if (seed % 2 == 0) REQUIRE(m.out_of_memory == 0);
      for (live const& b : blocks) memory.deallocate(legacy, b.p, b.bytes, b.alignment);
    }
    CHECK(state.live_bytes == 0);
    CHECK(state.live_count == 0);
  }
}

TEST_CASE("a pool grows by what the options say") {
  source_state state;
  auto memory = make(source{&state} | pool{.growth_bytes = 16_MiB});
  CHECK(state.calls == 0);
  void* const a = memory.allocate(legacy, 1);
  CHECK(memory.numbers().reserved.current == 16_MiB);
  void* const b = memory.allocate(legacy, 17_MiB);
  CHECK(memory.numbers().reserved.current == 34_MiB);  // in steps of 2 MiB
  memory.deallocate(legacy, a, 1);
  memory.deallocate(legacy, b, 17_MiB);
}

TEST_CASE("a growth that fails is tried again smaller, down to what the request needs") {
  sim::reset();
  sim::set_capacity(0, 10_MiB);
  {
    auto memory = make(device{} | pool{.growth_bytes = 64_MiB});
    void* const p = memory.allocate(legacy, 1_MiB);
    CHECK(memory.numbers().reserved.current == 8_MiB);
    void* const q = memory.allocate(legacy, 7_MiB);
    CHECK_THROWS_AS(memory.allocate(legacy, 2_MiB + 1), out_of_memory);
    void* const r = memory.allocate(legacy, 2_MiB);
    CHECK(memory.numbers().reserved.current == 10_MiB);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    memory.deallocate(legacy, p, 1_MiB);
    memory.deallocate(legacy, q, 7_MiB);
    memory.deallocate(legacy, r, 2_MiB);
  }
  CHECK(sim::live_bytes(0) == 0);
  sim::reset();
}

TEST_CASE("a growth step as large as the address space is no reason to refuse") {
  sim::reset();
  sim::set_capacity(0, 64_MiB);
  auto memory = make(device{} | pool{.growth_bytes = SIZE_MAX});
  void* const p = memory.allocate(legacy, 1);
  CHECK(memory.numbers().reserved.current >= 2_MiB);
  memory.deallocate(legacy, p, 1);
}

TEST_CASE("a pool never holds more than max_bytes, and uses all of it") {
  source_state state;
  auto memory = make(source{&state} | pool{.max_bytes = 3_MiB + 100});
  std::vector<void*> blocks;
  CHECK_THROWS_AS(
      [&] {
        for (;;) blocks.push_back(memory.allocate(legacy, 256_KiB));
      }(),
      out_of_memory);
  CHECK(blocks.size() == 12);
  CHECK(memory.numbers().reserved.peak <= 3_MiB + 100);
  for (void* p : blocks) memory.deallocate(legacy, p, 256_KiB);

  source_state other;
  auto small = make(source{&other} | pool{.initial_bytes = 1000, .max_bytes = 1000});
  CHECK(small.numbers().reserved.current <= 1000);
}

TEST_CASE("initial bytes that the upstream does not have are out of memory at make") {
  source_state state;
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>(
      [&] { [[maybe_unused]] auto memory = make(source{&state} | pool{.initial_bytes = 1_MiB}); });
  CHECK(contains(what, "refused by pool; chain: pool > source"));
  CHECK(contains(what, "1.00 MiB"));
  state.fail = failing::other;
  CHECK_THROWS_AS(static_cast<void>(make(source{&state} | pool{.initial_bytes = 1_MiB})), std::logic_error);
}

TEST_CASE("wrong options are refused at make") {
  source_state state;
  CHECK_THROWS_AS(static_cast<void>(make(source{&state} | pool{.initial_bytes = 2_MiB, .max_bytes = 1_MiB})),
                  std::invalid_argument);
  CHECK(state.calls == 0);
}

TEST_CASE("trim gives idle segments back until at most so much is held, and keeps the others") {
  source_state state;
  auto memory = make(source{&state} | pool{.growth_bytes = 2_MiB});
  void* blocks[4];
  for (void*& p : blocks) p = memory.allocate(legacy, 2_MiB);
  CHECK(state.live_count == 4);
  for (int i = 0; i < 3; ++i) memory.deallocate(host_order, blocks[i], 2_MiB);
  CHECK(memory.trim(6_MiB) == 2_MiB);
  CHECK(state.live_count == 3);
  CHECK(memory.trim(6_MiB) == 0);
  CHECK(memory.trim() == 4_MiB);
  CHECK(state.live_count == 1);
  memory.deallocate(host_order, blocks[3], 2_MiB);
  CHECK(memory.trim() == 2_MiB);
  void* const again = memory.allocate(legacy, 1);
  memory.deallocate(legacy, again, 1);
}

TEST_CASE("trim leaves what is pending; after a synchronize it can go") {
  lazy_world const world;
  destroyable_stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  void* const p = memory.allocate(s, 1_MiB);
  fill(s, p, 1_MiB, 1);
  memory.deallocate(s, p, 1_MiB);
  CHECK(memory.trim() == 0);
  CHECK(memory.numbers().pending == 1_MiB);
  memory.synchronize();
  CHECK(memory.numbers().pending == 0);
  CHECK(memory.trim() == 2_MiB);
}

TEST_CASE("above the release threshold a segment that becomes idle goes back at once") {
  source_state state;
  auto memory = make(source{&state} | pool{.growth_bytes = 2_MiB, .release_threshold = 3_MiB});
  void* const p = memory.allocate(legacy, 2_MiB);
  void* const q = memory.allocate(legacy, 2_MiB);
  memory.deallocate(host_order, p, 2_MiB);
  CHECK(state.live_bytes == 2_MiB);
  memory.deallocate(host_order, q, 2_MiB);
  CHECK(state.live_bytes == 2_MiB);  // no more than the threshold: kept
}

TEST_CASE("requests below max_split_bytes are served from segments below it") {
  for (std::size_t const limit : {1_MiB, 2_MiB, 3_MiB, 64_MiB}) {
    CAPTURE(limit);
    source_state state;
    auto memory = make(source{&state} | pool{.growth_bytes = 4_MiB, .max_split_bytes = limit});
    void* const small = memory.allocate(legacy, 1000);
    void* const aligned = memory.allocate(legacy, limit - 256, max_alignment);
    void* const large = memory.allocate(legacy, limit);
    CHECK(memory.numbers().out_of_memory == 0);
    memory.deallocate(host_order, large, limit);
    void* const next = memory.allocate(legacy, 1000);
    bool const inside = next >= large && next < static_cast<std::byte*>(large) + limit;
    CHECK_FALSE(inside);  // the large block is kept whole
    CHECK(memory.allocate(legacy, limit) == large);
    memory.deallocate(legacy, large, limit);
    memory.deallocate(legacy, small, 1000);
    memory.deallocate(legacy, next, 1000);
    memory.deallocate(legacy, aligned, limit - 256, max_alignment);
  }
}

TEST_CASE("before it refuses, a pool gives its idle segments back and asks for one that fits") {
  for (bool const synchronize : {true, false}) {
    CAPTURE(synchronize);
    sim::reset();
    sim::set_capacity(0, 8_MiB);
    auto memory = make(device{} | pool{.growth_bytes = 2_MiB, .synchronize = synchronize});
    void* blocks[4];
    for (void*& p : blocks) p = memory.allocate(legacy, 2_MiB);
    for (void* p : blocks) memory.deallocate(legacy, p, 2_MiB);
    void* const all = memory.allocate(legacy, 8_MiB);
    CHECK(memory.numbers().releases == 4);
    memory.deallocate(legacy, all, 8_MiB);
  }
  sim::reset();
}

TEST_CASE("before it refuses, a pool waits for the work on freed memory, if it may") {
  lazy_world const world;
  sim::set_capacity(0, 4_MiB);
  for (bool const synchronize : {true, false}) {
    CAPTURE(synchronize);
    auto memory = make(device{} | pool{.growth_bytes = 2_MiB, .synchronize = synchronize});
    destroyable_stream const s;
    void* blocks[2];
    for (void*& p : blocks) p = memory.allocate(s, 2_MiB);
    for (void* p : blocks) fill(s, p, 2_MiB, 1);
    for (void* p : blocks) memory.deallocate(s, p, 2_MiB);
    if (synchronize) {
      void* const all = memory.allocate(s, 4_MiB);  // two segments that no wait can join
      CHECK(memory.numbers().synchronizations == 1);
      memory.deallocate(s, all, 4_MiB);
    } else {
      CHECK_THROWS_AS(memory.allocate(s, 4_MiB), out_of_memory);
      CHECK(memory.numbers().synchronizations == 0);
    }
  }
}

TEST_CASE("what fits is found, however many blocks of nearly its size do not") {
  source_state state;
  auto memory = make(source{&state} | pool{.initial_bytes = 64_MiB, .max_bytes = 64_MiB});
  // Sizes of one class, the largest freed first: it lies behind the others. The blocks between stay live.
  std::vector<void*> free, kept;
  for (int i = 0; i < 20; ++i) {
    free.push_back(memory.allocate(legacy, i == 0 ? 2112_KiB - 256 : 2048_KiB));
    kept.push_back(memory.allocate(legacy, 1_MiB + 256));  // not in slabs
  }
  std::size_t const rest = memory.snapshot().largest_free;
  void* const last = memory.allocate(legacy, rest);
  for (std::size_t i = 0; i < free.size(); ++i)
    memory.deallocate(host_order, free[i], i == 0 ? 2112_KiB - 256 : 2048_KiB);
  CHECK(memory.snapshot().largest_free == 2112_KiB - 256);
  auto* const found = static_cast<std::byte*>(memory.allocate(legacy, 2080_KiB));
  CHECK(found == static_cast<std::byte*>(free[0]) + 32_KiB - 256);  // the end of it
  memory.deallocate(legacy, found, 2080_KiB);
  memory.deallocate(legacy, last, rest);
  for (void* p : kept) memory.deallocate(legacy, p, 1_MiB + 256);
}

TEST_CASE("the report names the request, who refused it, the chain, and the pool's bytes") {
  source_state state;
  auto memory = make(source{&state} | pool{.max_bytes = 4_MiB});
  void* const p = memory.allocate(legacy, 1_MiB);
  void* const q = memory.allocate(legacy, 1_MiB);
  void* const r = memory.allocate(legacy, 1000);
  memory.deallocate(host_order, p, 1_MiB);
  memory.deallocate(legacy, q, 1_MiB);
  try {
    memory.allocate(legacy, 4_MiB - 1);
    FAIL("it was not refused");
  } catch (out_of_memory const& failure) {
    std::string const what = failure.what();
    CAPTURE(what);
    CHECK(failure.bytes() == 4_MiB - 1);
    CHECK(failure.request().rounded == 4_MiB);
    CHECK(std::string(failure.refused_by()) == "pool");
    CHECK(contains(what, "refused by pool; chain: pool(4.00 MiB) > source"));
    CHECK(contains(what, "on the legacy default stream"));
    pool_numbers const n = memory.numbers();
    CHECK(contains(what, format_bytes(n.reserved.current) + " reserved = 1.00 KiB allocated (1000 B requested) + " +
                             format_bytes(n.free) + " free + " + format_bytes(n.pending) + " pending"));
    CHECK(contains(what, "largest free piece " + format_bytes(memory.snapshot().largest_free)));
    CHECK(contains(what, "source"));
  }
  CHECK(memory.numbers().requested.current == 1000);
  memory.deallocate(legacy, r, 1000);
}

TEST_CASE("errors of the upstream that are not lack of memory pass through and change nothing") {
  source_state state;
  auto memory = make(source{&state} | pool{});
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(legacy, 1000), std::logic_error);
  CHECK(memory.numbers().reserved.current == 0);
  CHECK(memory.numbers().allocations == 0);
  state.fail = failing::no;
  void* const p = memory.allocate(legacy, 1000);
  memory.deallocate(legacy, p, 1000);
}

TEST_CASE("wrong deallocations are found and change nothing") {
  source_state state;
  auto memory = make(source{&state} | pool{.initial_bytes = 2_MiB});
  auto* const p = static_cast<std::byte*>(memory.allocate(legacy, 1000));
  auto* const other = static_cast<std::byte*>(memory.allocate(legacy, 1000));
  std::byte on_stack{};
  pool_numbers const before = memory.numbers();
  caught_misuse misuse;
  auto const caught = [&](void* q, std::size_t bytes, std::size_t alignment, char const* what) {
    int const count = misuse.count();
    memory.deallocate(legacy, q, bytes, alignment);
    CHECK(misuse.count() == count + 1);
    CHECK_MESSAGE(contains(misuse.last(), what), misuse.last());
    CHECK(contains(misuse.last(), "weir: pool: deallocate of "));
    pool_numbers const n = memory.numbers();
    CHECK(n.deallocations == before.deallocations);
    CHECK(n.allocated.current == before.allocated.current);
    CHECK(n.requested.current == before.requested.current);
  };
  caught(p, 999, default_alignment, "allocated with 1000 B aligned to 256");
  caught(p, 1001, default_alignment, "give back the same");
  caught(p, 0, default_alignment, "with 0 B");
  caught(p, 1000, 512, "with 1000 B aligned to 512");
  caught(p, 1000, 0, "aligned to 0");
  caught(p + 1, 1000, default_alignment, "no live block starts there");
  caught(p + 256, 744, default_alignment, "no live block starts there");
  caught(&on_stack, 1, default_alignment, "not this pool's memory");
  memory.deallocate(legacy, p, 1000);
  {
    int const count = misuse.count();
    memory.deallocate(legacy, p, 1000);
    CHECK(misuse.count() == count + 1);
    CHECK(contains(misuse.last(), "freed twice"));
  }
  memory.deallocate(legacy, other, 1000);
  memory.deallocate(legacy, other, 1000);
  CHECK(contains(misuse.last(), "freed twice"));  // also when it was merged into its neighbours
  CHECK(memory.numbers().deallocations == 2);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE("without a handler of one's own, misuse says what it is and ends the program") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t const child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    source_state state;
    auto memory = make(source{&state} | pool{.initial_bytes = 2_MiB});
    void* const p = memory.allocate(legacy, 1000);
    memory.deallocate(legacy, p, 1000);
    memory.deallocate(legacy, p, 1000);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK(contains(text, "freed twice"));
}

TEST_CASE("WEIR_NO_CACHING=1 makes a pool pass everything straight through") {
  source_state state;
  REQUIRE(setenv("WEIR_NO_CACHING", "1", 1) == 0);
  auto memory = make(source{&state} | pool{.initial_bytes = 2_MiB});
  REQUIRE(setenv("WEIR_NO_CACHING", "0", 1) == 0);
  auto caching = make(source{&state} | pool{});
  REQUIRE(unsetenv("WEIR_NO_CACHING") == 0);
  CHECK(state.live_bytes == 0);
  void* const p = memory.allocate(legacy, 1000, 512);
  CHECK(state.live_bytes == 1000);
  memory.deallocate(legacy, p, 1000, 512);
  CHECK(state.live_bytes == 0);
  CHECK(memory.trim() == 0);
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 1000); });
  CHECK(contains(what, "refused by source; chain: pool > source"));
  state.fail = failing::no;
  void* const q = caching.allocate(legacy, 1000);
  CHECK(state.live_bytes > 1000);
  caching.deallocate(legacy, q, 1000);
}

TEST_CASE("deallocate allocates no host memory") {
  fresh_world const world;
  source_state state;
  auto memory = make(source{&state} | pool{.initial_bytes = 4_MiB, .release_threshold = 1_MiB});
  destroyable_stream const s;
  std::vector<std::pair<void*, stream_ref>> blocks;
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    for (stream_ref const order : {legacy, stream_ref(host_order), stream_ref(s), stream_ref(cudaStreamPerThread)})
      for (int i = 0; i < 20; ++i)
        blocks.emplace_back(memory.allocate(order, 1000 * static_cast<std::size_t>(i + 1)), order);
    std::size_t i = 0;
    std::uint64_t const before = host_allocations;
    for (auto [p, order] : blocks) memory.deallocate(order, p, 1000 * (i++ % 20 + 1));
    // The events of the simulated runtime are host memory; they are made in the first rounds.
    if (round > 10) REQUIRE(host_allocations == before);
    blocks.clear();
  }
}

TEST_CASE("when the host's memory fails inside allocate, nothing has changed and the next one works") {
  lazy_world const world;
  int failures = 0;
  for (std::uint64_t k = 1;; ++k) {
    CAPTURE(k);
    source_state state;
    bool failed = false;
    {
      auto memory = make(source{&state} | pool{.max_bytes = 64_MiB, .growth_bytes = 2_MiB});
      std::vector<std::unique_ptr<destroyable_stream>> streams;
      for (int i = 0; i < 12; ++i) streams.push_back(std::make_unique<destroyable_stream>());
      std::vector<void*> blocks(8);
      for (void*& p : blocks) p = memory.allocate(host_order, 60'000);
      for (std::size_t i = 0; i < 5; ++i) {  // leave work on so many streams that the pool is short of room for more
        void* const p = memory.allocate(host_order, 1000);
        REQUIRE(cudaLaunchHostFunc(
                    streams[i]->get(), [](void*) {}, nullptr) == cudaSuccess);
        memory.deallocate(*streams[i], p, 1000);
      }
      blocks.reserve(410);
      std::uint64_t left = k;
      // New streams, new records, a larger table and new segments, each of which needs host memory.
      for (std::size_t i = 0; i < 400; ++i) {
        pool_numbers const before = memory.numbers();
        stream_ref const order = *streams[i / 80];
        std::uint64_t const count = host_allocations;
        try {
          host_failure_in = left;
          blocks.push_back(memory.allocate(order, 60'000));
          host_failure_in = 0;
        } catch (std::bad_alloc const&) {
          host_failure_in = 0;
          failed = true;
          pool_numbers const n = memory.numbers();
          REQUIRE(n.requested.current == before.requested.current);
          REQUIRE(n.allocated.current == before.allocated.current);
          REQUIRE(n.allocations == before.allocations);
          REQUIRE(balanced(n));
          REQUIRE(n.reserved.current == state.live_bytes);
          // A free on a stream that is new here needs no room that allocate could not make.
          for (std::size_t extra = 6; extra < 12 && !blocks.empty(); ++extra) {
            memory.deallocate(*streams[extra], blocks.back(), 60'000);
            blocks.pop_back();
          }
          blocks.push_back(memory.allocate(order, 60'000));
        }
        left = failed || host_allocations - count >= left ? 0 : left - (host_allocations - count);
      }
      for (void* p : blocks) memory.deallocate(*streams[0], p, 60'000);
    }
    REQUIRE(state.live_bytes == 0);
    REQUIRE(state.live_count == 0);
    if (!failed && k > 100) break;
    failures += failed;
    REQUIRE(k < 1000);
  }
  CHECK(failures > 10);
}

namespace {

/// Lets the k-th runtime call that is made inside `during` fail.
class one_failure {
 public:
  one_failure(std::uint64_t k, cudaError_t code) : left_(k), code_(code) {}
  template <class F>
  auto during(F f) {
    struct ended {
      one_failure* self;
      std::uint64_t before = sim::calls();
      ~ended() {
        sim::clear_failure();
        std::uint64_t const made = sim::calls() - before;
        self->left_ = made >= self->left_ ? 0 : self->left_ - made;
      }
    };
    ended const at_end{this};
    if (left_ != 0) sim::fail_call(left_, code_);
    return f();
  }
  bool happened() const { return left_ == 0; }

 private:
  std::uint64_t left_;
  cudaError_t code_;
};

}  // namespace

TEST_CASE("whichever runtime call fails, nothing is lost, nothing comes too early, and the next try works") {
  for (cudaError_t const code : {cudaErrorUnknown, cudaErrorMemoryAllocation, cudaErrorInvalidResourceHandle})
    for (std::uint64_t k = 1;; ++k) {
      CAPTURE(k);
      CAPTURE(code);
      lazy_world const world;
      source_state state;
      queued_checks checks;
      one_failure failure(k, code);
      {
        std::unique_ptr<destroyable_stream> streams[3];
        for (auto& s : streams) s = std::make_unique<destroyable_stream>();
        auto memory = make(source{&state} | pool{.max_bytes = 256_KiB, .pending = when_pending::wait});
        auto const order = [&](int i) -> stream_ref {
          if (i % 5 == 3) return cudaStreamPerThread;
          return i % 5 == 4 ? legacy : stream_ref(*streams[i % 5]);
        };
        for (int i = 0; i < 40; ++i) {
          auto const value = static_cast<unsigned char>(i);
          std::size_t const bytes = i % 7 == 6 ? 256_KiB : i % 3 == 0 ? 100_KiB : 60_KiB;
          pool_numbers const before = memory.numbers();
          void* p = nullptr;
          try {
            p = failure.during([&] { return memory.allocate(order(i), bytes); });
          } catch (std::exception const&) {
            REQUIRE(failure.happened());
            REQUIRE(memory.numbers().requested.current == before.requested.current);
            REQUIRE(memory.numbers().allocations == before.allocations);
            REQUIRE(cudaPeekAtLastError() == cudaSuccess);
            p = memory.allocate(order(i), bytes);
          }
          REQUIRE(balanced(memory.numbers()));
          checks.write(order(i), p, bytes, value);
          checks.expect(order(i), p, bytes, value);
          failure.during([&] { memory.deallocate(order(i), p, bytes); });
          REQUIRE(cudaPeekAtLastError() == cudaSuccess);
          REQUIRE(state.peak_bytes <= 256_KiB);
          if (i % 10 == 9) {  // the last becomes the first: it ran before all that was queued earlier
            streams[(i / 10) % 3]->finish();
            streams[(i / 10) % 3] = std::make_unique<destroyable_stream>();
          }
        }
        failure.during([&] { memory.synchronize(); });
        failure.during([&] { memory.trim(); });
        REQUIRE(balanced(memory.numbers()));
      }
      sim::run_all();
      REQUIRE(checks.done() == 40);
      REQUIRE(checks.wrong() == 0);
      REQUIRE(state.live_bytes == 0);
      if (!failure.happened()) break;
      REQUIRE(k < 5000);
    }
}

TEST_CASE("a pool that ends waits for pending work before it gives the memory back") {
  lazy_world const world;
  source_state state;
  queued_checks checks;
  destroyable_stream const gone_first;
  {
    auto memory = make(source{&state} | pool{});
    destroyable_stream const s;
    for (stream_ref const order : {legacy, stream_ref(s), stream_ref(cudaStreamPerThread), stream_ref(gone_first)}) {
      void* const p = memory.allocate(order, 1_MiB);
      checks.expect(order, p, 0, 0);
      memory.deallocate(order, p, 1_MiB);
    }
    CHECK(checks.done() == 0);
  }
  CHECK(checks.done() == 4);
  CHECK(state.live_bytes == 0);
  CHECK(state.live_count == 0);
}

TEST_CASE("a pool leaves no events behind") {
  lazy_world const world;
  {
    auto memory = make(device{} | pool{});
    for (int i = 0; i < 20; ++i) {
      destroyable_stream const s;
      memory.deallocate(s, memory.allocate(s, 1000), 1000);
    }
  }
  CHECK(sim::calls("cudaEventCreateWithFlags") == sim::calls("cudaEventDestroy"));
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("a pool can stand on a pool, and be shared and erased") {
  fresh_world const world;
  source_state state;
  {
    auto outer = make(source{&state} | pool{.initial_bytes = 8_MiB} | pool{.growth_bytes = 2_MiB});
    void* const p = outer.allocate(legacy, 1000);
    CHECK(find<pool_resource>(outer).numbers().reserved.current == 2_MiB);
    CHECK(outer.upstream().numbers().allocated.current == 2_MiB);
    outer.deallocate(legacy, p, 1000);

    auto first = make(share(outer) | pool{});
    void* const q = first.allocate(legacy, 1000);
    first.deallocate(legacy, q, 1000);
  }
  CHECK(state.live_bytes == 0);
}

TEST_CASE("an aligned request whose room is as large as a block kept whole is served by a segment of its own") {
  source_state state;
  auto memory = make(source{&state} | pool{.growth_bytes = 64_MiB, .max_split_bytes = 1_MiB});
  void* const p = memory.allocate(legacy, 256_KiB, 2_MiB);  // 2.25 MiB have to be looked for
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 2_MiB == 0);
  CHECK(memory.numbers().reserved.current < 5_MiB);
  memory.deallocate(legacy, p, 256_KiB, 2_MiB);
}
