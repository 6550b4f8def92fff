#include <weir/cuda/event.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <stdexcept>
#include <type_traits>
#include <utility>

using namespace weir;
using weir::test::lazy_world;

static_assert(std::is_move_constructible_v<event> && !std::is_copy_constructible_v<event>);

namespace {

void queue(weir::stream const& stream, bool& flag) {
  REQUIRE(cudaLaunchHostFunc(
              stream.get(), [](void* f) { *static_cast<bool*>(f) = true; }, &flag) == cudaSuccess);
}

}  // namespace

TEST_CASE("an event that was never recorded counts as done") {
  lazy_world const world;
  event const e;
  CHECK(e.done());
  CHECK_NOTHROW(e.synchronize());
}

TEST_CASE("an event is done when the work before its record is, whatever came after") {
  lazy_world const world;
  weir::stream const s;
  bool before = false, after = false;
  queue(s, before);
  event e;
  e.record(s);
  queue(s, after);
  CHECK(!e.done());
  CHECK(cudaPeekAtLastError() == cudaSuccess);  // "not ready" is an answer, not a failure
  e.synchronize();
  CHECK(e.done());
  CHECK(before);
  CHECK(!after);
}

TEST_CASE("a stream that is held back works after the recorded point") {
  lazy_world const world;
  weir::stream const first, second;
  bool before = false, behind = false;
  queue(first, before);
  event e;
  e.record(first);
  e.hold_back(second);
  queue(second, behind);
  CHECK(!before);
  second.synchronize();
  CHECK(before);
  CHECK(behind);
}

TEST_CASE("a moved event has one owner") {
  sim::reset();
  {
    event first;
    event second = std::move(first);
    event third;
    third = std::move(second);
    CHECK(third.get() != nullptr);
  }
  CHECK(sim::calls("cudaEventDestroy") == sim::calls("cudaEventCreateWithFlags"));
}

TEST_CASE("each call that fails is an error that names it") {
  sim::reset();
  weir::stream const s;
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_THROWS_AS(event(), cuda_error);
  event e;
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_THROWS_AS(e.record(s), cuda_error);
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_THROWS_AS(e.hold_back(s), cuda_error);
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_THROWS_AS(e.done(), cuda_error);
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_THROWS_AS(e.synchronize(), cuda_error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a moved-from event is no event, until another is assigned to it") {
  lazy_world const world;
  event first, second;
  cudaEvent_t const handle = first.get();
  second = std::move(first);
  sim::reset_counters();
  CHECK_THROWS_WITH_AS(first.get(), "weir: this event was moved from; assign another to it before it is used",
                       std::logic_error);
  CHECK_THROWS_AS(first.record(cudaStreamLegacy), std::logic_error);
  CHECK_THROWS_AS(first.hold_back(cudaStreamLegacy), std::logic_error);
  CHECK_THROWS_AS(first.done(), std::logic_error);
  CHECK_THROWS_AS(first.synchronize(), std::logic_error);
  CHECK(sim::calls() == 0);
  first = std::move(second);
  CHECK(first.get() == handle);
}
