// What streams take and give is tested in stream_ordered_heap.cpp.
#include <weir/pool/ordered_blocks.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "support/captures.hpp"
#include "support/reuse_of_a_segment.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;
using detail::unit_bytes;

TEST_CASE_FIXTURE(reuse_of_a_segment, "streams that left nothing are forgotten, those with pending work are not") {
  block_id const first = ready(a, 50), second = ready(b, 50);
  free_behind_work(a, first);
  CHECK(reuse.stream_count() == 2);
  reuse.poll(reuse.all_lists());
  CHECK(reuse.stream_count() == 1);  // b has nothing free
  CHECK(pending(a) == 50);
  a.finish();
  reuse.poll(reuse.all_lists());
  CHECK(reuse.stream_count() == 0);
  CHECK(shared() == 50);
  REQUIRE(second != 0);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "as many streams as few programs have are never asked whether they ended") {
  std::array<weir::stream, 4> const few;
  std::vector<detail::stream_identity> each;
  for (weir::stream const& s : few) each.push_back(who(s));
  sim::reset_counters();
  for (auto const& one : each) reuse.give(reuse.take_ready(one, units(1)), one);
  reuse.reserve();
  CHECK(sim::calls("cudaEventRecord") + sim::calls("cudaEventQuery") == 0);
  CHECK(reuse.stream_count() == few.size());
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "a capture's blocks stay its own, stream by stream, until it is released") {
  constexpr std::uint64_t capture = 77;
  detail::stream_identity const first = who(a, capture), second = who(b, capture), other = who(a, capture + 1);
  auto const take = [&](auto const& asking, detail::units size) {
    reuse.enter_capture(asking);
    block_id const id = reuse.take_ready(asking, units(size));
    if (id != 0) reuse.keep_for_capture(id, asking);
    return id;
  };
  block_id const x = take(first, 60), outside = ready(b, 30);
  REQUIRE(x != 0);
  reuse.give_captured(x, first);
  CHECK(take(second, 60) == 0);
  CHECK(ready(a, 60) == 0);
  CHECK(done(a, 60) == 0);
  CHECK(waiting(a, 60) == 0);
  CHECK(reuse.captured_bytes() == 60 * unit_bytes);
  block_id const again = take(first, 60);
  CHECK(again == x);
  SUBCASE("freed by somebody else, not even the capture has it again") {
    reuse.give_captured(again, who(b));
    CHECK(take(first, 60) == 0);
  }
  SUBCASE("freed in another capture, neither has it") {
    reuse.give_captured(again, other);
    CHECK(take(first, 60) == 0);
    CHECK(take(other, 60) == 0);
  }
  reuse.give_captured(outside, second);
  CHECK(take(second, 30) == 0);
  CHECK(reuse.captured_bytes() == 90 * unit_bytes);
  CHECK(reuse.valid());
  CHECK(reuse.release_captured(other.capture) == 0);
  CHECK(reuse.release_captured(first.capture) == 90 * unit_bytes);
  CHECK(reuse.captured_bytes() == 0);
  CHECK(shared() == 100);
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "captures do not count where a search looks at some of very many streams") {
  for (std::uint64_t capture = 1; capture <= 100; ++capture) reuse.enter_capture(who(a, capture));
  CHECK(reuse.next_lists().are_all());
  std::vector<weir::stream> const many(65);
  for (weir::stream const& s : many) REQUIRE(ready(s, 1) != 0);
  CHECK_FALSE(reuse.next_lists().are_all());
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "a block freed in a capture stays live if there is no room to remember that") {
  std::vector<block_id> blocks(90);
  for (block_id& id : blocks) REQUIRE((id = ready(a, 1)) != 0);
  std::uint64_t captures = 1;
  std::size_t i = 0;
  while (reuse.give_captured(blocks[i], who(b, captures))) REQUIRE((++captures, ++i) < blocks.size());
  auto const is_live = [&, p = reinterpret_cast<void*>(reuse[blocks[i]].address())] {
    return reuse.find_any_live(p, unit_bytes, unit_bytes) == blocks[i];
  };
  CHECK(is_live());
  CHECK_FALSE(reuse.give_captured(blocks[i], who(b, captures)));
  CHECK(is_live());
  CHECK(reuse.give_captured(blocks[i], who(b, 1)));  // for that capture there is a list
  CHECK_FALSE(is_live());
}

namespace {

/// A lock that nobody else wants.
struct no_lock {
  template <class F>
  static auto unlocked(F f) {
    return f();
  }
};

}  // namespace

TEST_CASE_FIXTURE(reuse_of_a_segment, "where a capture is in the way of an event the device is not waited for") {
  free_behind_work(cudaStreamLegacy, ready(cudaStreamLegacy, 1));
  cudaStream_t unknown_here = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&unknown_here, cudaStreamNonBlocking) == cudaSuccess);
  begin_capture(unknown_here, cudaStreamCaptureModeRelaxed);
  sim::reset_counters();
  // A blocking stream captures too, but only just now.
  sim::fail_call("cudaStreamIsCapturing", 1, cudaErrorStreamCaptureImplicit);
  no_lock lock;
  CHECK_FALSE(reuse.synchronize(lock));
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
  CHECK(sim::captures_invalidated() == 0);
  sim::clear_failure();
  CHECK(reuse.synchronize(lock));
  CHECK(shared() == 100);
  end_capture(unknown_here);
  CHECK(cudaStreamDestroy(unknown_here) == cudaSuccess);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "where an event cannot be waited for, a stream that captures keeps its capture") {
  weir::stream const known;
  reuse.give(ready(known, 1), who(known));
  free_behind_work(cudaStreamLegacy, ready(cudaStreamLegacy, 1));
  begin_capture(known, cudaStreamCaptureModeRelaxed);
  sim::reset_counters();
  sim::fail_call("cudaEventSynchronize", 1, cudaErrorUnknown);
  no_lock lock;
  CHECK_FALSE(reuse.synchronize(lock));
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
  CHECK(sim::captures_invalidated() == 0);
  end_capture(known);
  CHECK(reuse.synchronize(lock));
}
