#include <weir/sources/scrubber.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <cstddef>

using namespace weir;
using weir::detail::scrubber;
using weir::test::lazy_world;

namespace {

/// Memory of device 1, while device 0 is current.
struct block_of_a_device : lazy_world {
  static constexpr std::size_t bytes = 4096;
  block_of_a_device() {
    device_guard const there(1);
    detail::check(cudaMalloc(reinterpret_cast<void**>(&p), bytes), "cudaMalloc");
    std::fill(p, p + bytes, std::byte{7});
  }
  ~block_of_a_device() { cudaFree(p); }
  std::ptrdiff_t zeros() const { return std::count(p, p + bytes, std::byte{0}); }

  std::byte* p = nullptr;
};

}  // namespace

TEST_CASE_FIXTURE(block_of_a_device, "memory is zero when the call is over, whichever device is current") {
  scrubber const zeroing(1);
  CHECK(zeroing.zero(p, bytes / 2).code == cudaSuccess);
  CHECK(zeros() == bytes / 2);
  CHECK(current_device() == 0);
}

TEST_CASE_FIXTURE(block_of_a_device, "a call that fails leaves nothing under way, and no last error") {
  scrubber const zeroing(1);
  for (char const* call : {"cudaGetDevice", "cudaSetDevice", "cudaMemsetAsync"}) {
    CAPTURE(call);
    sim::fail_call(call, 1, cudaErrorUnknown);
    auto const done = zeroing.zero(p, bytes);
    CHECK(done.code != cudaSuccess);
    CHECK_FALSE(done.is_under_way);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(current_device() == 0);
  }
  CHECK(zeros() == 0);
}

TEST_CASE_FIXTURE(block_of_a_device, "where CUDA cannot wait, the memory may still be written") {
  scrubber const zeroing(1);
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  sim::fail_call("cudaDeviceSynchronize", 1, cudaErrorUnknown);
  auto const done = zeroing.zero(p, bytes);
  CHECK(done.code != cudaSuccess);
  CHECK(done.is_under_way);
  device_guard const there(1);
  cudaDeviceSynchronize();
}

TEST_CASE_FIXTURE(block_of_a_device, "a device that is not there is said at once") {
  CHECK_THROWS_AS(scrubber(99), cuda_error);
}
