#include <weir/adaptors/pool.hpp>
#include <weir/containers/scalar.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <bridges/checked_memory.hpp>
#include <optional>
#include <stdexcept>
#include <support/captures.hpp>
#include <type_traits>
#include <utility>

using namespace weir;

namespace {

static_assert(!std::is_copy_constructible_v<scalar<int>> && std::is_nothrow_move_constructible_v<scalar<int>>);

template <class S>
concept takes_temporaries_async = requires(S& s) {
  s.set_value_async(1);
};
static_assert(!takes_temporaries_async<scalar<int>>);

}  // namespace

TEST_CASE("a value goes to the device and back, on the stream or another") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  scalar one(1.5, s, memory);
  static_assert(std::is_same_v<decltype(one), scalar<double>>);
  CHECK(one.value() == 1.5);
  one.set_value(2.5, t);
  CHECK(one.value() == 2.5);
  CHECK(one.value(t) == 2.5);
  static double const late = 3.5;
  one.set_value_async(late);
  CHECK(one.value(t) == 3.5);
  one.set_value_async(late, t);
  one.set_to_zero();
  CHECK(one.value() == 0.0);
  CHECK(one.stream() == stream_ref(s));
  CHECK(one.device() == 0);
  CHECK(one.memory() == any_handle(memory));
}

TEST_CASE("a value is set after the work of the stream that was said, and may change on return, also if it is pinned") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  auto host = make(pinned{});
  stream const s, t;
  scalar<int> one(0, s, memory);
  auto* const value = static_cast<int*>(host.allocate(host_order, sizeof(int)));
  sim::touch(t.get(), one.data(), sizeof(int),
             sim::access::write);  // queued, so that it is not done when `set` is called
  *value = 7;
  one.set_value(*value, t);
  *value = 8;
  CHECK(one.value(t) == 7);
  host.deallocate(host_order, value, sizeof(int));
}

TEST_CASE("value waits for the work that writes it") {
  test::watched_world const world;
  auto memory = make(async{} | checked{});
  stream const s;
  scalar<int> count(s, memory);
  count.set_to_zero();
  static int const seven = 7;
  CHECK(cudaMemcpyAsync(count.data(), &seven, sizeof seven, cudaMemcpyDefault, s.get()) == cudaSuccess);
  CHECK(std::as_const(count).data() == count.data());
  CHECK(count.value() == 7);
}

TEST_CASE("copies are apart; what was moved from has no value, and may get one by assignment") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  scalar<int> a(1, s, memory);
  scalar<int> b = a.copy(t);
  scalar<int> const d = a.copy();
  a.set_value(2);
  CHECK(b.value() == 1);
  CHECK(d.value() == 1);
  scalar<int> c(std::move(a));
  CHECK(c.value() == 2);
  CHECK_THROWS_AS(static_cast<void>(a.value()), std::out_of_range);  // NOLINT(bugprone-use-after-move)
  CHECK_THROWS_AS(a.set_value(1), std::out_of_range);
  static int const later = 1;
  CHECK_THROWS_AS(a.set_value_async(later), std::out_of_range);
  CHECK_THROWS_AS(a.set_to_zero(), std::out_of_range);
  CHECK_THROWS_AS(static_cast<void>(a.copy()), std::out_of_range);
  CHECK_THROWS_AS(static_cast<void>(a.copy(s)), std::out_of_range);
  a = std::move(b);
  CHECK(a.value() == 1);
  a.set_stream(s);
  CHECK(a.stream() == stream_ref(s));
}

TEST_CASE("it keeps an owning handle's stack alive") {
  test::fresh_world const world;
  stream const s;
  {
    std::optional<any_resource> memory(std::in_place, async{});
    scalar<int> const one(5, s, *memory);
    memory.reset();
    CHECK(one.value() == 5);
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("if the value cannot be copied there, the memory goes back") {
  test::fresh_world const world;
  pinned_memory memory;
  stream const s;
  sim::fail_call("cudaMemcpyAsync", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(scalar<int>(1, s, memory), cuda_error);
  CHECK(memory.clean());
}

TEST_CASE("in a capture a value is set by what each launch reads") {
  test::watched_world const world;
  auto memory = make(async{} | pool{});
  stream const s;
  scalar<int> one(1, s, memory);
  static int at_launch = 2;
  {
    capture_scope const declared;
    test::begin_capture(s);
    one.set_value_async(at_launch);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(s.get(), &graph) == cudaSuccess);
    cudaGraphExec_t launched = nullptr;
    REQUIRE(cudaGraphInstantiate(&launched, graph, 0) == cudaSuccess);
    for (at_launch = 3; at_launch < 5; ++at_launch) {
      CHECK(cudaGraphLaunch(launched, s.get()) == cudaSuccess);
      CHECK(one.value() == at_launch);
    }
    CHECK(cudaGraphExecDestroy(launched) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  }
}
