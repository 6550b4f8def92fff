// needs: tsan
// Limits with a reserve on a limit that they share.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/captures.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const on;

limit reserving(std::size_t most, std::size_t reserve) { return {.max_bytes = most, .reserve_bytes = reserve}; }

}  // namespace

TEST_CASE("a reserve is charged below from the beginning to the end, and used first") {
  source_state state;
  auto device = make(source{&state} | limit{8_KiB});
  {
    auto search = make(share(device) | reserving(6_KiB, 2_KiB));
    CHECK(device.used() == 2_KiB);
    CHECK(search.used() == 0);
    CHECK(search.reserve_left() == 2_KiB);
    void* const a = search.allocate(on, 1_KiB);
    CHECK(device.used() == 2_KiB);
    CHECK(search.reserve_left() == 1_KiB);
    void* const b = search.allocate(on, 3_KiB);
    CHECK(device.used() == 4_KiB);
    CHECK(search.used() == 4_KiB);
    CHECK(search.reserve_left() == 0);
    CHECK(state.live_bytes == 4_KiB);
    search.deallocate(on, a, 1_KiB);
    CHECK(search.reserve_left() == 0);  // it still uses more than its reserve
    CHECK(device.used() == 3_KiB);
    search.deallocate(on, b, 3_KiB);
    CHECK(search.reserve_left() == 2_KiB);
    CHECK(device.used() == 2_KiB);
  }
  CHECK(device.used() == 0);
  CHECK(state.live_count == 0);
}

TEST_CASE("others cannot have it") {
  source_state state;
  auto device = make(source{&state} | limit{8_KiB});
  auto search = make(share(device) | reserving(8_KiB, 3_KiB));
  auto images = make(share(device) | limit{8_KiB});
  void* const p = images.allocate(on, 5_KiB);
  std::string const what = message_of<out_of_memory>([&] { images.allocate(on, 256); });
  CHECK(contains(what, "8.00 KiB, 8.00 KiB charged, 0 B left"));
  void* const q = search.allocate(on, 3_KiB);
  CHECK_THROWS_AS(search.allocate(on, 256), out_of_memory);  // beyond its reserve it is as the others
  CHECK(device.refused() == 2);
  CHECK(search.refused() == 0);
  images.deallocate(on, p, 5_KiB);
  search.deallocate(on, q, 3_KiB);
  CHECK(device.used() == 3_KiB);
}

TEST_CASE("a reserve that the limit below has no room for is refused when it is made, and leaves no trace") {
  source_state state;
  auto device = make(source{&state} | limit{.max_bytes = 4_KiB, .name = "device"});
  auto search = make(share(device) | reserving(4_KiB, 3_KiB));
  std::string const what =
      message_of<out_of_memory>([&] { static_cast<void>(make(share(device) | reserving(4_KiB, 2_KiB))); });
  CHECK(contains(what, "2.00 KiB"));
  CHECK(contains(what, "refused by device: limit"));
  CHECK(contains(what,
                 "hint       this is the reserve_bytes of a limit above, and the budget of device: limit has 1.00 "
                 "KiB left: reserve less, free something, or raise it (set_max_bytes)"));
  auto inner = make(share(device) | limit{.max_bytes = 4_KiB, .name = "inner"});
  limit const images{.max_bytes = 8_KiB, .name = "images", .reserve_bytes = 2_KiB};
  CHECK(contains(message_of<out_of_memory>([&] { static_cast<void>(make(share(inner) | images)); }),
                 "this is the reserve_bytes of images: limit, and the budget of device: limit has 1.00 KiB left"));
  CHECK(device.used() == 3_KiB);
  CHECK(contains(message_of<std::invalid_argument>(
                     [&] { static_cast<void>(make(source{&state} | pool{} | reserving(4_KiB, 2_KiB))); }),
                 "there is none before the first pool, scrub or source"));
  // What a scrub asks for is rounded up, and what it frees may have been freed above long ago.
  CHECK_THROWS_AS(static_cast<void>(make(share(device) | scrub{} | reserving(4_KiB, 256))), std::invalid_argument);
  any_resource const erased(share(device) | scrub{});
  CHECK_THROWS_AS(static_cast<void>(make(erased | reserving(4_KiB, 256))), std::invalid_argument);
  CHECK(contains(message_of<std::invalid_argument>([&] {
                   static_cast<void>(
                       make(share(device) | limit{.max_bytes = 4_KiB, .granularity = 512, .reserve_bytes = 512}));
                 }),
                 "has a granularity of 512 B, this one of 256 B"));
  CHECK(contains(message_of<std::invalid_argument>([&] { search.set_max_bytes(2_KiB); }),
                 "a budget of 2048 B; it must be at least 3072 B, which is its reserve"));
}

TEST_CASE("a reserve that a layer keeps from the limit below is refused with the name of that layer") {
  source_state state;
  auto const refusal_on = [&](auto const& upstream) {
    return message_of<std::invalid_argument>([&] { static_cast<void>(make(upstream | reserving(4_KiB, 2_KiB))); });
  };
  auto const budget = source{&state} | limit{64_MiB};
  auto const names = [](std::string const& what, std::string const& layer) {
    CHECK(contains(what, "reserve_bytes is 2048; it is taken from a limit below, and " + layer + " stands between"));
  };
  names(refusal_on(budget | fallback{source{&state}}), "'fallback'");
  names(refusal_on(budget | binning{{bin{1_KiB, [](auto up) { return up; }}}} | statistics{}), "'binning'");
  names(refusal_on(budget | pool{} | fixed_size{.block_bytes = 1_KiB}), "'fixed_size'");
  names(refusal_on(budget | arena{}), "'arena'");
  names(refusal_on(budget | scrub{}), "'scrub'");
  any_resource const erased(budget | fallback{source{&state}, "slow"} | statistics{});
  names(refusal_on(share(erased)), "'slow: fallback'");
  CHECK(contains(refusal_on(source{&state} | fallback{budget}), "there is none before the first"));
}

TEST_CASE("a request that fails below gives its part of the reserve back") {
  source_state state;
  auto device = make(source{&state} | limit{8_KiB});
  auto search = make(share(device) | reserving(8_KiB, 2_KiB));
  for (failing const how : {failing::out_of_memory, failing::other, failing::null}) {
    state.fail = how;
    CHECK_THROWS(search.allocate(on, 3_KiB));
    CHECK(search.reserve_left() == 2_KiB);
    CHECK(search.used() == 0);
    CHECK(device.used() == 2_KiB);
  }
}

TEST_CASE("a free that a pool finds wrong changes nothing") {
  source_state state;
  auto device = make(source{&state} | pool{} | limit{8_KiB});
  auto search = make(share(device) | reserving(8_KiB, 2_KiB));
  void* const p = search.allocate(on, 3_KiB);
  {
    caught_misuse const misuse;
    search.deallocate(on, p, 1_KiB);
    CHECK(misuse.count() == 1);
    search.deallocate(on, p, 64_KiB);
    CHECK(misuse.count() == 2);
  }
  CHECK(search.used() == 3_KiB);
  CHECK(search.reserve_left() == 0);
  CHECK(device.used() == 3_KiB);
  search.deallocate(on, p, 3_KiB);
  CHECK(device.used() == 2_KiB);
}

TEST_CASE("reserves nest: each is charged to all limits below, once") {
  source_state state;
  auto device = make(source{&state} | limit{64_KiB});
  {
    auto service = make(share(device) | reserving(32_KiB, 8_KiB));
    auto plain = make(share(service) | statistics{} | limit{16_KiB});
    {
      auto worker = make(share(plain) | reserving(16_KiB, 10_KiB));
      CHECK(plain.used() == 10_KiB);
      CHECK(service.used() == 10_KiB);
      CHECK(service.reserve_left() == 0);
      CHECK(device.used() == 10_KiB);
      void* const a = worker.allocate(on, 4_KiB);
      CHECK(plain.used() == 10_KiB);
      CHECK(service.used() == 10_KiB);
      CHECK(device.used() == 10_KiB);
      void* const b = worker.allocate(on, 8_KiB);
      CHECK(worker.used() == 12_KiB);
      CHECK(plain.used() == 12_KiB);
      CHECK(service.used() == 12_KiB);
      CHECK(device.used() == 12_KiB);
      worker.deallocate(on, a, 4_KiB);
      CHECK(worker.reserve_left() == 2_KiB);
      CHECK(device.used() == 10_KiB);
      worker.deallocate(on, b, 8_KiB);
      CHECK(plain.used() == 10_KiB);
      CHECK(device.used() == 10_KiB);
    }
    CHECK(service.used() == 0);
    CHECK(service.reserve_left() == 8_KiB);
    CHECK(device.used() == 8_KiB);
  }
  CHECK(device.used() == 0);
}

TEST_CASE("layers and erased types between two limits do not matter") {
  source_state state;
  any_resource const device(source{&state} | limit{8_KiB});
  auto search = make([&] { return device; } | statistics{} | reserving(8_KiB, 2_KiB));
  auto const used = [&] { return find_limit(device).used(); };
  CHECK(used() == 2_KiB);
  void* const p = search.allocate(on, 3_KiB);
  CHECK(used() == 3_KiB);
  search.deallocate(on, p, 3_KiB);
  CHECK(used() == 2_KiB);
}

TEST_CASE("a free after several streams fills the reserve up, too") {
  source_state state;
  auto device = make(source{&state} | limit{8_KiB});
  auto search = make(share(device) | reserving(8_KiB, 2_KiB));
  void* const p = search.allocate(on, 3_KiB);
  CHECK(device.used() == 3_KiB);
  deallocate_after(search, on, p, 3_KiB, {host_order});
  CHECK(search.used() == 0);
  CHECK(search.reserve_left() == 2_KiB);
  CHECK(device.used() == 2_KiB);
}

TEST_CASE("requests that a reclaimer makes on the way are none of the reserve's") {
  source_state state;
  auto device = make(source{&state} | limit{8_KiB});
  std::vector<void*> cached;
  std::size_t used_inside = 0;
  auto shared = make(share(device) | on_failure{{{"cache", [&](memory_request const& missing) {
                                                    // Of the same size as the request that failed, but another one.
                                                    device.deallocate(on, cached.back(), missing.bytes);
                                                    cached.pop_back();
                                                    void* const p = device.allocate(on, missing.bytes);
                                                    used_inside = device.used();
                                                    device.deallocate(on, p, missing.bytes);
                                                    return missing.bytes;
                                                  }}}});
  auto search = make(share(shared) | reserving(8_KiB, 1_KiB));
  for (int i = 0; i < 3; ++i) cached.push_back(device.allocate(on, 2_KiB));
  void* const last = device.allocate(on, 1_KiB);
  void* const p = search.allocate(on, 2_KiB);  // its reserve pays half of it, but the other half has no room
  CHECK(used_inside == 8_KiB);
  CHECK(device.used() == 7_KiB);
  search.deallocate(on, p, 2_KiB);
  device.deallocate(on, last, 1_KiB);
  for (void* const block : cached) device.deallocate(on, block, 2_KiB);
  CHECK(device.used() == 1_KiB);
}

TEST_CASE("a reserve that is filled up during a request is charged below no more than once") {
  source_state state;
  auto device = make(source{&state} | limit{8_KiB});
  void* cached = nullptr;
  auto const drop = [&](auto& memory) {
    memory.deallocate(on, std::exchange(cached, nullptr), 5_KiB);
    return 5_KiB;
  };
  any_ref* tenant = nullptr;
  auto shared = make(share(device) | on_failure{{{"cache", [&](auto const&) { return drop(*tenant); }}}});
  auto search = make(share(shared) | reserving(8_KiB, 2_KiB));
  any_ref self = search;
  tenant = &self;
  cached = search.allocate(on, 5_KiB);
  void* const of_others = device.allocate(on, 2_KiB);
  void* const p = search.allocate(on, 2_KiB);  // begins while the reserve is used up, and ends when it is not
  CHECK(search.used() == 2_KiB);
  CHECK(search.reserve_left() == 0);
  CHECK(device.used() == 4_KiB);
  void* const all = device.allocate(on, 4_KiB);
  device.deallocate(on, all, 4_KiB);
  search.deallocate(on, p, 2_KiB);
  CHECK(search.reserve_left() == 2_KiB);
  device.deallocate(on, of_others, 2_KiB);
  CHECK(device.used() == 2_KiB);
}

TEST_CASE("what a capture keeps stays charged in both, is used again, and fills the reserve up when it is gone") {
  watched_world const world;
  auto below = make(device{} | pool{} | limit{64_MiB});
  auto search = make(share(below) | reserving(32_MiB, 4_MiB));
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  void* p = search.allocate(s, 6_MiB);
  CHECK(search.used() == 6_MiB);
  CHECK(below.used() == 6_MiB);
  search.deallocate(s, p, 6_MiB);
  CHECK(search.captured() == 6_MiB);
  CHECK(search.used() == 6_MiB);
  CHECK(below.used() == 6_MiB);
  p = search.allocate(s, 6_MiB);  // the same memory again
  CHECK(search.used() == 6_MiB);
  CHECK(below.used() == 6_MiB);
  write(s, p, 6_MiB);
  search.deallocate(s, p, 6_MiB);
  {
    captured_graph const graph(s);
    graph.launch(s);
    s.synchronize();
  }
  release_captured(search);
  CHECK(search.used() == 0);
  CHECK(search.reserve_left() == 4_MiB);
  CHECK(below.used() == 4_MiB);
}

TEST_CASE("what a source keeps for good stays charged in both, and fills no reserve up") {
  watched_world const world;
  auto below = make(device{} | limit{64_MiB});
  auto search = make(share(below) | reserving(32_MiB, 4_MiB));
  weir::stream const s;
  void* const p = search.allocate(host_order, 6_MiB);
  {
    capture_scope const declared;
    begin_capture(s);
    search.deallocate(s, p, 6_MiB);
    captured_graph const graph(s);
  }
  CHECK(search.used() == 6_MiB);
  CHECK(search.kept() == 6_MiB);
  CHECK(search.reserve_left() == 0);
  CHECK(below.used() == 6_MiB);
  CHECK(below.kept() == 2_MiB);  // what it was not charged with for the reserve
}

TEST_CASE("what a capture kept is credited below when it is released, whether the limit above is asked or not") {
  watched_world const world;
  auto below = make(device{} | pool{} | limit{64_MiB});
  auto service = make(share(below) | limit{48_MiB});  // passes on what search says
  auto search = make(share(service) | reserving(32_MiB, 4_MiB));
  weir::stream const s;
  void* const p = search.allocate(s, 6_MiB);
  {
    capture_scope const declared;
    begin_capture(s);
    search.deallocate(s, p, 6_MiB);
    captured_graph const graph(s);
  }
  CHECK(below.used() == 6_MiB);
  CHECK(service.captured() == 2_MiB);  // the reserve covers the rest
  CHECK(below.captured() == 2_MiB);
  release_captured(below);
  CHECK(below.captured() == 0);
  below.deallocate(on, below.allocate(on, 60_MiB), 60_MiB);  // nobody asked search
  CHECK(below.used() == 4_MiB);
  CHECK(service.used() == 4_MiB);
  CHECK(search.captured() == 0);
}

TEST_CASE("what captures keep of a limit that ended stays charged below, and is credited when it is released") {
  watched_world const world;
  auto below = make(device{} | pool{} | limit{64_MiB});
  auto service = make(share(below) | limit{48_MiB});
  auto reserved = make(share(service) | reserving(40_MiB, 8_MiB));
  std::uint64_t id = 0;
  weir::stream const s;
  auto const free_in_capture = [&](auto& search, void* p, std::size_t bytes) {
    capture_scope const declared;
    begin_capture(s);
    id = capture_id(s);
    search.deallocate(s, p, bytes);
    captured_graph const graph(s);
  };
  {
    auto search = make(share(reserved) | reserving(32_MiB, 4_MiB));
    void* const p = search.allocate(s, 10_MiB);
    void* const q = search.allocate(s, 1_MiB);
    free_in_capture(search, q, 1_MiB);
    free_in_capture(search, p, 10_MiB);
  }
  auto const charged = [&] { return std::vector<std::size_t>{below.used(), service.used(), reserved.used()}; };
  CHECK(charged() == std::vector<std::size_t>{11_MiB, 11_MiB, 11_MiB});
  CHECK(release_captured(below, id) == 10_MiB);
  CHECK(charged() == std::vector<std::size_t>{8_MiB, 8_MiB, 1_MiB});  // with the reserve of `reserved`
  CHECK(reserved.reserve_left() == 7_MiB);
  release_captured(below);
  CHECK(charged() == std::vector<std::size_t>{8_MiB, 8_MiB, 0});
  CHECK(reserved.reserve_left() == 8_MiB);
  {
    auto search = make(share(service) | reserving(4_MiB, 1_MiB));
    free_in_capture(search, search.allocate(s, 3_MiB), 3_MiB);
  }
  CHECK(charged() == std::vector<std::size_t>{11_MiB, 11_MiB, 0});
  release_captured(below);
  CHECK(charged() == std::vector<std::size_t>{8_MiB, 8_MiB, 0});
}

TEST_CASE("what a limit that ended left to a capture is not charged twice when another one uses it again") {
  watched_world const world;
  auto below = make(device{} | pool{} | limit{64_MiB});
  auto service = make(share(below) | limit{64_MiB});
  auto second = make(share(service) | reserving(40_MiB, 4_MiB));
  weir::stream const s;
  void *p = nullptr, *q = nullptr;
  {
    capture_scope const declared;
    begin_capture(s);
    {
      auto first = make(share(service) | reserving(40_MiB, 4_MiB));
      first.deallocate(s, first.allocate(s, 40_MiB), 40_MiB);
    }
    CHECK(below.used() == 44_MiB);  // with the reserve of `second`
    p = second.allocate(s, 20_MiB);
    CHECK(service.used() == 40_MiB);
    CHECK(below.used() == 40_MiB);
    CHECK(below.captured() == 20_MiB);
    q = second.allocate(s, 20_MiB);
    CHECK(service.used() == 40_MiB);
    CHECK(below.used() == 40_MiB);
    CHECK(below.captured() == 0);
    captured_graph const graph(s);
  }
  release_captured(below);
  CHECK(below.used() == 40_MiB);
  second.deallocate(s, p, 20_MiB);
  second.deallocate(s, q, 20_MiB);
  CHECK(service.used() == 4_MiB);
  CHECK(below.used() == 4_MiB);
  CHECK(second.reserve_left() == 4_MiB);
}

TEST_CASE("a reserve pays what a request needs beyond the captured memory that it uses again") {
  watched_world const world;
  auto below = make(device{} | pool{} | limit{64_MiB});
  auto search = make(share(below) | reserving(40_MiB, 16_MiB));
  weir::stream const s;
  void* const live = search.allocate(s, 14_MiB);
  capture_scope const declared;
  begin_capture(s);
  void* const own = search.allocate(s, 1_MiB);
  void* const neighbour = below.allocate(s, 1_MiB);
  search.deallocate(s, own, 1_MiB);
  below.deallocate(s, neighbour, 1_MiB);
  void* const both = search.allocate(s, 2_MiB);
  CHECK(search.used() == 16_MiB);
  CHECK(search.reserve_left() == 0);
  CHECK(below.used() == 16_MiB);
  search.deallocate(s, both, 2_MiB);
  { captured_graph const graph(s); }
  search.deallocate(s, live, 14_MiB);
}

TEST_CASE("whatever others do, a tenant always has its reserve") {
  source_state state;
  {
    auto device = make(source{&state} | limit{32_KiB});
    auto guaranteed = make(share(device) | reserving(32_KiB, 8_KiB));
    auto greedy = make(share(device) | limit{32_KiB});
    std::atomic<bool> done{false};
    std::atomic<int> wrongly_refused{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        std::vector<void*> mine;
        while (!done) {
          try {
            mine.push_back((t == 0 ? greedy.allocate(on, 1_KiB) : device.allocate(on, 1_KiB)));
          } catch (out_of_memory const&) {
            ++refused;
            for (void* const p : mine) t == 0 ? greedy.deallocate(on, p, 1_KiB) : device.deallocate(on, p, 1_KiB);
            mine.clear();
          }
        }
        for (void* const p : mine) t == 0 ? greedy.deallocate(on, p, 1_KiB) : device.deallocate(on, p, 1_KiB);
      });
    std::vector<std::thread> tenants;
    for (int t = 0; t < 2; ++t)
      tenants.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) try {
            guaranteed.deallocate(on, guaranteed.allocate(on, 4_KiB), 4_KiB);  // two at a time are its reserve
          } catch (out_of_memory const&) {
            ++wrongly_refused;
          }
      });
    for (auto& thread : tenants) thread.join();
    done = true;
    for (auto& thread : threads) thread.join();
    CHECK(wrongly_refused == 0);
    CHECK(guaranteed.used() == 0);
    CHECK(guaranteed.reserve_left() == 8_KiB);
    CHECK(device.used() == 8_KiB);
  }
  CHECK(state.peak_bytes <= 32_KiB);
  CHECK(state.live_count == 0);
}

TEST_CASE("threads of several tenants leave the books right") {
  source_state state;
  {
    auto device = make(source{&state} | limit{64_KiB});
    auto service = make(share(device) | reserving(48_KiB, 16_KiB));
    auto one = make(share(service) | reserving(24_KiB, 8_KiB));
    auto other = make(share(service) | reserving(24_KiB, 4_KiB));
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        auto random = t + 1;
        std::vector<std::pair<void*, std::size_t>> mine;
        auto& memory = t % 2 == 0 ? one : other;
        for (int i = 0; i < 2000; ++i) {
          random = random * 1664525 + 1013904223;
          std::size_t const bytes = 256 * (1 + (random >> 16) % 32);
          try {
            mine.emplace_back(memory.allocate(on, bytes), bytes);
          } catch (out_of_memory const&) {
          }
          if (mine.size() < 4) continue;
          for (auto [p, n] : mine) memory.deallocate(on, p, n);
          mine.clear();
        }
        for (auto [p, n] : mine) memory.deallocate(on, p, n);
      });
    for (auto& thread : threads) thread.join();
    CHECK(one.used() == 0);
    CHECK(one.reserve_left() == 8_KiB);
    CHECK(other.reserve_left() == 4_KiB);
    CHECK(service.used() == 12_KiB);
    CHECK(service.reserve_left() == 4_KiB);
    CHECK(device.used() == 16_KiB);
  }
  CHECK(state.peak_bytes <= 64_KiB);
}

TEST_CASE("what one graph kept of memory from outside is credited when that graph is gone, whatever others keep") {
  watched_world const world;
  auto memory = make(device{} | pool{} | limit{64_MiB});
  weir::stream const s;
  void* const first = memory.allocate(s, 10_MiB);
  void* const second = memory.allocate(s, 1_MiB);
  auto const free_in_capture = [&](void* p, std::size_t bytes) {
    capture_scope const declared;
    begin_capture(s);
    std::uint64_t const id = capture_id(s);
    memory.deallocate(s, p, bytes);
    captured_graph const graph(s);
    return id;
  };
  std::uint64_t const id = free_in_capture(first, 10_MiB);
  free_in_capture(second, 1_MiB);
  CHECK(memory.used() == 11_MiB);
  CHECK(release_captured(memory, id) == 10_MiB);
  CHECK(memory.used() == 1_MiB);
  memory.deallocate(s, memory.allocate(s, 60_MiB), 60_MiB);
  release_captured(memory);
  CHECK(memory.used() == 0);
}
