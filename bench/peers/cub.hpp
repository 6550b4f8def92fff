#pragma once
// CUB's CachingDeviceAllocator: powers of eight from 512 B to 2 MiB, cached without an upper limit. Its default of 6
// MiB would make it call cudaFree all the time.

#include "subject.hpp"

#include <cub/util_allocator.cuh>

#include <array>

namespace bench {

class cub_caching {
 public:
  static constexpr char const* name = "CUB CachingDeviceAllocator";
  static constexpr bool streams = true, threads = true;
  static constexpr std::size_t most_live = 1'000'000;

  cub_caching() {
    for (std::size_t i = 1; i < most_streams; ++i) cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking);
  }
  void* allocate(std::size_t stream, std::size_t bytes) {
    void* p = nullptr;
    static_cast<void>(memory_.DeviceAllocate(&p, bytes, streams_[stream]));
    return p;
  }
  // A block is ready for others when the stream it was *allocated* on is done: to free it on another stream, users have
  // to order that themselves, and so the cost of that is not in here.
  void deallocate(std::size_t, void* p, std::size_t) { static_cast<void>(memory_.DeviceFree(p)); }

 private:
  std::array<cudaStream_t, most_streams> streams_{};
  cub::CachingDeviceAllocator memory_{8, 3, 7};
};

}  // namespace bench
