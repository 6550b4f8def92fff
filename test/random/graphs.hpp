#pragma once
// What a random program knows of its captures and of the graphs that they became, to launch them in order.

#include <weir/cuda/capture.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace random_program {

struct graph {
  /// A block that is live and that launches use; blocks go by numbers of the program's.
  struct use {
    std::uint64_t block = 0;
    bool is_own = false;  // allocated in the capture
    int content = -1;     // what a launch leaves in it; negative: it writes nothing there
    std::size_t on = 0;   // the captured stream that comes after all uses so far
  };

  cudaGraphExec_t handle = nullptr;  // null: the capture was broken, and there is nothing to launch
  std::uint64_t id = 0;              // the capture's
  unsigned after = 0;     // a bit for each stream that used what the capture freed: launches come after those
  unsigned runs_on = 0;   // the same for each stream that launched it
  bool is_stale = false;  // a block from outside is gone: it cannot be launched any more
  std::vector<use> uses;
  std::vector<std::uint64_t> borrows;  // captures whose memory it uses, though the block is gone

  bool has_borrowed(std::uint64_t capture) const {
    return std::find(borrows.begin(), borrows.end(), capture) != borrows.end();
  }
  bool shares_memory_with(graph const& other) const {
    return has_borrowed(other.id) || other.has_borrowed(id) ||
           std::any_of(borrows.begin(), borrows.end(), [&](std::uint64_t of) { return other.has_borrowed(of); });
  }

  use const* find(std::uint64_t block) const {
    auto const found = std::find_if(uses.begin(), uses.end(), [block](use const& u) { return u.block == block; });
    return found == uses.end() ? nullptr : &*found;
  }
  use& use_of(std::uint64_t block) {
    if (find(block) == nullptr) uses.push_back({.block = block});
    return const_cast<use&>(*find(block));
  }
  /// Somebody freed it on the streams `behind`, as bits. Memory of the graph's own stays the graph's: it is written
  /// again by the next launch.
  void block_ends(std::uint64_t block, unsigned behind) {
    use const* const found = find(block);
    if (found == nullptr) return;
    is_stale |= !found->is_own;
    if (found->is_own) after |= behind;
    block_is_freed(block);
  }
  /// The capture itself freed it.
  void block_is_freed(std::uint64_t block) {
    std::erase_if(uses, [block](use const& u) { return u.block == block; });
  }
};

/// A capture under way.
struct capture {
  graph made;
  std::size_t origin = 0;
  bool is_elsewhere = false;  // began in the second thread
  bool is_broken = false;     // what its streams do now is part of nothing
  bool had_blocking = false;  // a stream that the legacy one waits for took part
  std::optional<weir::capture_scope> declared;

  void add(std::size_t stream) { streams_ |= 1u << stream; }
  void remove(std::size_t stream) { streams_ &= ~(1u << stream); }
  bool has(std::size_t stream) const { return (streams_ >> stream & 1) != 0; }

 private:
  unsigned streams_ = 0;  // a bit for each
};

}  // namespace random_program
