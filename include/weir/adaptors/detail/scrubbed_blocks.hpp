#pragma once
// The blocks of a `scrub`: which are live, and which were freed where they could not be zeroed yet.

#include <weir/cuda/stream_ref.hpp>

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
  void* next_held = nullptr;   ///< the block that was held after it
};

/// Thread-safe. Only `insert` allocates host memory.
class scrubbed_blocks {
 public:
  /// May throw `std::bad_alloc`, and has changed nothing then.
  void insert(void* p, scrubbed_block const& block) {
    std::lock_guard const lock(mutex_);
    auto const [at, is_new] = blocks_.try_emplace(p, block);
    if (is_new) [[likely]]
      return;
    if (at->second.held_for != 0) stop_holding(p);  // what was there went past this layer
    at->second = block;
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
    hold_last(found->second, p);
    return true;
  }

  /// Takes out a block that is held and `may_go(block)`. Those that may not are looked at last by the next call, so
  /// that who takes all that may looks at each a few times.
  template <class MayGo>
  std::optional<std::pair<void*, scrubbed_block>> take_held(MayGo may_go) noexcept {
    std::lock_guard const lock(mutex_);
    for (std::size_t left = held_; left != 0; --left) {
      auto const at = blocks_.find(first_held_);
      stop_holding(first_held_);
      std::pair<void*, scrubbed_block> const found = *at;
      if (may_go(found.second)) return blocks_.erase(at), found;
      hold_last(at->second, found.first);
    }
    return std::nullopt;
  }

  /// Whether a block is held for this capture, or of this one; 0: for any.
  bool holds(std::uint64_t capture) const noexcept {
    std::lock_guard const lock(mutex_);
    if (capture == 0) return held_ != 0;
    void* p = first_held_;
    for (std::size_t left = held_; left != 0; --left) {
      scrubbed_block const& b = blocks_.find(p)->second;
      if (b.held_for == capture || b.allocated_in == capture) return true;
      p = b.next_held;
    }
    return false;
  }
  /// Bytes that are held, as they were asked for.
  std::size_t held_bytes() const noexcept {
    std::lock_guard const lock(mutex_);
    return held_bytes_;
  }

 private:
  // With the lock.
  void hold_last(scrubbed_block& block, void* p) noexcept {
    (held_ == 0 ? first_held_ : blocks_.find(last_held_)->second.next_held) = p;
    last_held_ = p;
    ++held_;
    held_bytes_ += block.bytes;
  }
  /// `p` is in the list. Constant time for the first.
  void stop_holding(void* p) noexcept {
    void* before = nullptr;
    for (void* at = first_held_; at != p; at = blocks_.find(at)->second.next_held) before = at;
    scrubbed_block const& block = blocks_.find(p)->second;
    (before == nullptr ? first_held_ : blocks_.find(before)->second.next_held) = block.next_held;
    if (last_held_ == p) last_held_ = before;
    --held_;
    held_bytes_ -= block.bytes;
  }

  mutable std::mutex mutex_;
  std::unordered_map<void*, scrubbed_block> blocks_;
  // The blocks that are held, in the order in which they were freed: a list through `next_held`, so that no free takes
  // host memory for it.
  void* first_held_ = nullptr;
  void* last_held_ = nullptr;
  std::size_t held_ = 0;
  std::size_t held_bytes_ = 0;
};

}  // namespace weir::detail
