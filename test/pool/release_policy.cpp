// What is idle, and what small blocks keep, is tested with `caching_allocator`; here is what is given back, and when.
#include <weir/pool/release_policy.hpp>
#include <weir/pool/upstream_segments.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;

namespace {

/// Segments of 2 MiB, one block each, under a policy that keeps 4 MiB.
struct released_segments {
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
  detail::release_policy<segments_type> policy{mutex, heap, segments, lent, 4_MiB};
  detail::biased_guard lock{mutex};

  ~released_segments() {
    heap.poll(heap.all_lists());  // what is done is not known before
    segments.give_all(heap);
  }

  block_id take() {
    REQUIRE(segments.reserve(mutex, heap, 2_MiB));
    auto const whole = detail::block_heap::request::of(2_MiB, 2_MiB, 256, ~detail::units{0});
    return heap.take_ready({.stream = host_order}, whole);
  }
  /// Freed on the stream, behind work of its own.
  block_id free_behind_work(stream_ref stream, block_id id) {
    REQUIRE(cudaLaunchHostFunc(
                stream.get(), [](void*) {}, nullptr) == cudaSuccess);
    return heap.give(id, detail::stream_identity::ask(stream, detail::stream_identity::known_key(stream, false)));
  }
};

}  // namespace

TEST_CASE_FIXTURE(released_segments, "above the threshold a segment goes back when its last block is freed") {
  block_id const first = take(), second = take();
  block_id const third = take();
  policy.keep_threshold_after(heap.give_done(third));
  CHECK(state.live_bytes == 4_MiB);
  policy.keep_threshold_after(heap.give_done(second));
  CHECK(state.live_bytes == 4_MiB);  // no more than the threshold is held
  heap.give_done(first);
}

TEST_CASE_FIXTURE(released_segments, "what is not done stays, and goes back with the first free that finds it done") {
  block_id const first = take(), second = take(), third = take();
  policy.keep_threshold_after(free_behind_work(s, third));
  CHECK(state.live_bytes == 6_MiB);
  REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
  policy.keep_threshold();
  CHECK(state.live_bytes == 6_MiB);  // CUDA was not asked
  policy.keep_threshold_after(free_behind_work(t, second));
  CHECK(state.live_bytes == 4_MiB);  // the third is done, the second is not
  REQUIRE(cudaStreamSynchronize(t.get()) == cudaSuccess);
  heap.give_done(first);
}

TEST_CASE_FIXTURE(released_segments, "idle memory goes back down to what is to be kept, and its bytes are told") {
  block_id const first = take(), second = take(), third = take();
  heap.give_done(second);
  heap.give_done(third);
  CHECK(policy.release_idle(5_MiB) == 2_MiB);
  CHECK(state.live_bytes == 4_MiB);
  CHECK(policy.release_idle(0) == 2_MiB);
  CHECK(state.live_bytes == 2_MiB);  // the first block is live
  heap.give_done(first);
}
