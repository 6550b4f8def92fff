// What pools do with these is tested in growable_range.cpp.
#include <weir/pool/idle_chunks.hpp>

#include <doctest/doctest.h>

#include "support/test_growable.hpp"

using namespace weir;
using namespace weir::test;
using detail::idle_chunks;
using detail::piece_list;
using detail::stream_ordered_heap;

namespace {

constexpr std::size_t chunk = test_growable::chunk;

/// A range whose first eight chunks have memory and are free.
struct eight_idle {
  eight_idle() {
    range = memory.reserve_range(64 * chunk);
    heap.add_range(reinterpret_cast<std::uintptr_t>(range.begin), static_cast<detail::units>(range.bytes / 256));
    heap.reserve();
    auto const r = stream_ordered_heap::request::of(8 * chunk, 8 * chunk, 256, ~detail::units{0});
    auto const held = heap.hold(heap.find_window(nobody, r, chunk), nobody, [&](std::uintptr_t address, std::size_t n) {
      memory.map(reinterpret_cast<void*>(address), n);
    });
    heap.put_back(held, true);
    reserved.add(8 * chunk);
  }

  test_growable memory;
  address_range range;
  detail::stream_identity nobody{.stream = host_order};
  stream_ordered_heap heap{0};
  pool_level reserved;
};

}  // namespace

TEST_CASE("pieces that touch are one") {
  piece_list list(2);
  list.append(100, 10);
  list.append(110, 20);
  list.append(200, 1);
  REQUIRE(list.end() - list.begin() == 2);
  CHECK(list.begin()->bytes == 30);
  CHECK(list.begin()[1].address == 200);
}

TEST_CASE("chunks that are held are nobody's, and free again if nothing was taken away") {
  eight_idle e;
  {
    idle_chunks const idle(e.heap, e.reserved, chunk, 3 * chunk - 1);
    CHECK(idle.bytes() == 3 * chunk);  // whole chunks
    CHECK(e.heap.free_bytes() == 5 * chunk);
    CHECK(e.reserved.current == 5 * chunk);
  }
  CHECK(e.heap.free_bytes() == 8 * chunk);
  CHECK(e.heap.largest_free() == 8 * chunk);
  CHECK(e.reserved.current == 8 * chunk);
  CHECK(e.heap.valid());
}

TEST_CASE("what was taken away is a hole, and does not count any more") {
  eight_idle e;
  {
    idle_chunks idle(e.heap, e.reserved, chunk, 100 * chunk);
    CHECK(idle.bytes() == 8 * chunk);  // there are no more
    CHECK(idle.unmap(e.memory));
    CHECK(idle.emptied() == 8 * chunk);
  }
  CHECK(e.heap.free_bytes() == 0);
  CHECK(e.reserved.current == 0);
  CHECK(e.memory.in_use() == 0);
  CHECK(e.memory.wrong == 0);
  CHECK(e.heap.valid());
}

TEST_CASE("nothing is held where nothing is asked for") {
  eight_idle e;
  idle_chunks const idle(e.heap, e.reserved, chunk, 0);
  CHECK(idle.bytes() == 0);
  CHECK(e.heap.free_bytes() == 8 * chunk);
}
