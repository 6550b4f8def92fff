#include <weir/core/call_note.hpp>
#include <weir/sources/rejected_free.hpp>

#include <doctest/doctest.h>
#include <support/test_source.hpp>

#include <string>

using namespace weir;
using namespace weir::test;

TEST_CASE("a free that fails for a reason that is not the caller's is quiet") {
  caught_misuse const misuse;
  for (cudaError_t const code : {cudaSuccess, cudaErrorCudartUnloading, cudaErrorLaunchFailure})
    detail::freed(code, "x", "cudaFree", nullptr, 0);
  CHECK(misuse.count() == 0);
}

TEST_CASE("layers above hear whether the memory went back, was kept for good, or was not the caller's") {
  caught_misuse const misuse;
  auto const noted = [](cudaError_t code) {
    detail::last_call.clear();
    detail::freed(code, "x", "cudaFree", nullptr, 0);
    return detail::last_call.what;
  };
  CHECK(noted(cudaSuccess) == detail::call_note::plain);
  CHECK(noted(cudaErrorLaunchFailure) == detail::call_note::kept);
  CHECK(noted(cudaErrorInvalidValue) == detail::call_note::misuse);
}

TEST_CASE("a pointer that CUDA does not know is the caller's fault, and is named") {
  caught_misuse const misuse;
  detail::freed(cudaErrorInvalidValue, "x", "cudaFree", reinterpret_cast<void*>(0x1000), 300);
  CHECK(misuse.last() ==
        "weir: x: deallocate of 0x1000 (300 B): cudaFree does not know this pointer; it was freed "
        "before, is not from this resource, or went with its device (cudaDeviceReset)");
}
