#pragma once
// A pool's heap with room for slabs, and streams that do not end.

#include <weir/cuda/stream.hpp>
#include <weir/pool/stream_ordered_heap.hpp>

#include <doctest/doctest.h>
#include <support/reuse_of_a_segment.hpp>

namespace weir::test {

/// Slots have 4 units.
struct small_blocks_of_a_segment : reuse_of_a_segment {
  static constexpr detail::units size = 4;
  static constexpr std::size_t slot_bytes = size * detail::unit_bytes;
  stream const s, t;

  small_blocks_of_a_segment() {
    reuse.reserve();
    reuse.add_segment(0x7e00'0000'0000u, 64 * 1024);
  }
  void* small(stream_ref stream) {
    return reuse.take_small(who(stream).key, {detail::slot_class::of(size), slot_bytes}, slot_bytes, 8);
  }
  void* make(stream_ref stream) { return reuse.make_small(who(stream), units(size), 16 << 20); }
  /// A slot of a new slab: as many requests as that takes.
  void* slot(stream_ref stream) {
    for (int i = 0; i < 100; ++i) {
      if (void* const p = make(stream)) return p;
      REQUIRE(ready(stream, size) != 0);
    }
    return nullptr;
  }
  bool is_slot(void* p) const { return bool(reuse.find_slot(p, slot_bytes, detail::unit_bytes)); }
  void give(stream_ref stream, void* p) {
    auto const found = reuse.find_slot(p, slot_bytes, detail::unit_bytes);
    REQUIRE(found);
    REQUIRE(reuse.give(found, who(stream)));
  }
};

}  // namespace weir::test
