// What `pool` shows of this is tested there; here is what only its parts can be asked.
#include <weir/pool/upstream_segments.hpp>
#include <weir/support/spin_lock.hpp>

#include <doctest/doctest.h>

#include <cstdint>

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

  static stream_ordered_heap::request of(std::size_t bytes) {
    return stream_ordered_heap::request::of(bytes, bytes, 256, ~detail::units{0});
  }

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
  CHECK(s.segments.grow(s.mutex, s.heap, s.of(1_MiB)) == growth::done);
  CHECK(s.segments.held() == 4_MiB);
  CHECK(s.segments.grow(s.mutex, s.heap, s.of(3_MiB)) == growth::done);
  CHECK(s.segments.held() == 7_MiB);
  CHECK(s.segments.grow(s.mutex, s.heap, s.of(256)) == growth::refused);
  CHECK(s.segments.count() == 2);
  CHECK(s.segments.give_idle(s.mutex, s.heap, 0) == 7_MiB);
  CHECK(s.segments.count() == 0);
  pool_numbers numbers;
  s.segments.count(numbers);
  CHECK(numbers.growths == 2);
  CHECK(numbers.releases == 2);
  CHECK(numbers.reserved.current == 0);
  CHECK(numbers.reserved.peak == 7_MiB);
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
