// needs: tsan
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/pinned.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/opened.hpp"
#include "support/test_source.hpp"
#include "support/turns.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const legacy;
using limited = limit_resource<source_resource>;
static_assert(resource<limited>);
static_assert(device_accessible<limited> && host_accessible<limited> && host_ordered<limited>);

std::string refusal(limit const& options) {
  source_state state;
  return message_of<std::invalid_argument>([&] { [[maybe_unused]] auto memory = make(source{&state} | options); });
}

void run_threads(int count, auto work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

}  // namespace

namespace weir::test {
struct charges_of_limit {
  using type = detail::bounded_charges limited::*;
  friend type member(charges_of_limit);
};
template struct opened<charges_of_limit, &limited::used_>;
}  // namespace weir::test

TEST_CASE("a budget in bytes asks CUDA nothing when it is made") {
  sim::reset();
  source_state state;
  auto memory = make(source{&state} | limit{.max_bytes = 1_MiB});
  CHECK(memory.max_bytes() == 1_MiB);
  CHECK(sim::calls() == 0);
}

TEST_CASE("wrong options are refused with their values") {
  CHECK(contains(refusal({}), "give exactly one"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .fraction = 0.5}), "give exactly one"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .fraction = 0.5}), "1048576"));
  CHECK(contains(refusal({.fraction = 1.5}), "at most 1"));
  CHECK(contains(refusal({.fraction = -0.5}), "at most 1"));
  CHECK(contains(refusal({.fraction = 0.5, .fraction_of_free = 0.5}), "give exactly one"));
  CHECK(contains(refusal({.fraction_of_free = 1.5}), "at most 1"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .soft_bytes = 2_MiB}), "soft_bytes 2097152; it must not be more"));
  CHECK(contains(refusal({.fraction = 0.5, .soft_bytes = 1024_GiB}), "less than soft_bytes, 1099511627776"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .reserve_bytes = 2_MiB}), "reserve_bytes 2097152; it must not be more"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .on_soft = [](std::size_t) {}}), "on_soft is given, but soft_bytes"));
  CHECK(contains(refusal({.fraction = std::numeric_limits<double>::quiet_NaN()}), "at most 1"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .granularity = 0}), "power of two"));
  CHECK(contains(refusal({.max_bytes = 1_MiB, .granularity = 48}), "power of two"));
  CHECK(contains(refusal({.max_bytes = 100}), "less than one granularity"));
  CHECK(limit{1_MiB}.valid());
  CHECK_FALSE(limit{}.valid());
}

TEST_CASE("requests are charged rounded up, and credited the same when they are freed") {
  source_state state;
  auto memory = make(source{&state} | limit{.max_bytes = 4_KiB});
  void* const a = memory.allocate(legacy, 1);
  void* const b = memory.allocate(legacy, 257);
  CHECK(memory.used() == 256 + 512);
  CHECK(state.live_bytes == 258);  // the upstream gets the size that was asked for
  memory.deallocate(legacy, b, 257);
  CHECK(memory.used() == 256);
  memory.deallocate(legacy, a, 1);
  CHECK(memory.used() == 0);
  CHECK(memory.peak() == 768);
  CHECK(state.live_count == 0);
}

TEST_CASE("a limit with a name has it in reports and errors") {
  source_state state;
  auto memory = make(source{&state} | limit{.max_bytes = 1_KiB, .name = "search"});
  CHECK(report_of(memory).chain().starts_with("search: limit(1.00 KiB) > "));
  CHECK(report_of(memory).lines().starts_with("  search: limit 1.00 KiB, 0 B charged"));
  CHECK(contains(message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(legacy, 2_KiB)); }),
                 "chain: search: limit(1.00 KiB) > "));
  auto odd = make(source{&state} | limit{.max_bytes = 1_KiB, .name = "a\nb"});
  CHECK(report_of(odd).chain().starts_with("a\\nb: limit(1.00 KiB) > "));  // a name cannot begin a line
}

TEST_CASE("the granularity is what the options say") {
  source_state state;
  auto memory = make(source{&state} | limit{.max_bytes = 4_MiB, .granularity = 2_MiB});
  void* const p = memory.allocate(legacy, 1);
  CHECK(memory.used() == 2_MiB);
  memory.deallocate(legacy, p, 1);
}

TEST_CASE("the budget can be filled to its last byte, and not beyond") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  void* const most = memory.allocate(legacy, 1_MiB - 256);
  void* const rest = memory.allocate(legacy, 256);
  CHECK(memory.used() == memory.max_bytes());
  CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
  memory.deallocate(legacy, rest, 256);
  CHECK_THROWS_AS(memory.allocate(legacy, 257), out_of_memory);
  void* const again = memory.allocate(legacy, 256);
  memory.deallocate(legacy, again, 256);
  memory.deallocate(legacy, most, 1_MiB - 256);
  CHECK(memory.refused() == 2);
  CHECK(memory.used() == 0);
}

TEST_CASE("a refusal says who refused, what was asked and what is left, and asks nothing of the upstream") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  void* const p = memory.allocate(legacy, 256_KiB);
  try {
    memory.allocate(legacy, 1_MiB - 1);
    FAIL("it was not refused");
  } catch (out_of_memory const& failure) {
    CHECK(failure.bytes() == 1_MiB - 1);
    CHECK(failure.request().rounded == 1_MiB);
    CHECK(std::string(failure.refused_by()) == "limit");
    CHECK(contains(failure.what(), "limit(1.00 MiB) > source"));
    CHECK(contains(failure.what(), "256.00 KiB charged, 768.00 KiB left"));
  }
  CHECK(state.calls == 1);
  CHECK(memory.used() == 256_KiB);
  CHECK(memory.peak() == 256_KiB);
  memory.deallocate(legacy, p, 256_KiB);
}

TEST_CASE("sizes that cannot be rounded are refused and charge nothing") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  void* const live = memory.allocate(legacy, 256);
  for (std::size_t const k : {0U, 1U, 10U, 254U, 255U, 256U, 1000U}) {
    CHECK_THROWS_AS(memory.allocate(legacy, SIZE_MAX - k), out_of_memory);
    CHECK(memory.used() == 256);
  }
  CHECK(state.calls == 1);
  memory.deallocate(legacy, live, 256);
}

TEST_CASE("a failure further down takes the charge back and passes through") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 1000); });
  CHECK(contains(what, "refused by source; chain: limit(1.00 MiB) > source"));
  CHECK(contains(what, "0 B charged, 1.00 MiB left"));
  CHECK(memory.used() == 0);
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(legacy, 1000), std::logic_error);
  CHECK(memory.used() == 0);
  CHECK(memory.peak() == 0);
  CHECK(memory.refused() == 0);  // it was not this layer that refused
}

TEST_CASE("zero bytes are nothing") {
  source_state state;
  auto memory = make(source{&state} | limit{256});
  CHECK(memory.allocate(legacy, 0) == nullptr);
  memory.deallocate(legacy, nullptr, 0);
  CHECK(memory.used() == 0);
  CHECK(state.calls == 0);
}

TEST_CASE("giving back more than is charged is misuse: reported, ignored, and the number stays right") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  void* const p = memory.allocate(legacy, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(legacy, p, 2000);
    CHECK(misuse.count() == 1);
    CHECK(contains(misuse.last(), "2000 B aligned to 256 were given back and 1024 B are charged"));
    memory.deallocate(legacy, p, SIZE_MAX);
    CHECK(misuse.count() == 2);
  }
  CHECK(memory.used() == 1024);
  CHECK(state.live_count == 1);
  memory.deallocate(legacy, p, 1000);
  CHECK(memory.used() == 0);
}

TEST_CASE("a free is credited when the upstream has the memory back, not before") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  void* const p = memory.allocate(legacy, 1000);
  std::size_t seen = 0;
  state.on_deallocate = [&] { seen = memory.used(); };
  memory.deallocate(legacy, p, 1000);
  CHECK(seen == 1024);
  CHECK(memory.used() == 0);
}

TEST_CASE("a pointer without bytes is misuse, and no pointer is nothing") {
  source_state state;
  auto memory = make(source{&state} | limit{1_MiB});
  void* const p = memory.allocate(legacy, 1000);
  {
    caught_misuse const misuse;
    memory.deallocate(legacy, p, 0);
    CHECK(misuse.count() == 1);
    memory.deallocate(legacy, nullptr, 0);
    CHECK(misuse.count() == 1);
  }
  CHECK(memory.used() == 1024);
  memory.deallocate(legacy, p, 1000);
}

TEST_CASE("a budget inside a budget: the inner one's refusal leaves the outer one's numbers alone") {
  source_state state;
  auto device = make(source{&state} | limit{1_MiB});
  auto tenant = make(share(device) | limit{512_KiB});
  void* const p = tenant.allocate(legacy, 512_KiB);
  CHECK_THROWS_AS(tenant.allocate(legacy, 1), out_of_memory);
  CHECK(device.used() == 512_KiB);
  CHECK(device.refused() == 0);
  void* const q = device.allocate(legacy, 512_KiB);
  tenant.deallocate(legacy, p, 512_KiB);
  CHECK(tenant.used() == 0);
  void* const r = device.allocate(legacy, 256_KiB);
  // Now the outer one is the narrower: its refusal takes the inner one's charge back.
  std::string const what = message_of<out_of_memory>([&] { tenant.allocate(legacy, 512_KiB); });
  CHECK(contains(what, "chain: limit(512.00 KiB) > limit(1.00 MiB) > source"));
  CHECK(tenant.used() == 0);
  device.deallocate(legacy, q, 512_KiB);
  device.deallocate(legacy, r, 256_KiB);
  CHECK(find<limit_resource>(tenant).max_bytes() == 512_KiB);
}

TEST_CASE("a fraction is of the total memory of the device that is current, where no layer names one") {
  sim::reset();
  sim::set_capacity(0, 64_MiB);
  sim::set_capacity(1, 16_MiB);
  source_state state;
  auto first = make(source{&state} | limit{.fraction = 0.25});
  CHECK(first.max_bytes() == 16_MiB);
  device_guard const second_device(1);
  auto second = make(source{&state} | limit{.fraction = 1});
  CHECK(second.max_bytes() == 16_MiB);
  CHECK(contains(refusal({.fraction = 1e-9}), "less than one granularity"));
  CHECK(contains(refusal({.fraction_of_free = 1e-9}), "fraction_of_free is 1e-09, which is 0 B"));
  void* taken = nullptr;
  REQUIRE(cudaMalloc(&taken, 8_MiB) == cudaSuccess);
  auto third = make(source{&state} | limit{.fraction_of_free = 0.5});
  CHECK(third.max_bytes() == 4_MiB);
  CHECK(cudaFree(taken) == cudaSuccess);
}

TEST_CASE("a fraction of the host's memory, which is of no device, is refused") {
  sim::reset();
  for (limit const& part : {limit{.fraction = 0.5}, limit{.name = "cache", .fraction_of_free = 0.5}}) {
    std::string const what =
        message_of<std::invalid_argument>([&] { static_cast<void>(make(host{} | statistics{} | part)); });
    CHECK(contains(what, part.fraction == 0 ? "limit: fraction_of_free is 0.5" : "limit: fraction is 0.5"));
    CHECK(contains(what, "memory of the host, of no device"));
    CHECK(contains(what, "give max_bytes"));
    CHECK_THROWS_AS(static_cast<void>(make(any_host_resource(host{}) | part)), std::invalid_argument);
  }
  auto shared = make(pinned{} | limit{.fraction = 0.5});
  CHECK(shared.max_bytes() == memory_info(0).total_bytes / 2);
}

TEST_CASE("whatever eight threads do, the upstream never holds more than the budget") {
  source_state state;
  {
    auto memory = make(source{&state} | limit{64_KiB});
    std::atomic<std::uint64_t> served{0}, refused{0};
    run_threads(8, [&](int seed) {
      std::vector<std::pair<void*, std::size_t>> mine;
      auto random = static_cast<std::uint32_t>(seed + 1);
      for (int i = 0; i < 2000; ++i) {
        random = random * 1664525 + 1013904223;
        std::size_t const bytes = (1 + random % 64) * 256;
        try {
          mine.emplace_back(memory.allocate(legacy, bytes), bytes);
          ++served;
        } catch (out_of_memory const&) {
          ++refused;
        }
        if (mine.size() > 3 || random % 3 == 0) {
          for (auto [p, n] : mine) memory.deallocate(legacy, p, n);
          mine.clear();
        }
      }
      for (auto [p, n] : mine) memory.deallocate(legacy, p, n);
    });
    CHECK(memory.used() == 0);
    CHECK(memory.peak() <= 64_KiB);
    CHECK(memory.refused() == refused);
    CHECK(served + refused == 16000);
  }
  CHECK(state.peak_bytes <= 64_KiB);
  CHECK(state.live_bytes == 0);
}

TEST_CASE("requests that cannot be served never make one fail that can") {
  source_state state;
  auto memory = make(source{&state} | limit{64_KiB});
  std::atomic<int> wrongly_refused{0}, wrongly_served{0};
  run_threads(8, [&](int i) {
    std::size_t const bytes = i < 4 ? 16_KiB : i == 7 ? SIZE_MAX - 10 : 64_KiB + 1;  // four times 16 KiB fit together
    for (int k = 0; k < 1000; ++k) {
      try {
        void* const p = memory.allocate(legacy, bytes);
        if (i >= 4) ++wrongly_served;
        memory.deallocate(legacy, p, bytes);
      } catch (out_of_memory const&) {
        if (i < 4) ++wrongly_refused;
      }
    }
  });
  CHECK(wrongly_refused == 0);
  CHECK(wrongly_served == 0);
  CHECK(memory.used() == 0);
}

TEST_CASE("a budget of 0 refuses every request until it is raised") {
  source_state state;
  auto memory = make(source{&state} | limit{.max_bytes = 4_KiB});
  void* const p = memory.allocate(legacy, 1_KiB);
  memory.set_max_bytes(0);
  CHECK(memory.max_bytes() == 0);
  CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
  memory.deallocate(legacy, p, 1_KiB);
  CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
  memory.set_max_bytes(256);
  memory.deallocate(legacy, memory.allocate(legacy, 1), 1);
  auto reserved = make(source{&state} | limit{.max_bytes = 4_KiB} | limit{.max_bytes = 4_KiB, .reserve_bytes = 256});
  CHECK_THROWS_AS(reserved.set_max_bytes(0), std::invalid_argument);
}

TEST_CASE("a budget can be changed: what is live stays, and requests are refused until they fit") {
  source_state state;
  auto memory = make(source{&state} | limit{.max_bytes = 4_KiB, .name = "search"});
  void* const p = memory.allocate(legacy, 2_KiB);
  void* const q = memory.allocate(legacy, 2_KiB);
  memory.set_max_bytes(3_KiB);
  CHECK(memory.max_bytes() == 3_KiB);
  CHECK(memory.used() == 4_KiB);
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 256); });
  CHECK(contains(what, "search: limit 3.00 KiB, 4.00 KiB charged, 1.00 KiB too much;"));
  memory.deallocate(legacy, p, 2_KiB);
  void* const r = memory.allocate(legacy, 1_KiB);
  CHECK_THROWS_AS(memory.allocate(legacy, 1), out_of_memory);
  find_limit(memory, "search").set_max_bytes(8_KiB);
  void* const s = memory.allocate(legacy, 5_KiB);
  CHECK(memory.used() == 8_KiB);
  for (auto [block, bytes] : {std::pair(q, 2_KiB), std::pair(r, 1_KiB), std::pair(s, 5_KiB)})
    memory.deallocate(legacy, block, bytes);
  CHECK(memory.used() == 0);
  CHECK(contains(message_of<std::invalid_argument>([&] { memory.set_max_bytes(255); }),
                 "search: limit: a budget of 255 B; it must be at least 256 B, which is one granularity"));
  CHECK(memory.max_bytes() == 8_KiB);
}

TEST_CASE("a budget below the soft limit is one that nobody is told of before the refusal") {
  source_state state;
  int told = 0;
  auto memory =
      make(source{&state} | limit{.max_bytes = 4_KiB, .soft_bytes = 3_KiB, .on_soft = [&](std::size_t) { ++told; }});
  memory.set_max_bytes(2_KiB);
  void* const p = memory.allocate(legacy, 2_KiB);
  CHECK_THROWS_AS(memory.allocate(legacy, 256), out_of_memory);
  CHECK(told == 0);
  memory.set_max_bytes(4_KiB);
  void* const q = memory.allocate(legacy, 2_KiB);
  CHECK(told == 1);
  memory.deallocate(legacy, p, 2_KiB);
  memory.deallocate(legacy, q, 2_KiB);
}

TEST_CASE("a budget is kept while it is changed and used by threads") {
  source_state state;
  auto memory = make(source{&state} | limit{64_KiB});
  run_threads(4, [&](int i) {
    for (int k = 0; k < 2000; ++k) {
      if (i == 0) memory.set_max_bytes(k % 2 == 0 ? 32_KiB : 64_KiB);
      try {
        memory.deallocate(legacy, memory.allocate(legacy, 20_KiB), 20_KiB);
      } catch (out_of_memory const&) {
      }
    }
  });
  CHECK(memory.used() == 0);
  CHECK(state.peak_bytes <= 64_KiB);
}

TEST_CASE("a soft limit is told each time it is crossed upwards, and serves") {
  source_state state;
  std::vector<std::size_t> told;
  auto memory = make(source{&state} | limit{.max_bytes = 8_KiB, .soft_bytes = 4_KiB, .on_soft = [&](std::size_t used) {
                                              told.push_back(used);
                                            }});
  void* const a = memory.allocate(legacy, 4_KiB);
  CHECK(told.empty());
  void* const b = memory.allocate(legacy, 1_KiB);
  CHECK(told == std::vector<std::size_t>{5_KiB});
  void* const c = memory.allocate(legacy, 1_KiB);
  memory.deallocate(legacy, b, 1_KiB);
  void* d = memory.allocate(legacy, 1_KiB);
  CHECK(told.size() == 1);  // it did not fall below in between
  memory.deallocate(legacy, c, 1_KiB);
  memory.deallocate(legacy, d, 1_KiB);
  d = memory.allocate(legacy, 256);
  CHECK(told == std::vector<std::size_t>{5_KiB, 4_KiB + 256});
  CHECK_THROWS_AS(memory.allocate(legacy, 8_KiB), out_of_memory);
  CHECK(memory.soft_crossed() == 2);
  CHECK(contains(report_of(memory).lines(), "; went above 4.00 KiB 2 times"));
  memory.deallocate(legacy, d, 256);
  memory.deallocate(legacy, a, 4_KiB);
}

TEST_CASE("who is told may free on the same stack, and what it throws passes through without a trace") {
  source_state state;
  void* cached = nullptr;
  std::function<void()> on_soft;
  auto memory =
      make(source{&state} | limit{.max_bytes = 8_KiB, .soft_bytes = 4_KiB, .on_soft = [&](std::size_t) { on_soft(); }});
  cached = memory.allocate(legacy, 4_KiB);
  on_soft = [&] { memory.deallocate(legacy, std::exchange(cached, nullptr), 4_KiB); };
  void* const p = memory.allocate(legacy, 2_KiB);
  CHECK(memory.used() == 2_KiB);
  on_soft = [] { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(memory.allocate(legacy, 3_KiB), std::runtime_error);
  CHECK(memory.used() == 2_KiB);
  CHECK(state.live_bytes == 2_KiB);
  memory.deallocate(legacy, p, 2_KiB);
}

TEST_CASE("threads tell of a soft limit as often as it is crossed") {
  source_state state;
  std::atomic<std::uint64_t> told{0};
  auto memory =
      make(source{&state} | limit{.max_bytes = 1_MiB, .soft_bytes = 1_KiB, .on_soft = [&](std::size_t) { ++told; }});
  run_threads(4, [&](int) {
    for (int k = 0; k < 1000; ++k) memory.deallocate(legacy, memory.allocate(legacy, 1_KiB), 1_KiB);
  });
  CHECK(told == memory.soft_crossed());
  CHECK(told <= 4000);  // the first of each group that overlaps is not above
  CHECK(memory.used() == 0);
}

TEST_CASE("a budget that threads share charges, refuses and tells as one thread's does") {
  constexpr std::size_t count = 4;
  source_state state;
  limit const options{.max_bytes = 64_KiB, .soft_bytes = 40_KiB};
  auto memory = make(source{&state} | options), expected = make(source{&state} | options);
  (memory.*member(charges_of_limit{})).set_contended();
  struct block {
    void *p, *of_expected;
    std::size_t bytes;
  };
  std::vector<block> live;
  std::minstd_rand random(1);
  auto const below = [&](std::size_t n) { return random() % n; };
  auto const allocated = [](auto& from, std::size_t bytes) -> void* {
    try {
      return from.allocate(legacy, bytes);
    } catch (out_of_memory const&) {
      return nullptr;
    }
  };
  turns threads(count);
  for (int i = 0; i < 5000; ++i) {
    std::size_t const what = below(1000), bytes = 1 + below(4_KiB);
    state.fail = below(100) == 0 ? failing::out_of_memory : failing::no;
    threads.on(below(count), [&] {
      if (what < 5) {
        std::size_t const most = 30_KiB + below(40_KiB);
        memory.set_max_bytes(most), expected.set_max_bytes(most);
      } else if (what < 10) {
        memory.reset_peaks(), expected.reset_peaks();
      } else if (what < 530 || live.empty()) {
        live.push_back({allocated(memory, bytes), allocated(expected, bytes), bytes});
        REQUIRE((live.back().p == nullptr) == (live.back().of_expected == nullptr));
        if (live.back().p == nullptr) live.pop_back();
      } else {
        std::swap(live[below(live.size())], live.back());
        memory.deallocate(legacy, live.back().p, live.back().bytes);
        expected.deallocate(legacy, live.back().of_expected, live.back().bytes);
        live.pop_back();
      }
      REQUIRE(memory.peak() == expected.peak());
      REQUIRE(memory.refused() == expected.refused());
      REQUIRE(memory.soft_crossed() == expected.soft_crossed());
      if (what % 64 == 0) REQUIRE(memory.used() == expected.used());
    });
  }
  CHECK((memory.*member(charges_of_limit{})).is_shared());
  CHECK(expected.refused() > 0);
  CHECK(expected.soft_crossed() > 0);
  for (block const& b : live) {
    memory.deallocate(legacy, b.p, b.bytes);
    expected.deallocate(legacy, b.of_expected, b.bytes);
  }
  CHECK(memory.used() == 0);
  caught_misuse const misuse;
  memory.deallocate(legacy, &state, 1);
  CHECK(misuse.count() == 1);
}
