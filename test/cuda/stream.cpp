#include <weir/cuda/stream.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

using namespace weir;

static_assert(std::is_move_constructible_v<weir::stream> && !std::is_copy_constructible_v<weir::stream>);

TEST_CASE("a stream has CUDA's own id, and streams that live together are different") {
  sim::reset();
  weir::stream const one, other;
  CHECK(one.get() != nullptr);
  CHECK(one.get() != other.get());
  CHECK(one.lasting_id() != other.lasting_id());
  CHECK(one.lasting_id() == detail::stream_id(one.get()));
  CHECK(one.device() == current_device());
}

TEST_CASE("a stream is not destroyed but kept for the next of its device and kind") {
  sim::reset();
  { weir::stream const first; }
  sim::reset_counters();
  { weir::stream const second; }
  CHECK(sim::calls("cudaStreamCreateWithFlags") == 0);
  CHECK(sim::calls("cudaStreamDestroy") == 0);
}

TEST_CASE("a stream is not kept for the next while it captures: that would be part of the graph") {
  sim::reset();
  weir::stream const origin;
  REQUIRE(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
  cudaEvent_t fork = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventRecord(fork, origin.get()) == cudaSuccess);
  cudaStream_t handle = nullptr;
  {
    weir::stream const side;
    handle = side.get();
    REQUIRE(cudaStreamWaitEvent(handle, fork, 0) == cudaSuccess);
  }
  {
    weir::stream const other;
    CHECK(other.get() != handle);
    CHECK_NOTHROW(other.synchronize());
  }
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(origin.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaEventDestroy(fork) == cudaSuccess);
  weir::stream const one, next;
  CHECK((one.get() == handle || next.get() == handle));
}

TEST_CASE("a stream that cudaDeviceReset took along is not kept for the next") {
  sim::reset();
  {
    weir::stream const lives_on;
    { std::vector<weir::stream> const kept(2); }
    REQUIRE(cudaDeviceReset() == cudaSuccess);
  }
  std::vector<weir::stream> const next(4);
  for (weir::stream const& s : next) {
    CHECK_NOTHROW(s.synchronize());
    CHECK(detail::stream_id(s.get()) == s.lasting_id());
  }
}

TEST_CASE("the handle of a stream that cudaDeviceReset took along may be another's by now") {
  sim::reset();
  std::vector<cudaStream_t> theirs(8);
  {
    std::vector<weir::stream> const ours(8);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    for (cudaStream_t& handle : theirs)
      REQUIRE(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) == cudaSuccess);
  }
  {
    weir::stream const next;
    for (cudaStream_t const handle : theirs) CHECK(next.get() != handle);
  }
  for (cudaStream_t const handle : theirs) CHECK(cudaStreamDestroy(handle) == cudaSuccess);
}

TEST_CASE("kinds and devices do not share kept streams") {
  sim::reset();
  cudaStream_t handle = nullptr;
  {
    weir::stream const first(weir::stream::kind::blocking);
    handle = first.get();
  }
  weir::stream const other_kind(weir::stream::kind::non_blocking);
  CHECK(other_kind.get() != handle);
  {
    device_guard const on_other(1);
    weir::stream const other_device(weir::stream::kind::blocking);
    CHECK(other_device.get() != handle);
    CHECK(other_device.device() == 1);
  }
  weir::stream const same(weir::stream::kind::blocking);
  CHECK(same.get() == handle);
}

TEST_CASE("a moved stream has one owner") {
  sim::reset();
  weir::stream first;
  cudaStream_t const handle = first.get();
  weir::stream second = std::move(first);
  CHECK(second.get() == handle);
  weir::stream third;
  third = std::move(second);
  CHECK(third.get() == handle);
}

TEST_CASE("a moved-from stream is no stream, until another is assigned to it") {
  sim::reset();
  weir::stream first, second;
  cudaStream_t const handle = first.get();
  second = std::move(first);
  constexpr char const* words = "weir: this stream was moved from; assign another to it before it is used";
  CHECK_THROWS_WITH_AS(first.get(), words, std::logic_error);
  CHECK_THROWS_WITH_AS(static_cast<void>(stream_ref(first)), words, std::logic_error);
  CHECK_THROWS_WITH_AS(first.synchronize(), words, std::logic_error);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  first = std::move(second);
  CHECK(first.get() == handle);
  CHECK_THROWS_AS(second.get(), std::logic_error);
}

TEST_CASE("synchronize waits for the work queued before") {
  sim::reset();
  sim::set_mode(sim::mode::lazy);
  weir::stream const s;
  bool done = false;
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &done) == cudaSuccess);
  CHECK(!done);
  s.synchronize();
  CHECK(done);
}

TEST_CASE("a stream that cannot be made is an error and takes nothing with it") {
  sim::reset();
  std::vector<weir::stream> const all_that_are_kept(8);
  for (std::uint64_t k = 1; k <= 3; ++k) {
    sim::fail_call(k, cudaErrorUnknown);
    CHECK_THROWS_AS(weir::stream(), cuda_error);
    sim::clear_failure();
  }
  CHECK(sim::calls("cudaStreamDestroy") == 1);  // the one that was made but whose id could not be had
  CHECK_NOTHROW(weir::stream());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}
