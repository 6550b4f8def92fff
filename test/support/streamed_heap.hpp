#pragma once
// A heap with one segment at addresses that nobody touches, and streams that free there.

#include <weir/cuda/stream.hpp>
#include <weir/pool/heap/growable_heap.hpp>
#include <weir/pool/order/stream_tracker.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::test {

inline void queue_work(stream_ref stream) {
  REQUIRE(cudaLaunchHostFunc(
              stream.get(), [](void*) {}, nullptr) == cudaSuccess);
}

struct streamed_heap {
  static constexpr std::uintptr_t base = 0x7f00'0000'0000u;
  static constexpr detail::units segment_units = 128 * 1024;

  lazy_world const world;
  weir::stream const a, b;
  destroyable_stream const mortal;
  detail::growable_heap heap;
  detail::stream_tracker tracker{0};

  streamed_heap() {
    tracker.add_lists();
    heap.reserve_lists(tracker.list_count());
    heap.keep_ages();
    heap.reserve();
    heap.add_segment(base, segment_units);
  }

  detail::list_id list(stream_ref stream) {
    using detail::stream_identity;
    auto const key = stream_identity::known_key(stream, false);
    return tracker.list_of(stream_identity::must_ask(stream, key) ? stream_identity::ask(stream, key).key : key,
                           stream);
  }
  /// A live block out of what everyone may have.
  detail::block_id take(detail::units size, std::size_t alignment = detail::unit_bytes) {
    heap.reserve();
    detail::block_heap::request const r{.size = size,
                                        .alignment = alignment,
                                        .max_split = ~detail::units{0},
                                        .requested = size * std::uint64_t{detail::unit_bytes},
                                        .alignment_log = static_cast<std::uint8_t>(std::countr_zero(alignment))};
    detail::block_id const found = heap.find(detail::shared, r);
    REQUIRE(found != 0);
    return heap.take(found, r);
  }
  void* address(detail::block_id id) const { return reinterpret_cast<void*>(heap.blocks()[id].address()); }
  std::size_t free_bytes(stream_ref stream) { return heap.free_bytes(list(stream)); }
  std::size_t shared_bytes() const { return heap.free_bytes(detail::shared); }
  /// Asks CUDA what is done of a stream: of what was seen to be at work, nothing.
  void poll(stream_ref stream) {
    detail::stream_tracker::questions calls(tracker);
    heap.complete(list(stream), tracker.poll(list(stream), calls));
  }
  /// All that was freed on a stream is done, and known to be.
  void settle(stream_ref stream) {
    poll(stream);
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    poll(stream);
  }
};

}  // namespace weir::test
