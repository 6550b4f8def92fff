#pragma once
// Which streams besides their own have used live blocks: what `record_stream` of a framework says before the free.

#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/order/thread_registry.hpp>
#include <weir/support/mutex.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weir::detail {

/// Streams by block, from the record to the free. Any thread. While nothing is recorded, a look costs one load and
/// takes no lock. The address of a block that somebody else frees is kept until a block of ours begins there and is
/// freed: that one then waits for a stream that never used it, which costs time and nothing else.
///
/// `cudaStreamPerThread` is the calling thread's own default stream. To other threads it has no name, and is the legacy
/// stream instead, which comes after it.
class recorded_streams {
 public:
  /// Whether nothing is recorded.
  bool empty() const noexcept { return __atomic_load_n(&blocks_, __ATOMIC_ACQUIRE) == 0; }

  /// `stream` has used the block at `p`. May throw `std::bad_alloc`, and has changed nothing then.
  void add(void* p, stream_ref stream) {
    mutex_guard const lock(mutex_);
    auto& [streams, own_of] = by_block_[p];
    bool const is_own = stream.get() == cudaStreamPerThread;
    std::uint64_t const thread = is_own ? thread_registry::this_number() : own_of;
    if (is_own && own_of != 0 && own_of != thread) stream = cudaStreamLegacy;
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    if (own_of == 0) own_of = thread;
    __atomic_store_n(&blocks_, by_block_.size(), __ATOMIC_RELEASE);
  }

  /// The streams that have used the block at `p`, which is being freed; forgets them.
  std::vector<stream_ref> take(void* p) noexcept {
    if (empty()) return {};
    mutex_guard const lock(mutex_);
    auto const found = by_block_.find(p);
    if (found == by_block_.end()) return {};
    users its = std::move(found->second);
    by_block_.erase(found);
    __atomic_store_n(&blocks_, by_block_.size(), __ATOMIC_RELEASE);
    std::vector<stream_ref>& streams = its.streams;
    if (its.own_of != 0 && its.own_of != thread_registry::this_number())
      std::replace(streams.begin(), streams.end(), stream_ref(cudaStreamPerThread), stream_ref(cudaStreamLegacy));
    return std::move(streams);
  }

 private:
  struct users {
    std::vector<stream_ref> streams;
    std::uint64_t own_of = 0;  // the thread whose own default stream is among them; 0: none is
  };

  mutex mutex_;
  std::unordered_map<void*, users> by_block_;
  std::size_t blocks_ = 0;  // changed under the lock, read without
};

}  // namespace weir::detail
