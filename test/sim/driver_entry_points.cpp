// Functions of the driver, asked for by name: those that the simulated runtime has not are not found, which is said as
// CUDA says it.

#include "support.hpp"

#include <weir/sim/sim.hpp>

using namespace sim_test;

// Toolkit 13 advises against the form without a version.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

TEST_CASE_FIXTURE(fresh, "a function of the driver is not found, which is no error") {
  int something = 0;
  void* function = &something;
  auto result = cudaDriverEntryPointSuccess;
  ok(cudaGetDriverEntryPoint("cuTexObjectCreate", &function, cudaEnableDefault, &result));
  CHECK_EQ(function, nullptr);
  CHECK_EQ(result, cudaDriverEntryPointSymbolNotFound);
  ok(cudaGetDriverEntryPoint("cuTexObjectCreate", &function, cudaEnablePerThreadDefaultStream, nullptr));
  CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);
  CHECK_EQ(sim::calls("cudaGetDriverEntryPoint"), 2);
#if CUDART_VERSION >= 12050
  function = &something;
  result = cudaDriverEntryPointSuccess;
  ok(cudaGetDriverEntryPointByVersion("cuTexObjectCreate", &function, 12000, cudaEnableLegacyStream, &result));
  CHECK_EQ(function, nullptr);
  CHECK_EQ(result, cudaDriverEntryPointSymbolNotFound);
#endif
}

TEST_CASE_FIXTURE(fresh, "a function of virtual memory is found, by a version of CUDA that has it") {
  void* function = nullptr;
  auto result = cudaDriverEntryPointSymbolNotFound;
  ok(cudaGetDriverEntryPoint("cuMemCreate", &function, cudaEnableDefault, &result));
  CHECK_NE(function, nullptr);
  CHECK_EQ(result, cudaDriverEntryPointSuccess);
#if CUDART_VERSION >= 12050
  void* const newest = function;
  ok(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 10020, cudaEnableDefault, &result));
  CHECK_EQ(function, newest);
  CHECK_EQ(result, cudaDriverEntryPointSuccess);
  ok(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 10010, cudaEnableDefault, &result));
  CHECK_EQ(function, nullptr);
  CHECK_EQ(result, cudaDriverEntryPointVersionNotSufficent);
#endif
}

TEST_CASE_FIXTURE(fresh, "what cannot be looked for is refused") {
  void* function = nullptr;
  CHECK_EQ(cudaGetDriverEntryPoint(nullptr, &function, cudaEnableDefault, nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetDriverEntryPoint("", &function, cudaEnableDefault, nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetDriverEntryPoint("cuTexObjectCreate", nullptr, cudaEnableDefault, nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetDriverEntryPoint("cuTexObjectCreate", &function, 3, nullptr), cudaErrorInvalidValue);
#if CUDART_VERSION >= 12050
  int driver = 0;
  ok(cudaDriverGetVersion(&driver));
  auto const newer = static_cast<unsigned>(driver) + 10;
  CHECK_EQ(cudaGetDriverEntryPointByVersion("cuTexObjectCreate", &function, newer, 0, nullptr), cudaErrorInvalidValue);
#endif
}
