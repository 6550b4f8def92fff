#include <weir/cuda/error.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;

namespace {
bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// Makes CUDA remember a failure for this thread: device -7 is nowhere.
cudaError_t fail() { return cudaSetDevice(-7); }
}  // namespace

TEST_CASE("success is neither thrown nor counted as failure") {
  CHECK(detail::succeeded(cudaSuccess));
  CHECK_NOTHROW(detail::check(cudaSuccess, "cudaFree"));
}

TEST_CASE("a failure that was looked at is no longer the thread's last error") {
  CHECK(!detail::succeeded(fail()));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a failed check throws what failed, how and where, and leaves no last error") {
  try {
    detail::check(cudaErrorInvalidValue, "cudaSomething");
    FAIL("nothing was thrown");
  } catch (cuda_error const& error) {
    std::string const text = error.what();
    CHECK(error.code() == cudaErrorInvalidValue);
    CHECK(contains(text, "cudaSomething failed: cudaErrorInvalidValue (1)"));
    CHECK(contains(text, cudaGetErrorString(cudaErrorInvalidValue)));
    CHECK(contains(text, std::string("at ") + __FILE__ + ":"));
  }
  cudaError_t const code = fail();
  CHECK_THROWS_AS(detail::check(code, "cudaSetDevice"), cuda_error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}
