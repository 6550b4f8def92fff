#pragma once
// A stream that is destroyed when the program likes: the kind that a pool has to be careful with.

#include <weir/cuda/stream_ref.hpp>

#include <cuda_runtime_api.h>

#include <doctest/doctest.h>

namespace weir::test {

class destroyable_stream {
 public:
  destroyable_stream() { REQUIRE(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking) == cudaSuccess); }
  ~destroyable_stream() { cudaStreamDestroy(handle_); }
  destroyable_stream(destroyable_stream const&) = delete;
  destroyable_stream& operator=(destroyable_stream const&) = delete;

  cudaStream_t get() const noexcept { return handle_; }
  operator stream_ref() const noexcept { return handle_; }
  void finish() const { REQUIRE(cudaStreamSynchronize(handle_) == cudaSuccess); }

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace weir::test
