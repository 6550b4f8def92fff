#pragma once
// Where in its capture a stream stands: what tells it from another one that was given its handle meanwhile.

#include <weir/cuda/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace weir::detail {

/// The nodes of a capture's graph that the next node of a stream will depend on. CUDA says of no capturing stream who
/// it is; but a stream that comes after what the owner of its handle captured may have that one's memory, whoever it
/// is. Up to some 64 nodes are looked at: a stream that is further on, or after more than eight nodes at once, is not
/// known to come after anything. Any thread.
class capture_position {
 public:
  /// One that is not known: nothing comes after it.
  capture_position() = default;
  /// That of a stream, which may take part in none; not known where CUDA does not say. One CUDA call.
  explicit capture_position(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraphNode_t const* nodes = nullptr;
    std::size_t count = 0;
    unsigned long long id = 0;
    is_known_ = succeeded(ask(stream, status, id, nodes, count));
    if (!is_known_ || status != cudaStreamCaptureStatusActive) return;
    capture_ = id;
    is_known_ = count <= most_nodes;
    if (!is_known_) return;
    for (; count_ < count; ++count_) nodes_[count_] = nodes[count_];
  }

  bool is_in_capture() const noexcept { return capture_ != 0; }

  /// True if what is captured here from now on comes after all that was captured there before. Also in another capture
  /// than that one's, since only graphs that never run beside each other share memory. Some CUDA calls, which captures
  /// allow.
  bool comes_after(capture_position const& earlier) const noexcept {
    if (!is_known_ || !earlier.is_known_) return false;
    if (capture_ != earlier.capture_) return true;
    for (std::size_t i = 0; i < earlier.count_; ++i)
      if (!reaches(earlier.nodes_[i])) return false;
    return true;
  }

 private:
  static constexpr std::size_t most_nodes = 8;   // at once
  static constexpr std::size_t most_steps = 64;  // back

  static cudaError_t ask(cudaStream_t stream, cudaStreamCaptureStatus& status, unsigned long long& id,
                         cudaGraphNode_t const*& nodes, std::size_t& count) noexcept {
    cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
    cudaGraphEdgeData const* edges = nullptr;  // else CUDA refuses to speak of nodes with some
    return cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count);
#else
    return cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &count);
#endif
  }
  /// The first `most_nodes` of those that a node depends on; how many.
  static std::size_t before(cudaGraphNode_t node, cudaGraphNode_t* found) noexcept {
    std::size_t count = most_nodes;
#if CUDART_VERSION >= 13000
    cudaGraphEdgeData edges[most_nodes];
    cudaError_t const code = cudaGraphNodeGetDependencies(node, found, edges, &count);
#else
    cudaError_t const code = cudaGraphNodeGetDependencies(node, found, &count);
#endif
    if (!succeeded(code)) return 0;
    return count < most_nodes ? count : most_nodes;
  }

  /// Nodes on the way back, each once.
  struct way {
    cudaGraphNode_t nodes[most_steps];
    std::size_t count = 0;

    void add(cudaGraphNode_t const* more, std::size_t how_many) noexcept {
      for (std::size_t i = 0; i < how_many && count < most_steps; ++i)
        if (!has(more[i])) nodes[count++] = more[i];
    }
    bool has(cudaGraphNode_t node) const noexcept {
      std::size_t i = 0;
      while (i < count && nodes[i] != node) ++i;
      return i < count;
    }
  };
  bool reaches(cudaGraphNode_t target) const noexcept {
    way back;
    back.add(nodes_, count_);
    for (std::size_t i = 0; i < back.count && !back.has(target); ++i) {
      cudaGraphNode_t found[most_nodes];
      back.add(found, before(back.nodes[i], found));
    }
    return back.has(target);
  }

  unsigned long long capture_ = 0;
  bool is_known_ = false;
  std::size_t count_ = 0;
  cudaGraphNode_t nodes_[most_nodes] = {};
};

}  // namespace weir::detail
