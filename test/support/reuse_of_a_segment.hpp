#pragma once
// A pool's heap with one segment at an address that nobody touches, and a few streams.

#include <weir/cuda/stream.hpp>
#include <weir/pool/stream_ordered_heap.hpp>

#include <doctest/doctest.h>
#include <support/streams_at_work.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::test {

/// The segment has 100 units; the streams are at work when they are told to.
struct reuse_of_a_segment {
  lazy_world const world;
  destroyable_stream const a, b, c;
  detail::stream_ordered_heap reuse{0};

  reuse_of_a_segment() {
    reuse.reserve();
    reuse.add_segment(0x7f00'0000'0000u, 100);
  }
  static detail::stream_ordered_heap::request units(detail::units size) {
    return {.size = size,
            .alignment = detail::unit_bytes,
            .max_split = ~detail::units{0},
            .requested = size * std::uint64_t{detail::unit_bytes},
            .alignment_log = 8};
  }
  static detail::stream_identity who(stream_ref stream, std::uint64_t capture = 0) {
    auto found = detail::stream_identity::ask(stream, detail::stream_identity::known_key(stream, false));
    REQUIRE(found.code == cudaSuccess);
    found.capture = detail::capture_key{capture};
    return found;
  }
  detail::block_id ready(stream_ref stream, detail::units size) { return reuse.take_ready(who(stream), units(size)); }
  detail::block_id done(stream_ref stream, detail::units size) {
    return reuse.take_done(who(stream), units(size), reuse.all_lists());
  }
  detail::block_id waiting(stream_ref stream, detail::units size) {
    return reuse.take_waiting(who(stream), units(size), reuse.all_lists());
  }
  /// Leaves work on the stream, so that nothing before it is done.
  void free_behind_work(stream_ref stream, detail::block_id id) {
    REQUIRE(cudaLaunchHostFunc(
                stream.get(), [](void*) {}, nullptr) == cudaSuccess);
    reuse.give(id, who(stream));
  }
  /// The same for a block that two have used.
  void free_behind_work(stream_ref one, stream_ref other, detail::block_id id) {
    for (stream_ref const stream : {one, other})
      REQUIRE(cudaLaunchHostFunc(
                  stream.get(), [](void*) {}, nullptr) == cudaSuccess);
    reuse.give(id, reuse.common_list(reuse.common_list(detail::shared, who(one)), who(other)));
  }
  std::size_t pending(stream_ref stream) { return reuse.free_bytes(who(stream)) / detail::unit_bytes; }
  std::size_t shared() const { return reuse.free_bytes() / detail::unit_bytes; }
};

}  // namespace weir::test
