#include <weir/cuda/managed.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

namespace {

/// 100 bytes of managed memory in a fresh simulated runtime.
struct managed_bytes : weir::test::fresh_world {
  managed_bytes() { REQUIRE(cudaMallocManaged(&p, 100, cudaMemAttachGlobal) == cudaSuccess); }
  int ask(cudaMemRangeAttribute what) const {
    int answer = 77;
    REQUIRE(cudaMemRangeGetAttribute(&answer, sizeof answer, what, p, 100) == cudaSuccess);
    return answer;
  }
  void* p = nullptr;
};

}  // namespace

TEST_CASE_FIXTURE(managed_bytes, "memory is prefetched to a device or to the host") {
  for (int const to : {1, cudaCpuDeviceId, 0}) {
    CHECK(weir::detail::prefetch_to(p, 100, to, cudaStreamPerThread) == cudaSuccess);
    CHECK(ask(cudaMemRangeAttributeLastPrefetchLocation) == to);
  }
}

TEST_CASE_FIXTURE(managed_bytes, "advice is for a device or for the host") {
  for (int const to : {1, cudaCpuDeviceId, 0}) {
    CHECK(weir::detail::advise(p, 100, cudaMemAdviseSetPreferredLocation, to) == cudaSuccess);
    CHECK(ask(cudaMemRangeAttributePreferredLocation) == to);
  }
}

TEST_CASE_FIXTURE(managed_bytes, "what CUDA refuses is the answer") {
  CHECK(weir::detail::prefetch_to(p, 101, 0, cudaStreamPerThread) == cudaErrorInvalidValue);
  CHECK(weir::detail::advise(p, 100, cudaMemAdviseSetPreferredLocation, 7) == cudaErrorInvalidDevice);
  static_cast<void>(cudaGetLastError());
}
