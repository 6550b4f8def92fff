#pragma once
// Which stream captures took memory for which of a framework's graph pools: so that a pool that ends gives it back.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/mutex.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace weir::detail {

/// PyTorch's `MempoolId_t`: a pool of a graph, or one of the program's own.
using graph_pool_id = std::pair<unsigned long long, unsigned long long>;
/// A capture of one device.
struct device_capture {
  int device;
  std::uint64_t capture;
  friend bool operator==(device_capture const&, device_capture const&) = default;
};

/// Pools by their id, from the first user until each `add_user` and `begin` has had its `release`. Several graphs may
/// share one.
/// Any thread. While no pool is open, `note` costs one load and takes no lock.
class graph_pools {
 public:
  /// Somebody keeps the pool who has allocated nothing yet.
  void add_user(graph_pool_id id) {
    mutex_guard const lock(mutex_);
    ++pools_[id].users;
  }
  std::size_t users(graph_pool_id id) const {
    mutex_guard const lock(mutex_);
    auto const found = pools_.find(id);
    return found == pools_.end() ? 0 : found->second.users;
  }

  /// A user more. Memory that `belongs(stream)` names goes to the pool, until `end`. Declares a capture for that time,
  /// since one may follow.
  void begin(int device, graph_pool_id id, std::function<bool(cudaStream_t)> belongs) {
    mutex_guard const lock(mutex_);
    open_.push_back(std::make_unique<open_pool>(device, id, std::move(belongs)));
    ++pools_[id].users;
    __atomic_store_n(&open_count_, open_.size(), __ATOMIC_RELEASE);
  }

  void end(int device, graph_pool_id id) noexcept {
    mutex_guard const lock(mutex_);
    auto const last = std::find_if(open_.rbegin(), open_.rend(),
                                   [&](auto const& each) { return each->device == device && each->id == id; });
    if (last != open_.rend()) open_.erase(std::next(last).base());
    __atomic_store_n(&open_count_, open_.size(), __ATOMIC_RELEASE);
  }

  /// Memory was allocated on `stream`: if that is being captured for a pool, the pool remembers the capture.
  void note(int device, cudaStream_t stream) {
    if (__atomic_load_n(&open_count_, __ATOMIC_ACQUIRE) == 0) [[likely]]
      return;
    std::uint64_t const capture = capture_in(stream_ref(stream));
    if (capture == 0) return;
    mutex_guard const lock(mutex_);
    for (auto const& each : open_)
      if (each->device == device && each->belongs(stream)) add(pools_[each->id].captures, {device, capture});
  }

  /// One user of a pool less. The captures whose memory nobody needs any more: those of the pool after its last user.
  std::vector<device_capture> release(graph_pool_id id) {
    mutex_guard const lock(mutex_);
    auto const found = pools_.find(id);
    if (found == pools_.end() || --found->second.users != 0) return {};
    std::vector<device_capture> captures = std::move(found->second.captures);
    pools_.erase(found);
    return captures;
  }

 private:
  struct open_pool {
    open_pool(int of, graph_pool_id its, std::function<bool(cudaStream_t)> streams)
        : device(of), id(std::move(its)), belongs(std::move(streams)) {}
    int device;
    graph_pool_id id;
    std::function<bool(cudaStream_t)> belongs;
    capture_scope declared;
  };
  struct pool {
    std::size_t users = 0;
    std::vector<device_capture> captures;
  };

  static void add(std::vector<device_capture>& captures, device_capture one) {
    if (std::find(captures.begin(), captures.end(), one) == captures.end()) captures.push_back(one);
  }

  mutable mutex mutex_;
  std::vector<std::unique_ptr<open_pool>> open_;
  std::map<graph_pool_id, pool> pools_;
  std::size_t open_count_ = 0;  // changed under the lock, read without
};

}  // namespace weir::detail
