// needs: tsan
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using binned = binning_resource<source_resource>;
static_assert(resource<binned>);
static_assert(device_accessible<binned> && host_accessible<binned> && host_ordered<binned>);
static_assert(!host_accessible<binning_resource<device_resource>>);
static_assert(!device_accessible<binning_resource<host_resource>>);

std::string refusal(binning const& options) {
  source_state state;
  return message_of<std::invalid_argument>([&] { [[maybe_unused]] auto memory = make(source{&state} | options); });
}

/// An adaptor that counts what reaches it.
template <resource Upstream>
class counted_resource;
struct counted {
  int* allocations;
  int* deallocations;
  template <resource Upstream>
  using on = counted_resource<Upstream>;
};
template <resource Upstream>
class counted_resource {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;
  template <recipe F>
  counted_resource(F const& upstream, counted c) : upstream_(upstream()), counts_(c) {}
  void* allocate(stream_ref s, std::size_t bytes, std::size_t alignment) {
    ++*counts_.allocations;
    return upstream_.allocate(s, bytes, alignment);
  }
  void deallocate(stream_ref s, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    ++*counts_.deallocations;
    upstream_.deallocate(s, p, bytes, alignment);
  }

 private:
  Upstream upstream_;
  counted counts_;
};

/// A resource of the bare two functions, which states no facts.
struct bare_resource {
  void* allocate(stream_ref, std::size_t bytes, std::size_t) { return ::operator new (bytes, std::align_val_t{2_MiB}); }
  void deallocate(stream_ref, void* p, std::size_t, std::size_t) noexcept {
    ::operator delete (p, std::align_val_t{2_MiB});
  }
};
struct bare {
  bare_resource operator()() const { return {}; }
};

}  // namespace

TEST_CASE("wrong options are refused, and the bin is named") {
  CHECK(contains(refusal({}), "there are 0 bins; there must be 1 to 64"));
  CHECK(contains(refusal({std::vector<bin>(65, bin{1})}), "there are 65 bins"));
  CHECK(contains(refusal({{bin{0}}}), "bins[0] is for 0 B; it must be for at least 1 B"));
  CHECK(contains(refusal({{bin{1_KiB}, bin{1_KiB}}}),
                 "bins[1] is for 1024 B; it must be larger than the one before, 1024"));
  CHECK(contains(refusal({{bin{2_KiB}, bin{1_KiB}}}), "bins[1] is for 1024 B"));
  CHECK(contains(refusal({{bin{1_KiB, pool{.max_bytes = 1}}}}), "bins[0] is for 1024 B: pool: max_bytes is 1 B"));
  CHECK(contains(refusal({{bin{1_KiB, fixed_size{}}}}), "fixed_size: block_bytes is 0"));
  CHECK(binning{{bin{1_KiB}, bin{2_KiB}}}.valid());
  CHECK_FALSE(binning{}.valid());
  CHECK(contains(message_of<std::invalid_argument>([] { binning::powers_of_two(4, 3); }), "from 2^4 to 2^3"));
  CHECK_THROWS_AS(binning::powers_of_two(8, 40), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world,
                  "a request goes to the smallest bin that serves it, and beyond the last to the upstream") {
  source_state state;
  int in[3] = {}, out[3] = {};
  auto memory =
      make(source{&state} | binning{.bins = {bin{1_KiB, counted{&in[0], &out[0]}}, bin{1_MiB, counted{&in[1], &out[1]}},
                                             bin{3_MiB, counted{&in[2], &out[2]}}}});
  auto const pass = [&](std::size_t bytes) {
    memory.deallocate(host_order, memory.allocate(host_order, bytes), bytes);
  };
  pass(1);
  pass(1_KiB);
  CHECK(in[0] == 2);
  pass(1_KiB + 1);
  pass(1_MiB);
  CHECK(in[1] == 2);
  pass(1_MiB + 1);
  pass(3_MiB);
  CHECK(in[2] == 2);
  pass(3_MiB + 1);
  pass(100_MiB);
  CHECK(in[0] + in[1] + in[2] == 6);
  for (int i = 0; i < 3; ++i) CHECK(in[i] == out[i]);
  CHECK(state.calls == 16);
}

TEST_CASE_FIXTURE(fresh_world, "every size finds the bin that a search from the front finds") {
  std::vector<std::vector<std::size_t>> const sets = {{1},
                                                      {7, 8, 9, 10},
                                                      {256, 512, 1024},
                                                      {1000, 1001, 1002, 1003, 5000},
                                                      {3, 64_KiB, 1_MiB, 3_MiB, std::size_t{1} << 39},
                                                      {std::size_t{1} << 62, SIZE_MAX - 1}};
  for (auto set : sets) {
    if (set.size() == 1)  // the most there can be, all within one power of two
      for (std::size_t i = 1; i < 64; ++i) set.push_back(1_MiB + i * 4_KiB);
    source_state state;
    binning options;
    int calls = 0;
    for (std::size_t const bytes : set) options.bins.emplace_back(bytes, counted{&calls, &calls});
    auto memory = make(source{&state} | options);
    CHECK(memory.bin_count() == set.size());
    auto const check = [&](std::size_t bytes) {
      std::size_t expected = 0;
      while (expected < set.size() && bytes > set[expected]) ++expected;
      if (memory.bin_of(bytes) != expected) FAIL_CHECK(bytes << " B go to bin " << memory.bin_of(bytes));
    };
    for (std::size_t bytes = 1; bytes < 5000; ++bytes) check(bytes);
    for (unsigned bit = 12; bit < 64; ++bit)
      for (std::size_t const part : {0U, 1U, 3U, 5U, 8U, 15U})
        for (int d = -1; d <= 1; ++d) {
          std::size_t const base = std::size_t{1} << bit;
          check(base + base / 16 * part + static_cast<std::size_t>(d));
        }
    for (std::size_t const b : set)
      for (int d = -1; d <= 1; ++d)
        if (b + static_cast<std::size_t>(d) != 0) check(b + static_cast<std::size_t>(d));
    check(SIZE_MAX);
  }
}

TEST_CASE_FIXTURE(fresh_world, "bins take nothing before they are used, and no more than they need") {
  source_state state;
  auto memory = make(source{&state} | binning::powers_of_two(8, 26));
  CHECK(memory.bin_count() == 19);
  CHECK(memory.bin_bytes(0) == 256);
  CHECK(memory.bin_bytes(18) == 64_MiB);
  CHECK(state.calls == 0);
  void* const p = memory.allocate(host_order, 60_MiB);
  CHECK(state.live_bytes == 64_MiB);  // the bin's chunk is one block
  void* const q = memory.allocate(host_order, 200);
  CHECK(state.live_bytes == 66_MiB);
  CHECK(memory.reserved() == 66_MiB);
  memory.deallocate(host_order, p, 60_MiB);
  memory.deallocate(host_order, q, 200);
  CHECK(state.calls == 2);
}

TEST_CASE_FIXTURE(fresh_world, "a bin of another device than the upstream's is refused when it is made") {
  auto other = make(device{.device = 1} | pool{});
  auto const made = [&](int upstream) {
    static_cast<void>(
        make(device{.device = upstream} | binning{.bins = {bin{1_KiB, [&](auto) { return share(other); }}}}));
  };
  CHECK(contains(message_of<std::invalid_argument>([&] { made(0); }),
                 "weir: binning: the upstream is for device 0, the bin for 1024 B for device 1; make both for one"));
  CHECK_NOTHROW(made(1));
}

TEST_CASE_FIXTURE(fresh_world, "a bin that is elsewhere and names no device is made for the upstream's") {
  auto memory = make(device{.device = 1} | binning{.bins = {bin{1_KiB, [](auto) { return async{} | pool{}; }}}});
  void* const p = memory.allocate(host_order, 100);
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, p) == cudaSuccess);
  CHECK(attributes.device == 1);
  CHECK(current_device() == 0);
  memory.deallocate(host_order, p, 100);
}

TEST_CASE_FIXTURE(fresh_world, "a bin whose memory is out of reach is refused when it is made") {
  auto for_host = make(host{} | pool{});
  auto for_both = make(pinned{} | pool{});
  auto for_device = make(device{} | pool{});
  auto const refused = [](auto const& upstream, auto& other) {
    return message_of<std::invalid_argument>([&] {
      static_cast<void>(make(upstream | binning{.bins = {bin{1_KiB, [&](auto) { return share(other); }}}}));
    });
  };
  CHECK(contains(refused(device{}, for_host), "weir: binning: the device cannot reach memory of the bin for 1024 B"));
  CHECK(contains(refused(pinned{}, for_device), "weir: binning: the host cannot reach memory of the bin for 1024 B"));
  CHECK(contains(refused(host{}, for_device), "weir: binning: the host cannot reach memory of the bin for 1024 B"));
  any_resource erased(share(for_both));
  CHECK(contains(refused(pinned{}, erased), "in a type that says so: any_host_device_resource"));
  CHECK_NOTHROW(static_cast<void>(
      make(device{} | binning{.bins = {bin{1_KiB, [&](auto) { return share(for_both); }}, bin{2_KiB, pool{}}}})));
}

TEST_CASE_FIXTURE(fresh_world, "a bin may be any stack on the shared upstream, or something else altogether") {
  source_state state;
  source_state other_state;
  auto other = make(source{&other_state});
  {
    auto memory =
        make(source{&state} | limit{64_MiB} |
             binning{.bins = {bin{1_KiB, [&](auto) { return share(other); }}, bin{64_KiB, pool{}},
                              bin{1_MiB, [](auto up) { return up | pool{.growth_bytes = 4_MiB} | limit{2_MiB}; }}}});
    void* const a = memory.allocate(host_order, 1000);
    CHECK(other_state.live_bytes == 1000);
    CHECK(state.live_bytes == 0);
    void* const b = memory.allocate(host_order, 10'000);
    CHECK(state.live_bytes == 2_MiB);
    void* const c = memory.allocate(host_order, 1_MiB);
    void* const d = memory.allocate(host_order, 1_MiB);
    CHECK(find<limit_resource>(memory).used() == 6_MiB);  // the stack's own, not the bin's
    std::string const what = message_of<out_of_memory>([&] { memory.allocate(host_order, 1_MiB); });
    CHECK(contains(what,
                   "refused by limit; chain: binning(3 bins) > limit(2.00 MiB) > pool > limit(64.00 MiB) > source"));
    CHECK(contains(what, "3 bins for up to 1.00 MiB hold 6.00 MiB"));
    memory.deallocate(host_order, a, 1000);
    memory.deallocate(host_order, b, 10'000);
    memory.deallocate(host_order, c, 1_MiB);
    memory.deallocate(host_order, d, 1_MiB);
    CHECK(memory.trim() == 6_MiB);  // through the limit, to the pool below
    CHECK(state.live_bytes == 0);
  }
  CHECK(other_state.live_bytes == 0);
}

TEST_CASE_FIXTURE(fresh_world, "trim keeps what it is told to") {
  source_state state;
  auto memory = make(source{&state} | binning{.bins = {bin{64_KiB, pool{}}, bin{2_MiB, pool{}}, bin{4_MiB, pool{}}}});
  std::pair<void*, std::size_t> got[] = {{nullptr, 1_KiB}, {nullptr, 2_MiB}, {nullptr, 4_MiB}};
  for (auto& [p, n] : got) p = memory.allocate(host_order, n);
  CHECK(memory.reserved() == 8_MiB);
  CHECK(memory.trim() == 0);
  for (auto& [p, n] : got) memory.deallocate(host_order, p, n);
  CHECK(memory.trim(8_MiB) == 0);
  CHECK(memory.trim(5_MiB) == 4_MiB);
  CHECK(memory.trim(3_MiB) == 2_MiB);
  CHECK(memory.trim(2_MiB) == 0);
  CHECK(memory.trim() == 2_MiB);
  CHECK(memory.reserved() == 0);
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(fresh_world, "an upstream, or a bin, that returns null is out of memory") {
  source_state state;
  int in = 0, out = 0;
  auto memory = make(source{&state} | binning{.bins = {bin{1_KiB, counted{&in, &out}}, bin{64_KiB, pool{}}}});
  memory.deallocate(host_order, memory.allocate(host_order, 64_KiB), 64_KiB);
  state.fail = failing::null;
  for (std::size_t const bytes : {1_KiB, 1_MiB}) {
    std::string const what = message_of<out_of_memory>([&] { memory.allocate(host_order, bytes); });
    CHECK(contains(what, "refused by a resource that returned null; chain: binning(2 bins) > source"));
    CHECK(memory.reserved() == 0);  // bins gave back what was idle first
  }
}

TEST_CASE_FIXTURE(fresh_world,
                  "what idles in one bin serves another, or the upstream, before memory counts as exhausted") {
  for (auto const mode : {sim::mode::immediate, sim::mode::lazy}) {
    sim::reset();
    sim::set_mode(mode);
    sim::set_capacity(0, 16_MiB);
    auto memory = make(device{} | binning{.bins = {bin{1_MiB, pool{}}, bin{4_MiB, pool{}}}});
    weir::stream const s;
    std::vector<void*> small;
    for (int i = 0; i < 16; ++i) small.push_back(memory.allocate(s, 1_MiB));
    CHECK_THROWS_AS(memory.allocate(s, 4_MiB), out_of_memory);
    for (void* p : small) {
      cudaMemsetAsync(p, 1, 1_MiB, s.get());
      memory.deallocate(s, p, 1_MiB);
    }
    void* const p = memory.allocate(s, 4_MiB);
    CHECK(p != nullptr);
    memory.deallocate(s, p, 4_MiB);
    void* const all = memory.allocate(s, 16_MiB);  // of the upstream
    CHECK(memory.reserved() == 0);
    memory.deallocate(s, all, 16_MiB);
    sim::run_all();
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_FIXTURE(fresh_world, "what a pool on a fallback holds in a bin counts, and is given back for another bin") {
  source_state state;
  auto memory = make(source{&state} | limit{4_MiB} |
                     binning{.bins = {bin{64_KiB, [](auto up) { return up | fallback{managed{}} | pool{}; }},
                                      bin{4_MiB, [](auto up) { return up; }}}});
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(memory.reserved() == 2_MiB);
  void* p = nullptr;
  CHECK_NOTHROW(p = memory.allocate(host_order, 4_MiB));
  CHECK(memory.reserved() == 0);
  memory.deallocate(host_order, p, 4_MiB);
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(memory.trim() == 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "an upstream that throws a plain bad_alloc is tried again after a trim, too") {
  struct picky_resource {
    std::size_t held = 0;
    void* allocate(stream_ref, std::size_t bytes, std::size_t) {
      if (held + bytes > 4_MiB) throw std::bad_alloc();
      held += bytes;
      return ::operator new (bytes, std::align_val_t{256});
    }
    void deallocate(stream_ref, void* p, std::size_t bytes, std::size_t) noexcept {
      held -= bytes;
      ::operator delete (p, std::align_val_t{256});
    }
  };
  picky_resource picky;
  auto memory = make(share(picky) | binning{.bins = {bin{64_KiB}}});
  memory.deallocate(host_order, memory.allocate(host_order, 1), 1);
  CHECK(picky.held != 0);
  void* const p = memory.allocate(host_order, 4_MiB);
  CHECK_THROWS_AS(memory.allocate(host_order, 1_MiB), std::bad_alloc);
  memory.deallocate(host_order, p, 4_MiB);
  CHECK(picky.held == 0);
}

TEST_CASE_FIXTURE(fresh_world, "other failures pass through unchanged") {
  source_state state;
  auto memory = make(source{&state} | binning{.bins = {bin{64_KiB}}});
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(host_order, 1), std::logic_error);
  CHECK_THROWS_AS(memory.allocate(host_order, 1_MiB), std::logic_error);
  CHECK_THROWS_AS(memory.allocate(host_order, 1, 3), std::invalid_argument);
  state.fail = failing::no;
  for (std::size_t const bytes : {SIZE_MAX, SIZE_MAX - 255, SIZE_MAX - 256})
    CHECK_THROWS_AS(memory.allocate(host_order, bytes), out_of_memory);
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(fresh_world, "zero bytes are nothing") {
  source_state state;
  auto memory = make(source{&state} | binning{.bins = {bin{64_KiB}}});
  CHECK(memory.allocate(host_order, 0) == nullptr);
  memory.deallocate(host_order, nullptr, 0);
  CHECK(state.calls == 0);
}

TEST_CASE_FIXTURE(fresh_world, "a wrong size is reported by the bin that it leads to") {
  source_state state;
  auto memory = make(source{&state} | binning{.bins = {bin{1_KiB}, bin{64_KiB}}});
  void* const p = memory.allocate(host_order, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(host_order, p, 999);
    CHECK(contains(misuse.last(), "allocated with 1000 B"));
    memory.deallocate(host_order, p, 2000);
    CHECK(contains(misuse.last(), "not this pool's memory"));
    memory.deallocate(host_order, p, 0);
    CHECK(misuse.count() == 3);
  }
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE_FIXTURE(fresh_world, "it stands on any upstream: erased, shared, or one that states nothing") {
  auto const options = binning{.bins = {bin{64_KiB}, bin{1_MiB, pool{}}}};
  auto const use = [](auto&& memory) {
    for (std::size_t const bytes : {100_KiB, 100_MiB, 1_KiB}) {
      void* const p = memory.allocate(host_order, bytes);
      CHECK(p != nullptr);
      memory.deallocate(host_order, p, bytes);
    }
  };
  use(make(any_resource{device{}} | options));
  use(make(host{} | options));
  use(make(pinned{} | options));
  use(make(bare{} | options));
  auto base = make(managed{} | pool{});
  use(make(share(base) | options));
  use(make(any_host_device_ref(base) | options));
  use(make(device{} | options | options));
  CHECK(sim::live_allocations() != 0);  // the shared pool's
  base.trim();
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_FIXTURE(fresh_world, "eight threads with a stream each, in all bins and beyond") {
  {
    auto memory = make(device{} | pool{} | binning::powers_of_two(10, 14));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        weir::stream const s;
        std::vector<std::pair<unsigned char*, std::size_t>> mine;
        auto random = static_cast<std::uint32_t>(t + 1);
        for (int i = 0; i < 300; ++i) {
          random = random * 1664525 + 1013904223;
          std::size_t const bytes = 1 + (random >> 8) % 20'000;
          auto* const p = static_cast<unsigned char*>(memory.allocate(s, bytes));
          p[0] = p[bytes - 1] = static_cast<unsigned char>(t);
          mine.emplace_back(p, bytes);
          if (i % 50 == 49) memory.trim(1_MiB);
          if (mine.size() < 6) continue;
          for (auto [q, n] : mine) {
            if (q[0] != t || q[n - 1] != t) ++wrong;
            memory.deallocate(s, q, n);
          }
          mine.clear();
        }
        for (auto [q, n] : mine) memory.deallocate(s, q, n);
      });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("a budget that is full in a capture makes bins give nothing back for it") {
  watched_world const world;
  auto memory = make(device{} | binning{{bin{256_KiB, pool{}}, bin{1_MiB, pool{}}}} | limit{1_MiB});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  void* live[4];
  for (void*& p : live) p = memory.allocate(s, 256_KiB);
  memory.deallocate(s, live[0], 256_KiB);
  memory.deallocate(s, live[2], 256_KiB);
  auto const& bins = find<binning_resource>(memory);
  std::size_t const held = bins.reserved();
  CHECK_THROWS_AS(memory.allocate(s, 512_KiB), out_of_memory);  // the capture freed as much, but in another bin
  CHECK(bins.reserved() == held);
  memory.deallocate(s, live[1], 256_KiB);
  memory.deallocate(s, live[3], 256_KiB);
  captured_graph const graph(s);
}
