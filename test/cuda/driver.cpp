// needs: tsan
#include <weir/cuda/driver.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace weir;
using namespace weir::detail;
using weir::test::fresh_world;

namespace {

constexpr std::size_t granularity = std::size_t{2} << 20;  // the simulated runtime's

CUmemAllocationProp kind_on(int device) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = device;
  return kind;
}

char const* const lookup =
#if CUDART_VERSION >= 12050
    "cudaGetDriverEntryPointByVersion";
#else
    "cudaGetDriverEntryPoint";
#endif

int refusals = 0;
CUresult never_ready(CUdeviceptr, std::size_t, CUmemAccessDesc const*, std::size_t) {
  ++refusals;
  return CUDA_ERROR_NOT_READY;
}
CUresult ready_at_the_third_call(CUdeviceptr, std::size_t, CUmemAccessDesc const*, std::size_t) {
  return ++refusals < 3 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

}  // namespace

TEST_CASE("the functions are looked up once, whichever thread asks") {
  fresh_world const world;
  driver_functions const& found = driver();
  sim::reset_counters();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&found] { CHECK(&driver() == &found); });
  for (std::thread& thread : threads) thread.join();
  CHECK(sim::calls(lookup) == 0);
}

TEST_CASE("a lookup that fails is an error, and can be repeated") {
  fresh_world const world;
  sim::fail_call(lookup, 3, cudaErrorUnknown);
  CHECK_THROWS_AS(find_driver_functions(), cuda_error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK((find_driver_functions().cuMemMap != nullptr));
}

TEST_CASE("a function that the driver lacks is named, with what to do") {
  fresh_world const world;
  decltype(&::cuMemMap) function = nullptr;
  try {
    find_in_driver("cuMemMapOfTomorrow", function);
    FAIL("nothing was thrown");
  } catch (std::invalid_argument const& error) {
    std::string const what = error.what();
    CHECK(what.find("weir: virtual_memory: the driver has no function cuMemMapOfTomorrow") == 0);
    CHECK(what.find("Use device or async") != std::string::npos);
  }
}

TEST_CASE("a driver's error is a cuda_error, and no last error of the runtime") {
  fresh_world const world;
  try {
    check(driver().cuMemUnmap(0, granularity), "cuMemUnmap");
    FAIL("nothing was thrown");
  } catch (cuda_error const& error) {
    CHECK(error.code() == cudaErrorInvalidValue);
    CHECK(std::string(error.what()).find("weir: cuMemUnmap failed: cudaErrorInvalidValue (1)") == 0);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a device with virtual memory says in what steps") {
  fresh_world const world;
  CHECK(granularity_of(1, kind_on(1)) == granularity);
}

TEST_CASE("a device without virtual memory is refused with words") {
  fresh_world const world;
  sim::set_virtual_memory(false);
  CHECK_THROWS_WITH_AS(granularity_of(0, kind_on(0)),
                       "weir: virtual_memory: device 0 has no virtual memory management, as most virtual GPUs; use "
                       "device or async",
                       std::invalid_argument);
}

TEST_CASE("access that is not ready is asked for again, but not for ever") {
  driver_functions f;
  refusals = 0;
  f.cuMemSetAccess = ready_at_the_third_call;
  CHECK(set_access(f, 0, 0, nullptr, 0) == CUDA_SUCCESS);
  CHECK(refusals == 3);
  refusals = 0;
  f.cuMemSetAccess = never_ready;
  CHECK(set_access(f, 0, 0, nullptr, 0) == CUDA_ERROR_NOT_READY);
  CHECK(refusals == 100);
}
