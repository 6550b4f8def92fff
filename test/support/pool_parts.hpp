#pragma once
// The parts of a pool, for tests of those that stand on some of them.

#include <weir/pool/lent_blocks.hpp>
#include <weir/pool/upstream_segments.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

namespace weir::test {

/// Two streams, and a heap with segments of a test's source.
struct pool_parts {
  using segments_type = detail::upstream_segments<source_resource>;

  lazy_world const world;
  destroyable_stream const s, t;
  source_state state;
  source_resource upstream{state};
  pool options;
  detail::biased_lock mutex;
  detail::stream_ordered_heap heap{0};
  segments_type segments{upstream, options};
  pool_numbers numbers;
  detail::lent_blocks lent{heap, numbers};

  explicit pool_parts(pool const& with = {}) : options(with) {}
  ~pool_parts() {
    detail::biased_guard const alone(mutex);
    heap.synchronize(mutex);
    segments.give_all(heap);
  }

  static detail::stream_identity who(stream_ref stream) {
    return detail::stream_identity::ask(stream, detail::stream_identity::known_key(stream, false));
  }
  static detail::block_heap::request request(std::size_t bytes) {
    return detail::block_heap::request::of(bytes, bytes, 256, ~detail::units{0});
  }
  /// Frees a block on the stream, behind work of its own, and returns what it is part of.
  detail::block_id free_behind_work(stream_ref stream, detail::block_id id) {
    REQUIRE(cudaLaunchHostFunc(
                stream.get(), [](void*) {}, nullptr) == cudaSuccess);
    return heap.give(id, who(stream));
  }
};

}  // namespace weir::test
