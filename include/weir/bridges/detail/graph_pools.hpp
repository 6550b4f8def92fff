#pragma once
// A framework's graph pools: whose stream captures share memory, and when it is everyone's again.

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
#include <new>
#include <optional>
#include <unordered_map>
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
/// A pool that is open, and the capture whose memory it gets.
struct graph_pool_capture {
  graph_pool_id id;
  std::uint64_t capture;  // 0: what is allocated now is everyone's again when it is freed
};

/// Pools by their id, from the first user until each `add_user` and `begin` has had its `release`. Several graphs may
/// share one: then a later capture may have what earlier ones gave back, since the framework never runs two of them at
/// the same time. To weir's pools they are one capture, the first of the device. A broken capture is none of them,
/// since all broken ones of a process have one number: what they freed is nobody's graph's, and goes with the pool. Any
/// thread. While no pool is open, `note` costs one load and takes no lock; nor does `take_block` while no block of a
/// pool is live.
class graph_pools {
 public:
  /// Whether memory may be asked for that is a pool's. Else there is nothing to `note`.
  bool some_open() const noexcept { return __atomic_load_n(&some_open_, __ATOMIC_ACQUIRE); }
  /// Whether no such memory is live, either. Else there is nothing to note or take when memory is given back.
  bool idle() const noexcept { return __atomic_load_n(&idle_, __ATOMIC_ACQUIRE); }

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
    publish();
  }

  void end(int device, graph_pool_id id) noexcept {
    mutex_guard const lock(mutex_);
    auto const last = std::find_if(open_.rbegin(), open_.rend(),
                                   [&](auto const& each) { return each->device == device && each->id == id; });
    if (last == open_.rend()) return;
    if ((*last)->joined != 0) owners_of_captures.leave((*last)->joined);
    open_.erase(std::next(last).base());
    publish();
  }

  /// From now on the pool's graphs share what is allocated for it outside of captures too, as they share what is
  /// allocated in them: such a request gets what they gave back. Nothing for a pool that is not there.
  void share(graph_pool_id id) noexcept {
    mutex_guard const lock(mutex_);
    if (auto const found = pools_.find(id); found != pools_.end()) found->second.shares = true;
  }
  /// The pool that gets what is allocated on `stream` now, by the last `begin` that names it. On the legacy stream,
  /// which has no part in captures, that is memory as any other.
  std::optional<graph_pool_capture> find(int device, cudaStream_t stream) const {
    if (!some_open()) return std::nullopt;
    std::uint64_t const captured = capture_in(stream_ref(stream));
    mutex_guard const lock(mutex_);
    auto const last = std::find_if(open_.rbegin(), open_.rend(),
                                   [&](auto const& open) { return open->device == device && open->belongs(stream); });
    if (last == open_.rend()) return std::nullopt;
    bool const has_part = captured != invalidated_capture && stream_ref(stream).get() != cudaStreamLegacy;
    if (!has_part) return graph_pool_capture{(*last)->id, 0};
    return graph_pool_capture{(*last)->id, captured != 0 ? captured : shared_capture((*last)->id, device)};
  }

  /// Memory is about to be allocated or given back on `stream`: if that is being captured for a pool, the pool
  /// remembers the capture, or that it shares the memory of the pool's first one. Returns the pool; none where there is
  /// no such.
  std::optional<graph_pool_id> note(int device, cudaStream_t stream) {
    if (!some_open()) return std::nullopt;
    std::uint64_t const capture = capture_in(stream_ref(stream));
    if (capture == 0) return std::nullopt;
    mutex_guard const lock(mutex_);
    std::optional<graph_pool_id> found;
    for (auto const& each : open_)
      if (each->device == device && each->belongs(stream)) {
        note_capture(*each, capture);
        found = each->id;
      }
    return found;
  }

  /// A block was allocated for a pool. Where the host has no memory to remember that, no later capture has the block.
  void add_block(void* p, graph_pool_id id) noexcept try {
    mutex_guard const lock(mutex_);
    blocks_[p] = id;
    publish();
  } catch (std::bad_alloc const&) {
  }
  /// A block is given back. The capture whose memory it is, if a pool that is still there has it; else 0.
  std::uint64_t take_block(int device, void* p) noexcept {
    if (idle()) return 0;
    mutex_guard const lock(mutex_);
    auto const block = blocks_.find(p);
    if (block == blocks_.end()) return 0;
    auto const found = pools_.find(block->second);
    blocks_.erase(block);
    publish();
    device_capture const* const first = found == pools_.end() ? nullptr : found->second.first_of(device);
    return first == nullptr ? 0 : first->capture;
  }

  /// One user of a pool less. The captures whose memory nobody needs any more: those of the pool after its last user.
  std::vector<device_capture> release(graph_pool_id id) {
    mutex_guard const lock(mutex_);
    auto const found = pools_.find(id);
    if (found == pools_.end()) return {};
    std::size_t& users = found->second.users;
    if (users > 1) return --users, std::vector<device_capture>{};  // none: released before its captures were over
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
    std::uint64_t joined = 0;  // its capture, where that shares the memory of an earlier one
    capture_scope declared;
  };
  struct pool {
    std::size_t users = 0;
    bool shares = false;
    std::vector<device_capture> captures;  // one of each device; more where there was no room to share; broken ones

    device_capture const* first_of(int device) const noexcept {
      auto const is_here = [&](device_capture const& c) { return c.device == device; };
      auto const found = std::find_if(captures.begin(), captures.end(), [&](device_capture const& c) {
        return c.capture != invalidated_capture && is_here(c);
      });
      return found == captures.end() ? nullptr : &*found;
    }
  };

  void note_capture(open_pool& open, std::uint64_t capture) {
    std::vector<device_capture>& captures = pools_[open.id].captures;
    device_capture const now{open.device, capture};
    if (std::find(captures.begin(), captures.end(), now) != captures.end()) return;
    device_capture const* const first = pools_[open.id].first_of(open.device);
    bool const may_share = first != nullptr && open.joined == 0 && capture != invalidated_capture;
    if (may_share && owners_of_captures.join(capture, first->capture))
      open.joined = capture;
    else
      captures.push_back(now);
  }

  std::uint64_t shared_capture(graph_pool_id id, int device) const {
    auto const found = pools_.find(id);
    device_capture const* const first =
        found != pools_.end() && found->second.shares ? found->second.first_of(device) : nullptr;
    return first == nullptr ? 0 : first->capture;
  }

  void publish() noexcept {
    __atomic_store_n(&some_open_, !open_.empty(), __ATOMIC_RELEASE);
    __atomic_store_n(&idle_, open_.empty() && blocks_.empty(), __ATOMIC_RELEASE);
  }

  mutable mutex mutex_;
  std::vector<std::unique_ptr<open_pool>> open_;
  std::map<graph_pool_id, pool> pools_;
  std::unordered_map<void*, graph_pool_id> blocks_;  // live, of all pools
  bool some_open_ = false, idle_ = true;             // changed under the lock, read without
};

}  // namespace weir::detail
