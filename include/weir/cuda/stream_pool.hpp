#pragma once
// Some streams that many share by turns.

#include <weir/cuda/stream.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace weir {

/// Owns a fixed number of streams of the current device, and hands them out by turns: for tasks that may run at the
/// same time, without a stream for each. All of them are `weir::stream`s, so a pool knows them without a CUDA call.
/// Thread-safe. Neither copied nor moved, since what it hands out refers to it. When not to use it: where two tasks
/// must not wait for each other, since they may get the same stream; there, make a `weir::stream` for each.
class stream_pool {
 public:
  /// Makes all streams. Throws `std::invalid_argument` for a `count` of 0, or of more than can be counted (a number
  /// below zero), `std::bad_alloc`, and `cuda_error`.
  template <class = void>  // so that only those pay for compiling it who use it
  explicit stream_pool(std::size_t count = 16, stream::kind kind = stream::kind::non_blocking) {
    if (count == 0 || count > streams_.max_size())
      throw std::invalid_argument("weir: stream_pool: count is " + std::to_string(count) +
                                  "; it must be at least 1, as many as run at once" +
                                  (count == 0 ? "" : ": look where it comes from, it may have gone below zero"));
    streams_.reserve(count);
    while (streams_.size() < count) streams_.emplace_back(kind);
  }
  stream_pool(stream_pool const&) = delete;
  stream_pool& operator=(stream_pool const&) = delete;

  /// The next one, valid as long as the pool. Any thread; one atomic addition. Who calls it `size()` times, while no
  /// other thread does, gets each stream once.
  stream const& get() noexcept { return streams_[__atomic_fetch_add(&next_, 1, __ATOMIC_RELAXED) % streams_.size()]; }
  /// A certain one; `i` is below `size()`.
  stream const& operator[](std::size_t i) const noexcept { return streams_[i]; }

  std::size_t size() const noexcept { return streams_.size(); }
  /// The device that was current when the pool was made.
  int device() const noexcept { return streams_.front().device(); }

 private:
  std::vector<stream> streams_;
  std::size_t next_ = 0;
};

}  // namespace weir
