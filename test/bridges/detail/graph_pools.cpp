#include <weir/bridges/detail/graph_pools.hpp>

#include <weir/cuda/capture.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <cstdint>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::test;
using detail::device_capture;
using detail::graph_pools;

namespace {

bool all_streams(cudaStream_t) { return true; }
bool no_stream(cudaStream_t) { return false; }

/// Allocates on a stream while it is captured. Whose memory that is.
std::uint64_t note_in_capture(graph_pools& pools, stream_ref stream, int device = 0) {
  begin_capture(stream, cudaStreamCaptureModeRelaxed);
  pools.note(device, stream.get());
  pools.note(device, stream.get());
  std::uint64_t const id = capture_id(stream);
  captured_graph const ended(stream);
  return id;
}

/// Gives memory back on a stream whose capture is broken.
void note_in_broken_capture(graph_pools& pools, stream_ref stream) {
  begin_capture(stream, cudaStreamCaptureModeRelaxed);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorStreamCaptureUnsupported);
  pools.note(0, stream.get());
  CHECK(capture_id(stream) == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
}

}  // namespace

TEST_CASE_FIXTURE(watched_world, "a pool knows the captures that allocated for it, after its last user") {
  graph_pools pools;
  destroyable_stream const stream;
  pools.begin(0, {0, 1}, all_streams);
  std::uint64_t const first = note_in_capture(pools, stream);
  pools.end(0, {0, 1});
  pools.begin(0, {0, 1}, all_streams);             // a second graph in the same pool
  CHECK(note_in_capture(pools, stream) == first);  // whose memory it shares
  pools.end(0, {0, 1});
  CHECK(note_in_capture(pools, stream) != first);  // of no pool
  CHECK(pools.release({0, 1}).empty());
  CHECK(pools.release({0, 1}) == std::vector<device_capture>{{0, first}});
  CHECK(pools.release({0, 1}).empty());
}

TEST_CASE_FIXTURE(watched_world, "what a pool gets after its last user was gone is known at the next release") {
  graph_pools pools;
  destroyable_stream const stream;
  pools.begin(0, {0, 1}, all_streams);
  CHECK(pools.release({0, 1}).empty());
  std::uint64_t const late = note_in_capture(pools, stream);
  pools.end(0, {0, 1});
  CHECK(pools.release({0, 1}) == std::vector<device_capture>{{0, late}});
  CHECK(pools.users({0, 1}) == 0);
}

TEST_CASE_FIXTURE(watched_world, "graphs of different pools or devices share no memory") {
  graph_pools pools;
  destroyable_stream const stream;
  std::vector<std::uint64_t> seen;
  for (auto const& [device, id] : {std::pair{0, 1ULL}, {0, 2ULL}, {1, 1ULL}}) {
    pools.begin(device, {0, id}, all_streams);
    seen.push_back(note_in_capture(pools, stream, device));
    pools.end(device, {0, id});
  }
  CHECK(seen[0] != seen[1]);
  CHECK(seen[0] != seen[2]);
  pools.release({0, 1});
  CHECK(pools.release({0, 1}) == std::vector<device_capture>{{0, seen[0]}, {1, seen[2]}});
}

TEST_CASE_FIXTURE(fresh_world, "a broken capture shares no memory, and its pool knows of it") {
  graph_pools pools;
  destroyable_stream const stream;
  pools.begin(0, {0, 1}, all_streams);
  note_in_broken_capture(pools, stream);
  std::uint64_t const second = note_in_capture(pools, stream);
  CHECK(second != 0);
  pools.end(0, {0, 1});
  CHECK(pools.release({0, 1}) == std::vector<device_capture>{{0, detail::invalidated_capture}, {0, second}});

  pools.begin(0, {0, 2}, all_streams);
  std::uint64_t const first = note_in_capture(pools, stream);
  pools.end(0, {0, 2});
  pools.begin(0, {0, 2}, all_streams);
  note_in_broken_capture(pools, stream);
  pools.end(0, {0, 2});
  pools.release({0, 2});
  CHECK(pools.release({0, 2}) == std::vector<device_capture>{{0, first}, {0, detail::invalidated_capture}});
}

TEST_CASE_FIXTURE(watched_world, "a live block is its pool's, as long as that is there") {
  graph_pools pools;
  destroyable_stream const stream;
  int here = 0, there = 0;
  pools.begin(0, {0, 1}, all_streams);
  std::uint64_t const capture = note_in_capture(pools, stream);
  pools.end(0, {0, 1});
  pools.add_block(&here, {0, 1});
  pools.add_block(&there, {0, 1});
  CHECK(pools.take_block(0, &here) == capture);
  CHECK(pools.take_block(0, &here) == 0);
  pools.release({0, 1});
  CHECK(pools.take_block(0, &there) == 0);
}

TEST_CASE_FIXTURE(watched_world,
                  "what is no capture, of another device or stream, or after the end, is not the pool's") {
  graph_pools pools;
  destroyable_stream const stream;
  pools.begin(0, {1, 0}, all_streams);
  pools.begin(0, {2, 0}, no_stream);
  pools.begin(1, {3, 0}, all_streams);
  pools.note(0, stream.get());
  pools.note(0, nullptr);
  CHECK(pools.release({1, 0}).empty());

  pools.begin(0, {1, 0}, all_streams);
  pools.end(0, {1, 0});
  pools.end(0, {1, 0});
  note_in_capture(pools, stream);
  CHECK(pools.release({1, 0}).empty());
  CHECK(pools.release({2, 0}).empty());
  CHECK(pools.release({3, 0}).empty());
}

TEST_CASE_FIXTURE(watched_world,
                  "the pool that is open for a stream is that of the last begin, and knows its capture") {
  graph_pools pools;
  destroyable_stream const stream, other;
  auto const is_stream = [&](cudaStream_t which) { return which == stream.get(); };
  CHECK(!pools.find(0, stream.get()));
  pools.begin(0, {0, 1}, is_stream);
  pools.begin(0, {0, 2}, is_stream);
  pools.begin(1, {0, 3}, all_streams);
  auto found = pools.find(0, stream.get());
  REQUIRE(found);
  CHECK(found->id == detail::graph_pool_id{0, 2});
  CHECK(found->capture == 0);
  CHECK(!pools.find(0, other.get()));
  pools.end(0, {0, 2});
  begin_capture(stream, cudaStreamCaptureModeRelaxed);
  found = pools.find(0, stream.get());
  REQUIRE(found);
  CHECK(found->id == detail::graph_pool_id{0, 1});
  CHECK(found->capture == capture_id(stream));
  captured_graph const ended(stream);
  pools.end(0, {0, 1});
  CHECK(!pools.find(0, stream.get()));
}

TEST_CASE_FIXTURE(fresh_world, "what a broken capture gets is kept for no graph, though its pool is shared") {
  graph_pools pools;
  destroyable_stream const stream;
  pools.begin(0, {0, 1}, all_streams);
  note_in_capture(pools, stream);
  pools.share({0, 1});
  begin_capture(stream, cudaStreamCaptureModeRelaxed);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorStreamCaptureUnsupported);
  CHECK(pools.find(0, stream.get()).value().capture == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE_FIXTURE(watched_world, "what a pool gets outside of captures is its first capture's, once it is shared") {
  graph_pools pools;
  destroyable_stream const stream;
  auto const capture_now = [&](int device) { return pools.find(device, stream.get()).value().capture; };
  pools.share({0, 1});  // not there yet
  for (int device : {0, 1}) pools.begin(device, {0, 1}, all_streams);
  std::uint64_t const first = note_in_capture(pools, stream);
  CHECK(capture_now(0) == 0);
  pools.share({0, 1});
  CHECK(capture_now(0) == first);
  CHECK(capture_now(1) == 0);
  pools.begin(0, {0, 2}, all_streams);
  note_in_capture(pools, stream);
  CHECK(capture_now(0) == 0);
}

TEST_CASE_FIXTURE(watched_world, "while a pool is open, pools ask whether streams are being captured") {
  graph_pools pools;
  pools.begin(0, {0, 1}, all_streams);
  CHECK(detail::captures_declared());
  pools.end(0, {0, 1});
  CHECK(!detail::captures_declared());
}
