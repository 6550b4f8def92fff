// What is idle, and what small blocks keep, is tested with `caching_allocator`; here is what is given back, and when.
#include <weir/cuda/stream.hpp>
#include <weir/pool/release_policy.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/pool_parts.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;

namespace {

/// Segments of 2 MiB, one block each, under a policy that keeps 4 MiB.
struct released_segments : pool_parts {
  detail::release_policy<segments_type> policy{mutex, heap, segments, lent, 4_MiB};
  detail::biased_guard lock{mutex};

  block_id take() {
    REQUIRE(segments.reserve(mutex, heap, 2_MiB));
    return heap.take_ready({.stream = host_order}, request(2_MiB));
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

TEST_CASE_FIXTURE(released_segments, "only the last slot of a slab has streams' slabs looked at") {
  weir::stream const lasting;
  auto const r = request(1024);
  REQUIRE(segments.reserve(mutex, heap, 6_MiB));
  void* p = nullptr;
  while (p == nullptr) {
    p = heap.make_small(who(lasting), r, segments.held());
    if (p == nullptr) heap.give_done(heap.take_ready(who(lasting), r));
  }
  auto const found = heap.find_slot(p, 1024, 256);
  REQUIRE(found.is_last());
  REQUIRE(heap.give_own(found, who(lasting).key));
  policy.keep_threshold_after_slot(false);
  REQUIRE(cudaStreamSynchronize(lasting.get()) == cudaSuccess);
  policy.keep_threshold_after_slot(false);
  CHECK(state.live_bytes == 6_MiB);
  policy.keep_threshold_after_slot(true);  // leaves an event behind
  REQUIRE(cudaStreamSynchronize(lasting.get()) == cudaSuccess);
  policy.keep_threshold_after_slot(false);
  CHECK(state.live_bytes == 0);
}
