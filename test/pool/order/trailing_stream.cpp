#include <weir/pool/order/trailing_stream.hpp>

#include <weir/cuda/device.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include "support/destroyable_stream.hpp"
#include "support/streams_at_work.hpp"

using namespace weir;
using namespace weir::test;

namespace {

/// True if all that the stream was given so far is done.
bool is_done(cudaStream_t stream) { return cudaStreamQuery(stream) == cudaSuccess; }

}  // namespace

TEST_CASE("it comes after the work of all that it followed, also of another device's") {
  lazy_world const world;
  destroyable_stream const one;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  destroyable_stream const other;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  detail::trailing_stream trailing;
  CHECK(trailing.get() == nullptr);
  REQUIRE(trailing.make(0));
  cudaStream_t const made = trailing.get();
  REQUIRE(trailing.make(0));
  CHECK(trailing.get() == made);
  for (auto const* user : {&one, &other})
    REQUIRE(cudaLaunchHostFunc(
                user->get(), [](void*) {}, nullptr) == cudaSuccess);
  REQUIRE(trailing.follow(one, 0));
  REQUIRE(trailing.follow(other, 1));
  CHECK_FALSE(is_done(made));
  other.finish();
  CHECK_FALSE(is_done(made));
  one.finish();
  sim::run_all();
  CHECK(is_done(made));
  CHECK(current_device() == 0);
}

TEST_CASE("whichever call fails, it says so, leaves no error behind, and can be tried again") {
  lazy_world const world;
  destroyable_stream const user;
  for (char const* const call : {"cudaGetDevice", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags",
                                 "cudaEventRecord", "cudaStreamWaitEvent"}) {
    CAPTURE(call);
    detail::trailing_stream trailing;
    sim::fail_call(call, 1, cudaErrorUnknown);
    CHECK_FALSE((trailing.make(0) && trailing.follow(user, 0)));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK((trailing.make(0) && trailing.follow(user, 0)));
  }
}
