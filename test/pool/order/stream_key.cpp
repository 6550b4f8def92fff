#include <weir/pool/order/stream_key.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>

#include <cstdint>
#include <set>
#include <thread>

using namespace weir;
using detail::capture_key;
using detail::stream_identity;
using detail::stream_key;
using weir::test::destroyable_stream;

namespace {

stream_key known(stream_ref stream, bool all_last = false) { return stream_identity::known_key(stream, all_last); }

stream_key asked(stream_ref stream) {
  REQUIRE(stream_identity::must_ask(stream, known(stream)));
  auto const who = stream_identity::ask(stream, known(stream));
  REQUIRE(who.code == cudaSuccess);
  CHECK(who.capture == capture_key::none);
  return who.key;
}

}  // namespace

TEST_CASE("streams that last, and the default streams, are recognised without a call") {
  sim::reset();
  weir::stream const lasting;
  destroyable_stream const m;
  sim::reset_counters();
  std::set<stream_key> keys{known(cudaStreamLegacy), known(cudaStreamPerThread), known(lasting), known(host_order),
                            known(m, true)};
  CHECK(sim::calls() == 0);
  CHECK(known(m) == stream_key::none);
  keys.insert(asked(m));
  CHECK(sim::calls("cudaStreamGetId") == 1);
  CHECK(sim::calls("cudaStreamGetCaptureInfo") == 1);
  CHECK(sim::calls() == 2);
  CHECK(keys.size() == 6);
  CHECK(known(host_order) == stream_key::none);
  CHECK_FALSE(stream_identity::must_ask(host_order, stream_key::none));
}

TEST_CASE("a stream that gets a dead one's handle is another stream") {
  sim::reset();
  std::set<cudaStream_t> handles;
  std::set<stream_key> keys;
  for (int i = 0; i < 50; ++i) {
    destroyable_stream const m;
    handles.insert(m.get());
    keys.insert(asked(m));
  }
  CHECK(keys.size() == 50);
  CHECK(handles.size() < 50);  // else this shows nothing
}

TEST_CASE("a stream that CUDA does not know has no key") {
  for (std::uint64_t const failing : {1u, 2u}) {  // whether it captures, and who it is
    sim::reset();
    destroyable_stream const m;
    sim::fail_call(failing, cudaErrorUnknown);
    auto const who = stream_identity::ask(m, stream_key::none);
    CHECK(who.code == cudaErrorUnknown);
    CHECK(who.key == stream_key::none);
    cudaGetLastError();
  }
}

TEST_CASE("a stream that captures is not asked for its id, since that would break the capture") {
  sim::reset();
  destroyable_stream const m, other;
  cudaEvent_t begun = nullptr, joined = nullptr;
  REQUIRE(cudaEventCreate(&begun) == cudaSuccess);
  REQUIRE(cudaEventCreate(&joined) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(m.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  REQUIRE(cudaEventRecord(begun, m.get()) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(other.get(), begun, 0) == cudaSuccess);
  auto const first = stream_identity::ask(m, stream_key::none), again = stream_identity::ask(m, stream_key::none);
  auto const second = stream_identity::ask(other, stream_key::none);
  CHECK(first.code == cudaSuccess);
  CHECK(first.capture != capture_key::none);
  CHECK(second.capture == first.capture);
  CHECK(again.key == first.key);
  CHECK(second.key != first.key);
  CHECK(first.key != stream_key::none);
  REQUIRE(cudaEventRecord(joined, other.get()) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(m.get(), joined, 0) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(m.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(asked(m) != first.key);
  cudaEventDestroy(begun);
  cudaEventDestroy(joined);
}

TEST_CASE("every thread's default stream has a key of its own") {
  std::set<stream_key> keys{known(cudaStreamPerThread)};
  for (int i = 0; i < 20; ++i) std::thread([&] { keys.insert(known(cudaStreamPerThread)); }).join();
  CHECK(keys.size() == 21);
}
