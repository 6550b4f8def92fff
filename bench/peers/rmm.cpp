// RMM's pool, arena, and bins over its pool, where a package manager has installed RMM with a CUDA runtime that can be
// replaced. In a library of its own, because RMM needs a newer CCCL than the toolkit's.

#include "../suite/suite.hpp"
#include "peers.hpp"

#include <rmm/cuda_stream_view.hpp>
#include <rmm/logger.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <array>
#include <new>

namespace bench {
namespace {

class rmm_streams {
 public:
  rmm_streams() {
    streams_[0] = cudaStreamLegacy;
    for (std::size_t i = 1; i < most_streams; ++i) cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking);
  }
  cuda::stream_ref operator[](std::size_t i) const { return cuda::stream_ref(streams_[i]); }

 private:
  std::array<cudaStream_t, most_streams> streams_{};
};

template <class Resource>
class rmm_peer {
 public:
  static constexpr bool streams = true, threads = true;
  static constexpr std::size_t most_live = 100'000;

  explicit rmm_peer(std::size_t initial_bytes) : memory_(upstream_, initial_bytes) {}
  void* allocate(std::size_t stream, std::size_t bytes) { return memory_.allocate(streams_[stream], bytes, 256); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) {
    memory_.deallocate(streams_[stream], p, bytes, 256);
  }

 private:
  rmm_streams streams_;
  rmm::mr::cuda_memory_resource upstream_;
  Resource memory_;
};

struct rmm_pool : rmm_peer<rmm::mr::pool_memory_resource> {
  static constexpr char const* name = "RMM pool";
  rmm_pool() : rmm_peer(0) {}
};
/// It never grows, so what it reserves says nothing.
struct rmm_arena : rmm_peer<rmm::mr::arena_memory_resource> {
  static constexpr char const* name = "RMM arena";
  explicit rmm_arena(std::size_t bytes = std::size_t{64} << 30) : rmm_peer(bytes) {}
};

/// As large as the device that a trace is replayed on.
struct rmm_arena_of_all : rmm_arena {
  rmm_arena_of_all() : rmm_arena(free_bytes()) {}
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    if (free < std::size_t{1} << 20) throw std::bad_alloc();  // RMM refuses to make a smaller one
    return free;
  }
};

/// Its own bins, of 256 KiB to 4 MiB, over its pool.
class rmm_binning {
 public:
  static constexpr char const* name = "RMM binning over pool";
  static constexpr bool streams = true, threads = true;
  static constexpr std::size_t most_live = 100'000;

  void* allocate(std::size_t stream, std::size_t bytes) { return memory_.allocate(streams_[stream], bytes, 256); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) {
    memory_.deallocate(streams_[stream], p, bytes, 256);
  }

 private:
  rmm_streams streams_;
  rmm::mr::cuda_memory_resource upstream_;
  rmm::mr::pool_memory_resource pool_{upstream_, 0};
  rmm::mr::binning_memory_resource memory_{pool_, 18, 22};
};

}  // namespace

void add_rmm() {
  add_peer<rmm_pool>();
  add_peer<rmm_arena>();
  add_peer<rmm_binning>();
}
void offer_rmm(subject_list& list) {
  rmm::default_logger().set_level(rapids_logger::level_enum::off);  // it writes a line for every refusal
  offer<rmm_pool>(list, "rmm-pool");
  offer<rmm_arena_of_all>(list, "rmm-arena");
  offer<rmm_binning>(list, "rmm-binning");
}

}  // namespace bench
