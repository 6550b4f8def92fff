// What `pool` shows of this is tested there; here is what only its parts can be asked.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/pool/upstream_segments.hpp>
#include <weir/sources/device.hpp>
#include <weir/support/spin_lock.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <vector>

#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::growth;
using detail::spin_guard;
using detail::spin_lock;
using detail::stream_ordered_heap;

namespace {

struct held_segments {
  explicit held_segments(pool const& with) : options(with), segments(upstream, options), lock(mutex) {}
  ~held_segments() { segments.give_all(heap); }

  static stream_ordered_heap::request of(std::size_t bytes) {
    return stream_ordered_heap::request::of(bytes, bytes, 256, ~detail::units{0});
  }

  growth grow(std::size_t bytes, std::size_t live_peak) { return segments.grow(mutex, heap, of(bytes), live_peak); }
  /// Grows by a segment of so many bytes and takes all of it.
  detail::block_id take_whole(std::size_t bytes) {
    CHECK(grow(bytes, live += bytes) == growth::done);
    return heap.take_ready({.stream = host_order}, of(bytes));
  }
  /// The same, free again: an idle segment.
  void add_idle(std::size_t bytes) { idle.push_back(take_whole(bytes)); }
  void free_idle() {
    for (detail::block_id const id : idle) heap.give_done(id);
  }
  pool_numbers numbers() const {
    pool_numbers n;
    segments.count(n);
    return n;
  }

  std::size_t live = 0;
  std::vector<detail::block_id> idle;
  source_state state;
  source_resource upstream{state};
  pool options;
  spin_lock mutex;
  stream_ordered_heap heap{0};
  detail::upstream_segments<source_resource> segments;
  spin_guard lock;
};

}  // namespace

TEST_CASE("it grows by what the options say, and by what is needed where no more may be held") {
  held_segments s({.max_bytes = 7_MiB, .growth_bytes = 4_MiB});
  CHECK(s.grow(1_MiB, 1_MiB) == growth::done);
  CHECK(s.segments.held() == 4_MiB);
  auto const first = s.heap.take_ready({.stream = host_order}, s.of(4_MiB));
  CHECK(s.grow(3_MiB, 7_MiB) == growth::done);
  CHECK(s.segments.held() == 7_MiB);
  auto const second = s.heap.take_ready({.stream = host_order}, s.of(3_MiB));
  CHECK(s.grow(256, 7_MiB) == growth::refused);
  CHECK(s.segments.count() == 2);
  s.heap.give_done(first);
  s.heap.give_done(second);
  CHECK(s.segments.give_idle(s.mutex, s.heap, 0) == 7_MiB);
  CHECK(s.segments.count() == 0);
  pool_numbers const numbers = s.numbers();
  CHECK(numbers.growths == 2);
  CHECK(numbers.releases == 2);
  CHECK(numbers.reserved.current == 0);
  CHECK(numbers.reserved.peak == 7_MiB);
}

TEST_CASE("small blocks that are kept at hand get room to spare: half of what is held, up to 16 MiB") {
  for (bool const has_small : {true, false}) {
    held_segments s({});
    auto const growth_by = [&](std::size_t held) {
      while (s.segments.held() < held) s.take_whole(2_MiB);
      std::size_t const before = s.segments.held();
      CHECK(s.segments.grow(s.mutex, s.heap, s.of(1000), before, has_small) == growth::done);
      return s.segments.held() - before;
    };
    CHECK(growth_by(0) == 2_MiB);
    CHECK(growth_by(4_MiB) == 2_MiB);
    CHECK(growth_by(12_MiB) == (has_small ? 6_MiB : 2_MiB));
    CHECK(growth_by(100_MiB) == (has_small ? 16_MiB : 6_MiB));
  }
}

TEST_CASE("it knows which addresses are in a segment, and looks for idle ones only when some may be") {
  held_segments s({});
  CHECK(s.segments.reserve(s.mutex, s.heap, 1_MiB));
  auto const id = s.heap.take_ready({.stream = host_order}, s.of(1_MiB));
  auto const p = s.heap[id].address();
  CHECK(s.segments.contains(reinterpret_cast<void*>(p + 1_MiB - 1)));
  CHECK_FALSE(s.segments.contains(reinterpret_cast<void*>(p + 1_MiB)));
  CHECK(s.segments.give_idle(s.mutex, s.heap, 0) == 0);
  s.heap.give_done(id);
  CHECK(s.segments.give_idle(s.mutex, s.heap, 0) == 0);  // nobody has said so
  CHECK(s.segments.may_be_idle_after(s.heap, id));
  CHECK(s.segments.give_idle(s.mutex, s.heap, 0) == 1_MiB);
  CHECK_FALSE(s.segments.contains(reinterpret_cast<void*>(p)));
}

TEST_CASE("before it would hold too much, idle segments go, the smallest first, and no more than have to") {
  held_segments s({});
  s.add_idle(30_MiB);
  s.add_idle(10_MiB);
  s.add_idle(20_MiB);
  s.take_whole(8_MiB);
  s.free_idle();
  REQUIRE(s.segments.held() == 68_MiB);
  // At most 68 MiB were live, so 84 MiB may be held: 24 MiB have to go.
  CHECK(s.grow(40_MiB, 68_MiB) == growth::done);
  CHECK(s.segments.held() == 78_MiB);
  CHECK(s.numbers().releases == 2);
  CHECK(s.heap.valid());
}

TEST_CASE("idle segments stay while little is held") {
  held_segments s({});
  s.add_idle(10_MiB);
  s.free_idle();
  CHECK(s.grow(16_MiB, 10_MiB) == growth::done);
  CHECK(s.numbers().releases == 0);
}

TEST_CASE("what is to be held from the beginning counts as needed") {
  held_segments s({.initial_bytes = 32_MiB});
  CHECK(s.segments.reserve(s.mutex, s.heap, 32_MiB));
  CHECK(s.grow(16_MiB, 16_MiB) == growth::done);
  CHECK(s.numbers().releases == 0);
}

TEST_CASE("small requests share a segment that takes no more than may be held, but not too small a one") {
  auto const step_after_2000_mib = [](double max_waste, std::size_t bytes) {
    held_segments s({.max_waste = max_waste});
    s.take_whole(2000_MiB);
    CHECK(s.grow(bytes, 2000_MiB + bytes) == growth::done);
    return s.segments.held() - 2000_MiB;
  };
  CHECK(step_after_2000_mib(0.1, 1_MiB) == 100_MiB);   // a 20th
  CHECK(step_after_2000_mib(0.049, 1_MiB) == 98_MiB);  // what is left to 2099 MiB
  CHECK(step_after_2000_mib(0.02, 1_MiB) == 96_MiB);
  SUBCASE("it has room for whole requests, and nothing is left over but what rounding adds") {
    CHECK(step_after_2000_mib(0.1, 17_MiB) == 86_MiB);  // five
    CHECK(step_after_2000_mib(0.1, 49_MiB) == 98_MiB);  // two
    CHECK(step_after_2000_mib(0.1, 50_MiB) == 50_MiB);  // not small
    CHECK(step_after_2000_mib(0.02, 20_MiB) == 80_MiB);
    CHECK(step_after_2000_mib(0.02, 32_MiB) == 96_MiB);
  }
  SUBCASE("where one would take less than three, it has only what may be held") {
    CHECK(step_after_2000_mib(0.02, 34_MiB) == 68_MiB);  // 74 MiB are left to 2074
    CHECK(step_after_2000_mib(0.02, 46_MiB) == 46_MiB);  // 86
  }
}

TEST_CASE("where the upstream refuses, idle segments go and it is asked again") {
  held_segments s({});
  s.add_idle(6_MiB);
  s.add_idle(4_MiB);
  s.take_whole(2_MiB);
  s.free_idle();
  s.state.on_allocate = [&] { s.state.fail = s.state.live_bytes > 8_MiB ? failing::out_of_memory : failing::no; };
  CHECK(s.grow(4_MiB, 12_MiB) == growth::done);
  CHECK(s.segments.held() == 12_MiB);  // the smallest was enough
}

TEST_CASE("what an upstream has left is taken for whole requests") {
  for (std::size_t const bytes : {512_KiB, 1_MiB, 2_MiB}) {
    CAPTURE(bytes);
    auto memory = make(device{} | limit{.max_bytes = 22_MiB} | pool{});
    std::size_t const all = 22_MiB / bytes;
    std::vector<void*> blocks;
    CHECK_NOTHROW(while (blocks.size() != all) blocks.push_back(memory.allocate(host_order, bytes)));
    for (void* const p : blocks) memory.deallocate(host_order, p, bytes);
  }
}

TEST_CASE("an upstream that makes an idle segment anew each time is not asked without end") {
  held_segments s({});
  int asked = 0;
  bool inside = false;
  s.state.on_allocate = [&] {
    if (inside) return;
    inside = true;
    spin_guard const again(s.mutex);
    s.heap.give_done(s.take_whole(256));  // as a reclaimer below a pool does that uses it
    inside = false;
    if (++asked < 100) throw std::bad_alloc();
  };
  CHECK(s.grow(4_MiB, 4_MiB) != growth::done);
  CHECK(asked < 10);
}

TEST_CASE("where no more may be held, idle segments go to make room") {
  held_segments s({.max_bytes = 12_MiB});
  s.add_idle(6_MiB);
  s.add_idle(4_MiB);
  s.take_whole(2_MiB);
  s.free_idle();
  CHECK(s.grow(10_MiB, 12_MiB) == growth::done);
  CHECK(s.segments.held() == 12_MiB);
  CHECK(s.grow(11_MiB, 12_MiB) == growth::refused);
}
