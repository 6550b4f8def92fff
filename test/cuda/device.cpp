#include <weir/cuda/device.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;

TEST_CASE("the guard makes a device current and gives the one before back") {
  sim::reset();
  REQUIRE(device_count() == 2);
  CHECK(current_device() == 0);
  {
    device_guard const outer(1);
    CHECK(current_device() == 1);
    {
      device_guard const inner(0);
      CHECK(current_device() == 0);
    }
    CHECK(current_device() == 1);
  }
  CHECK(current_device() == 0);
}

TEST_CASE("guarding the device that is current costs one call") {
  sim::reset();
  { device_guard const same(0); }
  CHECK(sim::calls() == 1);
}

TEST_CASE("a device that does not exist is an error, and the current one stays") {
  sim::reset();
  CHECK_THROWS_AS(static_cast<void>(device_guard(7)), cuda_error);
  CHECK(current_device() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("the error names the device that was asked for, and those that there are") {
  sim::reset();
  for (int const asked : {-1, 7}) {
    std::string said;
    try {
      static_cast<void>(memory_info(asked));
    } catch (cuda_error const& failed) {
      said = failed.what();
    }
    CHECK(said.find("cudaSetDevice(" + std::to_string(asked) + ") (this process sees 2 devices, numbered from 0)") !=
          std::string::npos);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("memory info is of the device asked for, and the current one stays") {
  sim::reset();
  sim::set_capacity(0, 4 << 20);
  sim::set_capacity(1, 8 << 20);
  CHECK(memory_info(0).total_bytes == 4 << 20);
  CHECK(memory_info(1).total_bytes == 8 << 20);
  CHECK(current_device() == 0);
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, 1 << 20) == cudaSuccess);
  CHECK(memory_info(0).free_bytes <= 3 << 20);
  CHECK(memory_info(1).free_bytes == 8 << 20);
  REQUIRE(cudaFree(p) == cudaSuccess);
}

TEST_CASE("attributes are asked of the device named") {
  sim::reset();
  CHECK(detail::device_attribute(cudaDevAttrMemoryPoolsSupported, 1) == 1);
  CHECK_THROWS_AS(detail::device_attribute(cudaDevAttrMemoryPoolsSupported, 7), cuda_error);
}
