// Random and pct mode: another legal order of work for every seed, and the same for the same seed.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <set>
#include <stdexcept>

using namespace sim_test;

namespace {

constexpr std::uint64_t steps = 40;  // of `run_with`, roughly

/// What two independent streams and one that waits for both do, in the order in which it happened. Marks 1 to 4 and 11
/// to 14 are in order among themselves, 20 comes after 4 and 14; whether it happens before the host waits depends.
numbers run_with(std::uint64_t seed, sim::mode mode, unsigned depth = 3) {
  sim::reset();
  sim::set_mode(mode);
  sim::set_depth(depth, steps);
  sim::set_seed(seed);
  diary d;
  cudaStream_t const a = make_stream(), b = make_stream(), c = make_stream();
  cudaEvent_t const ends[] = {make_event(), make_event()};
  for (int i = 1; i <= 4; ++i) d.mark(a, i), d.mark(b, 10 + i);
  ok(cudaEventRecord(ends[0], a));
  ok(cudaEventRecord(ends[1], b));
  for (cudaEvent_t const e : ends) ok(cudaStreamWaitEvent(c, e, 0));
  d.mark(c, 20);
  ok(cudaStreamSynchronize(c));
  for (cudaStream_t const s : {a, b, c}) ok(cudaStreamDestroy(s));
  for (cudaEvent_t const e : ends) ok(cudaEventDestroy(e));
  numbers const order = d.reached();
  sim::reset();
  return order;
}

numbers only(numbers all, int from, int to) {
  std::erase_if(all, [&](int n) { return n < from || n > to; });
  return all;
}

}  // namespace

TEST_CASE("every seed keeps what CUDA promises, and many seeds make many orders") {
  sim::mode mode{};
  SUBCASE("random") { mode = sim::mode::random; }
  SUBCASE("pct") { mode = sim::mode::pct; }
  std::set<numbers> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    numbers const order = run_with(seed, mode);
    CHECK_EQ(only(order, 1, 4), numbers{1, 2, 3, 4});
    CHECK_EQ(only(order, 11, 14), numbers{11, 12, 13, 14});
    REQUIRE_EQ(order.size(), 9);
    CHECK_EQ(order.back(), 20);
    orders.insert(order);
  }
  CHECK(orders.size() > (mode == sim::mode::pct ? 10 : 20));
}

TEST_CASE("the same seed makes the same order") {
  for (sim::mode const mode : {sim::mode::random, sim::mode::pct})
    for (std::uint64_t seed = 0; seed < 20; ++seed) CHECK_EQ(run_with(seed, mode), run_with(seed, mode));
}

TEST_CASE("without a change of ranks, each stream keeps up with the host, or with the others that do not") {
  std::set<numbers> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) orders.insert(run_with(seed, sim::mode::pct, 1));
  CHECK_EQ(orders, std::set<numbers>{{1, 11, 2, 12, 3, 13, 4, 14, 20},    // both do
                                     {1, 2, 3, 4, 11, 12, 13, 14, 20},    // a does, or comes first when the host waits
                                     {11, 12, 13, 14, 1, 2, 3, 4, 20}});  // the same for b
}

TEST_CASE("a bug of depth 2 is found as often as the bound for it says") {
  constexpr std::uint64_t seeds = 3000;
  std::uint64_t found = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    numbers const order = run_with(seed, sim::mode::pct, 2);
    // Stream a stops after its second mark, and all that b has comes before a goes on.
    found += only(order, 1, 14) == numbers{1, 2, 11, 12, 13, 14, 3, 4};
  }
  CHECK(found >= seeds / (4 * steps));  // the host and three streams
}

TEST_CASE("a depth or a length of nothing is refused") {
  CHECK_THROWS_AS(sim::set_depth(0, 100), std::invalid_argument);
  CHECK_THROWS_AS(sim::set_depth(3, 0), std::invalid_argument);
}

TEST_CASE("a starved stream runs only when the host waits for it") {
  sim::reset();
  SUBCASE("random") { sim::set_mode(sim::mode::random); }
  SUBCASE("pct") { sim::set_mode(sim::mode::pct), sim::set_seed(4); }
  diary d;
  cudaStream_t const a = make_stream(), b = make_stream();
  sim::starve(id_of(a));
  for (int i = 1; i <= 4; ++i) d.mark(a, i), d.mark(b, 10 + i);
  for (int i = 0; i < 1000; ++i) static_cast<void>(cudaStreamQuery(a));
  CHECK_EQ(d.reached(), numbers{11, 12, 13, 14});
  ok(cudaStreamSynchronize(a));
  CHECK_EQ(d.reached(), numbers{11, 12, 13, 14, 1, 2, 3, 4});
  sim::reset();
}

TEST_CASE("a call that a library may make under a lock runs no host function, in a stream or in a graph") {
  for (sim::mode const mode : {sim::mode::random, sim::mode::pct})
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      sim::reset();
      sim::set_mode(mode);
      sim::set_seed(seed);
      diary d;
      cudaStream_t const a = make_stream(), b = make_stream();
      cudaEvent_t const e = make_event();
      auto const manage_memory = [&] {
        for (int i = 0; i < 100; ++i) {
          void* p = nullptr;
          ok(cudaMallocAsync(&p, 100, b));
          ok(cudaFreeAsync(p, b));
          ok(cudaEventRecord(e, b));
          static_cast<void>(cudaEventQuery(e));
          ok(cudaStreamWaitEvent(b, e, 0));
        }
      };
      ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
      d.mark(a, 1);
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t execution = nullptr;
      ok(cudaStreamEndCapture(a, &graph));
      ok(cudaGraphInstantiate(&execution, graph, 0));
      ok(cudaGraphLaunch(execution, a));
      manage_memory();
      CHECK_EQ(d.reached(), numbers{});
      ok(cudaStreamSynchronize(a));
      CHECK_EQ(d.reached(), numbers{1});
      d.mark(a, 2);
      manage_memory();
      CHECK_EQ(d.reached(), numbers{1});
      ok(cudaStreamSynchronize(a));
      CHECK_EQ(d.reached(), numbers{1, 2});
      sim::reset();
    }
}

TEST_CASE("who polls several events, with a glance at the device between, gets on") {
  for (sim::mode const mode : {sim::mode::random, sim::mode::pct}) {
    sim::reset();
    sim::set_mode(mode);
    cudaStream_t const streams[] = {make_stream(), make_stream()};
    cudaEvent_t const events[] = {make_event(), make_event()};
    for (int i = 0; i < 2; ++i) {
      ok(cudaLaunchHostFunc(
          streams[i], [](void*) {}, nullptr));
      ok(cudaEventRecord(events[i], streams[i]));
    }
    bool all = false;
    for (int tries = 0; !all; ++tries) {
      REQUIRE(tries < 10'000);
      ok(cudaSetDevice(0));
      bool const first = cudaEventQuery(events[0]) == cudaSuccess, second = cudaEventQuery(events[1]) == cudaSuccess;
      all = first && second;
    }
    sim::reset();
  }
}

TEST_CASE("work gets done without the host's waiting, or stays undone for long") {
  sim::reset();
  sim::set_mode(sim::mode::random);
  cudaStream_t const a = make_stream(), b = make_stream();
  cudaEvent_t const e = make_event(), never = make_event();
  ok(cudaLaunchHostFunc(
      a, [](void*) {}, nullptr));
  ok(cudaEventRecord(e, a));
  sim::starve(id_of(b));
  ok(cudaEventRecord(never, b));
  int tries = 0;
  while (cudaEventQuery(e) == cudaErrorNotReady) REQUIRE(++tries < 10'000);
  for (int i = 0; i < 1000; ++i) CHECK_EQ(cudaEventQuery(never), cudaErrorNotReady);
  ok(cudaEventSynchronize(never));
  sim::reset();
}
