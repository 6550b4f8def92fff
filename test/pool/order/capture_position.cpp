#include <weir/pool/order/capture_position.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>

#include <array>
#include <cstddef>

using namespace weir;
using namespace weir::test;
using detail::capture_position;

namespace {

/// A stream that captures, and some memory to work on.
struct one_capture {
  watched_world const world;
  destroyable_stream const origin, side;
  void* memory = nullptr;

  one_capture() {
    REQUIRE(cudaMalloc(&memory, 16) == cudaSuccess);
    begin_capture(origin);
  }
  ~one_capture() {
    { captured_graph const graph(origin); }
    cudaFree(memory);
  }
  void work(destroyable_stream const& on, int nodes = 1) const {
    for (int i = 0; i < nodes; ++i) REQUIRE(cudaMemsetAsync(memory, i, 16, on.get()) == cudaSuccess);
  }
  static capture_position of(destroyable_stream const& s) { return capture_position(s.get()); }
};

}  // namespace

TEST_CASE_FIXTURE(one_capture, "a stream comes after what it captured itself, and not before it") {
  auto const start = of(origin);
  CHECK(start.is_in_capture());
  CHECK(start.comes_after(start));
  work(origin);
  auto const first = of(origin);
  work(origin, 20);
  auto const later = of(origin);
  CHECK(first.comes_after(start));
  CHECK(first.comes_after(first));
  CHECK(later.comes_after(first));
  CHECK_FALSE(first.comes_after(later));
  CHECK_FALSE(start.comes_after(first));
}

TEST_CASE_FIXTURE(one_capture, "a branch comes after what it was forked from, and another after it once they join") {
  work(origin);
  auto const forked = of(origin);
  order(origin, side);
  work(origin);
  work(side);
  auto const one = of(origin), other = of(side);
  CHECK(other.comes_after(forked));
  CHECK_FALSE(other.comes_after(one));
  CHECK_FALSE(one.comes_after(other));
  order(side, origin);
  auto const joined = of(origin);
  CHECK(joined.comes_after(other));
  CHECK(joined.comes_after(one));
  work(side);
  CHECK_FALSE(of(side).comes_after(joined));
  order(side, origin);
}

TEST_CASE_FIXTURE(one_capture, "what is too far back is not found") {
  work(origin);
  auto const first = of(origin);
  work(origin, 63);
  CHECK(of(origin).comes_after(first));
  work(origin);
  CHECK_FALSE(of(origin).comes_after(first));
}

TEST_CASE_FIXTURE(one_capture, "a stream after more than eight nodes at once is not known to come after any") {
  std::array<destroyable_stream, 8> const branches;
  auto const start = of(origin);
  for (auto const& branch : branches) {
    order(origin, branch);
    work(branch);
  }
  work(origin);
  for (std::size_t i = 0; i + 1 < branches.size(); ++i) order(branches[i], origin);
  CHECK(of(origin).comes_after(start));  // eight: seven branches, and its own
  order(branches.back(), origin);
  CHECK_FALSE(of(origin).comes_after(start));
}

TEST_CASE_FIXTURE(one_capture, "in no capture, or in another one, order is not asked for") {
  work(origin);
  destroyable_stream const elsewhere, second;
  CHECK_FALSE(of(elsewhere).is_in_capture());
  CHECK(of(elsewhere).comes_after(of(origin)));
  begin_capture(second);
  CHECK(of(second).comes_after(of(origin)));
  CHECK(of(origin).comes_after(of(second)));
  captured_graph const graph(second);
}

TEST_CASE_FIXTURE(one_capture, "where CUDA does not say, nothing is known") {
  work(origin);
  auto const first = of(origin);
  work(origin);
  auto const later = of(origin);
  sim::fail_call(1, cudaErrorUnknown);
  CHECK_FALSE(later.comes_after(first));
  CHECK(later.comes_after(first));
  sim::fail_call(1, cudaErrorUnknown);
  auto const unknown = of(origin);
  CHECK_FALSE(unknown.comes_after(first));
  CHECK_FALSE(later.comes_after(unknown));
  CHECK_FALSE(later.comes_after(capture_position()));
  CHECK_FALSE(capture_position().comes_after(later));
  CHECK(cudaGetLastError() == cudaSuccess);
}
