#include <weir/pool/order/stream_key.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <set>
#include <thread>

using namespace weir;
using detail::stream_identity;

namespace {

/// A stream that may be destroyed at any time.
struct mortal {
  cudaStream_t handle = nullptr;
  mortal() { REQUIRE(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) == cudaSuccess); }
  ~mortal() { cudaStreamDestroy(handle); }
  operator stream_ref() const { return handle; }
};

std::uint64_t known(stream_ref stream, bool all_last = false) { return stream_identity::known_key(stream, all_last); }

std::uint64_t asked(stream_ref stream) {
  REQUIRE(stream_identity::must_ask(stream, known(stream)));
  auto const who = stream_identity::ask(stream, known(stream));
  REQUIRE(who.code == cudaSuccess);
  CHECK(who.capture == 0);
  return who.key;
}

}  // namespace

TEST_CASE("streams that last, and the default streams, are recognised without a call") {
  sim::reset();
  weir::stream const lasting;
  mortal const m;
  sim::reset_counters();
  std::set<std::uint64_t> keys{known(cudaStreamLegacy), known(cudaStreamPerThread), known(lasting), known(host_order),
                               known(m, true)};
  CHECK(sim::calls() == 0);
  CHECK(known(m) == 0);
  keys.insert(asked(m));
  CHECK(sim::calls("cudaStreamGetId") == 1);
  CHECK(sim::calls("cudaStreamGetCaptureInfo") == 1);
  CHECK(sim::calls() == 2);
  CHECK(keys.size() == 6);
  CHECK(known(host_order) == 0);
  CHECK_FALSE(stream_identity::must_ask(host_order, 0));
}

TEST_CASE("a stream that gets a dead one's handle is another stream") {
  sim::reset();
  std::set<cudaStream_t> handles;
  std::set<std::uint64_t> keys;
  for (int i = 0; i < 50; ++i) {
    mortal const m;
    handles.insert(m.handle);
    keys.insert(asked(m));
  }
  CHECK(keys.size() == 50);
  CHECK(handles.size() < 50);  // else this shows nothing
}

TEST_CASE("a stream that CUDA does not know has no key") {
  sim::reset();
  mortal const m;
  sim::fail_call(1, cudaErrorUnknown);
  auto const who = stream_identity::ask(m, 0);
  CHECK(who.code == cudaErrorUnknown);
  CHECK(who.key == 0);
  cudaGetLastError();
}

TEST_CASE("every thread's default stream has a key of its own") {
  std::set<std::uint64_t> keys{known(cudaStreamPerThread)};
  for (int i = 0; i < 20; ++i) std::thread([&] { keys.insert(known(cudaStreamPerThread)); }).join();
  CHECK(keys.size() == 21);
}
