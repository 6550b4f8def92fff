#pragma once
// The blocks of a `scrub`: which are live, and which were freed where they could not be zeroed yet.

#include <weir/cuda/stream_ref.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace weir::detail {

/// What is known of a block. To zero what was freed twice, or with a wrong size, would destroy another's data.
struct scrubbed_block {
  std::size_t bytes;           ///< as it was asked for
  std::size_t alignment;       ///< the same
  std::uint64_t allocated_in;  ///< the capture that it was allocated in; 0: none
  std::uint64_t held_for = 0;  ///< the capture that its free has to wait for; 0: it is live
  stream_ref freed_on = {};    ///< where, if it is held
};

/// Thread-safe. Only `insert` allocates host memory.
class scrubbed_blocks {
 public:
  /// May throw `std::bad_alloc`, and has changed nothing then.
  void insert(void* p, scrubbed_block const& block) {
    std::lock_guard const lock(mutex_);
    blocks_.insert_or_assign(p, block);
  }

  /// The live block at `p`, if there is one.
  std::optional<scrubbed_block> find_live(void* p) const noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = blocks_.find(p);
    if (found == blocks_.end() || found->second.held_for != 0) return std::nullopt;
    return found->second;
  }
  /// Forgets the live block at `p`; false if there is none any more.
  bool take(void* p) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = blocks_.find(p);
    if (found == blocks_.end() || found->second.held_for != 0) return false;
    blocks_.erase(found);
    return true;
  }
  /// Keeps the live block at `p` for a capture; false if there is none any more.
  bool hold(void* p, std::uint64_t capture, stream_ref stream) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = blocks_.find(p);
    if (found == blocks_.end() || found->second.held_for != 0) return false;
    found->second.held_for = capture;
    found->second.freed_on = stream;
    held_bytes_ += found->second.bytes;
    return true;
  }

  /// Takes out a block that is held and `may_go(block)`. Looks at all blocks.
  template <class MayGo>
  std::optional<std::pair<void*, scrubbed_block>> take_held(MayGo may_go) noexcept {
    std::lock_guard const lock(mutex_);
    if (held_bytes_ == 0) return std::nullopt;
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
      if (at->second.held_for == 0 || !may_go(at->second)) continue;
      std::pair<void*, scrubbed_block> const found = *at;
      held_bytes_ -= found.second.bytes;
      blocks_.erase(at);
      return found;
    }
    return std::nullopt;
  }

  /// Whether a block is held for this capture, or of this one; 0: for any.
  bool holds(std::uint64_t capture) const noexcept {
    std::lock_guard const lock(mutex_);
    if (held_bytes_ == 0 || capture == 0) return held_bytes_ != 0;
    return std::any_of(blocks_.begin(), blocks_.end(), [&](auto const& at) {
      scrubbed_block const& b = at.second;
      return b.held_for != 0 && (b.held_for == capture || b.allocated_in == capture);
    });
  }
  /// Bytes that are held, as they were asked for.
  std::size_t held_bytes() const noexcept {
    std::lock_guard const lock(mutex_);
    return held_bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, scrubbed_block> blocks_;
  std::size_t held_bytes_ = 0;
};

}  // namespace weir::detail
