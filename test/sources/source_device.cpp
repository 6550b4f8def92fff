#include <weir/sources/source_device.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <stdexcept>
#include <string>

using namespace weir;
using weir::test::fresh_world;

TEST_CASE_FIXTURE(fresh_world, "the current device is chosen where none is named") {
  device_guard const on_other(1);
  CHECK(detail::chosen_device("x", -1) == 1);
  CHECK(detail::chosen_device("x", 0) == 0);
  CHECK_THROWS_AS(detail::chosen_device("x", 2), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world, "a device that lacks something is refused with what that means") {
  detail::require_ability("x", 0, cudaDevAttrManagedMemory, "cannot");
  CHECK_THROWS_WITH_AS(detail::require_ability("x", 1, cudaDevAttrIntegrated, "is no part of the host"),
                       "weir: x: device 1 is no part of the host", std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world, "a report has a line on the device, whether CUDA answers or not") {
  sim::set_capacity(0, 1_GiB);
  CHECK(detail::device_state(0) == "device 0: 1.00 GiB free of 1.00 GiB");
  sim::fail_call("cudaMemGetInfo", 1, cudaErrorUnknown);
  CHECK(detail::device_state(0) == "device 0: its memory could not be asked for");
}

TEST_CASE("a source that is full says whether its own bound or the device is") {
  auto const bound = std::string("max_bytes of the source is used up: raise it, or free something");
  CHECK(detail::full_source_hint(600, 400, 999) == bound);
  CHECK(std::string(detail::full_source_hint(0, 1001, 1000)).starts_with("the request is larger than max_bytes"));
  CHECK(detail::full_source_hint(600, 400, 1000) == std::string(detail::device_is_full));
  CHECK(detail::full_source_hint(600, 400, 0) == std::string(detail::device_is_full));
}
