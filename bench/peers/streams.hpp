#pragma once
// Streams for weir's stacks: some that last, and some that may end.

#include "subject.hpp"

#include <weir/cuda/stream.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

namespace bench {

/// The default stream, and `weir::stream`s, which a pool recognises without a call. All stacks have the same.
class persistent_streams {
 public:
  using refs = std::array<weir::stream_ref, most_streams>;

  static refs const& all() {
    static auto const* const made = new std::array<weir::stream, most_streams - 1>;  // they outlive every pool
    static refs const found = [] {
      refs r{};
      for (std::size_t i = 1; i < most_streams; ++i) r[i] = (*made)[i - 1];
      return r;
    }();
    return found;
  }
  weir::stream_ref operator[](std::size_t i) const { return refs_[i]; }

 private:
  refs refs_ = all();
};

/// Streams that the program makes and ends itself.
class plain_streams {
 public:
  plain_streams() {
    for (cudaStream_t& s : made_) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  }
  ~plain_streams() {
    for (cudaStream_t s : made_) cudaStreamDestroy(s);
  }
  plain_streams(plain_streams const&) = delete;
  plain_streams& operator=(plain_streams const&) = delete;
  weir::stream_ref operator[](std::size_t i) const { return made_[i]; }

 private:
  std::array<cudaStream_t, most_streams> made_{};
};

}  // namespace bench
