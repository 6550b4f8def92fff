#pragma once
// Which streams besides their own have used live blocks: what `record_stream` of a framework says before the free.

#include <weir/cuda/stream_ref.hpp>
#include <weir/support/mutex.hpp>

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weir::detail {

/// Streams by block, from the record to the free. Any thread. While nothing is recorded, a look costs one load and
/// takes no lock. The address of a block that somebody else frees is kept until a block of ours begins there and is
/// freed: that one then waits for a stream that never used it, which costs time and nothing else.
class recorded_streams {
 public:
  /// Whether nothing is recorded.
  bool empty() const noexcept { return __atomic_load_n(&blocks_, __ATOMIC_ACQUIRE) == 0; }

  /// `stream` has used the block at `p`. May throw `std::bad_alloc`, and has changed nothing then.
  void add(void* p, stream_ref stream) {
    mutex_guard const lock(mutex_);
    std::vector<stream_ref>& streams = by_block_[p];
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    __atomic_store_n(&blocks_, by_block_.size(), __ATOMIC_RELEASE);
  }

  /// The streams that have used the block at `p`, which is being freed; forgets them.
  std::vector<stream_ref> take(void* p) noexcept {
    if (empty()) return {};
    mutex_guard const lock(mutex_);
    auto const found = by_block_.find(p);
    if (found == by_block_.end()) return {};
    std::vector<stream_ref> streams = std::move(found->second);
    by_block_.erase(found);
    __atomic_store_n(&blocks_, by_block_.size(), __ATOMIC_RELEASE);
    return streams;
  }

 private:
  mutex mutex_;
  std::unordered_map<void*, std::vector<stream_ref>> by_block_;
  std::size_t blocks_ = 0;  // changed under the lock, read without
};

}  // namespace weir::detail
