// What pools do with these is tested in growable_range.cpp.
#include <weir/pool/idle_chunks.hpp>

#include <weir/cuda/stream.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

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

TEST_CASE("the first holes show what chunks have, the rest is to have memory of its own") {
  piece_list holes(2), chunks(2), both(0);
  holes.append(1000, 30);
  holes.append(2000, 40);
  chunks.append(100, 20);
  chunks.append(200, 20);
  both.show(holes, chunks);
  struct expected {
    std::uintptr_t address;
    std::size_t bytes;
    std::uintptr_t from;
  };
  std::vector<expected> const all{{1000, 20, 100}, {1020, 10, 200}, {2000, 10, 210}, {2010, 30, 0}};
  REQUIRE(static_cast<std::size_t>(both.end() - both.begin()) == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(both.begin()[i].address == all[i].address);
    CHECK(both.begin()[i].bytes == all[i].bytes);
    CHECK(both.begin()[i].from == all[i].from);
  }
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

TEST_CASE("however many pieces there are, all are held") {
  eight_idle e;
  constexpr std::size_t mapped = 64 * chunk;
  e.memory.map(static_cast<std::byte*>(e.range.begin) + 8 * chunk, mapped - 8 * chunk);
  auto const request = [](std::size_t bytes) {
    return stream_ordered_heap::request::of(bytes, bytes, 256, ~detail::units{0});
  };
  e.heap.reserve();
  auto const rest = e.heap.hold(e.heap.find_window(e.nobody, request(mapped), chunk), e.nobody, [](auto, auto) {});
  e.heap.put_back(rest, true);
  e.reserved.add(mapped - 8 * chunk);
  // 21 times: a chunk and a half that is to be free, and as much that is not.
  std::vector<detail::block_id> idle_soon;
  for (std::size_t i = 0; i < 21; ++i)
    for (std::size_t const halves : {3u, 1u, 1u, 1u}) {
      detail::block_id const taken = e.heap.take_ready(e.nobody, request(halves * chunk / 2));
      REQUIRE(taken != 0);
      if (halves == 3) idle_soon.push_back(taken);
    }
  for (detail::block_id const id : idle_soon) e.heap.give_done(id);
  std::size_t const before = e.reserved.current;
  {
    idle_chunks idle(e.heap, e.reserved, chunk, mapped);
    CHECK(idle.bytes() == 22 * chunk);  // one in each, and what was not taken
    CHECK(idle.pieces().end() - idle.pieces().begin() == 22);
    CHECK(idle.unmap(e.memory));
  }
  CHECK(e.reserved.current == before - 22 * chunk);
  CHECK(e.memory.wrong == 0);
  CHECK(e.heap.valid());
}

TEST_CASE("nothing is held where nothing is asked for") {
  eight_idle e;
  idle_chunks const idle(e.heap, e.reserved, chunk, 0);
  CHECK(idle.bytes() == 0);
  CHECK(e.heap.free_bytes() == 8 * chunk);
}

TEST_CASE("what is found done while room is made belongs to a piece before that is held") {
  eight_idle e;
  e.heap.try_to_reserve_lists(3);   // more than few streams have
  constexpr std::size_t count = 7;  // more than there is room for, without making some
  std::array<stream, count> const streams;
  auto const take = [&](std::size_t bytes) {
    return e.heap.take_ready(e.nobody, stream_ordered_heap::request::of(bytes, bytes, 256, ~detail::units{0}));
  };
  detail::block_id const last = take(chunk);
  detail::block_id before[count];
  for (detail::block_id& b : before) b = take(256);
  REQUIRE(take(7 * chunk - count * 256) != 0);
  e.heap.give_done(last);
  for (std::size_t i = 0; i < streams.size(); ++i)
    e.heap.give(before[i], detail::stream_identity{.stream = streams[i],
                                                   .key = detail::stream_identity::known_key(streams[i], false)});
  {
    idle_chunks idle(e.heap, e.reserved, chunk, chunk);
    CHECK(idle.bytes() == chunk);
    CHECK(idle.unmap(e.memory));
  }
  CHECK(e.memory.in_use() == 7 * chunk);
  CHECK(e.memory.wrong == 0);
  CHECK(e.heap.free_bytes() == count * 256);
  CHECK(e.heap.valid());
}
