#pragma once
// The blocks of PyTorch's graph pools, and what a checkpoint of one keeps: `torch.compile(mode="reduce-overhead")`
// records a tree of graphs in one pool, and before it records the next one it sets the pool back to the blocks that
// were live after the last.
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

/// What a free has to say besides the pointer, which is all that PyTorch gives.
struct block {
  size_t size;
  cudaStream_t stream;
  c10::DeviceIndex device;
  bool of_graphs = false;  // `graph_blocks` knows it
  bool captured = false;   // allocated in a capture: to weir, too, it is the graphs' until their pool ends
};

/// Any thread. While no pool is open, allocations cost one load.
///
/// A block that is in a checkpoint is *kept* when the program frees it, since the pool may be set back to it: its
/// memory goes back to weir when the checkpoint ends. Until then the pool's later graphs may have it again whole, on
/// its stream and where it is not much too large, as PyTorch's own pool would let them; if it was allocated in a
/// capture, since weir gives what was not to others when the checkpoint ends, whatever graphs use it.
class graph_blocks {
 public:
  using pool_id = std::pair<c10::DeviceIndex, c10::cuda::MempoolId_t>;
  struct sized {
    void* p;
    block what;
  };

  void begin(pool_id const& id, std::function<bool(cudaStream_t)> belongs) {
    std::lock_guard const lock(mutex_);
    open_.push_back({id, std::move(belongs)});
    some_open_.store(true, std::memory_order_release);
  }
  void end(pool_id const& id) {
    std::lock_guard const lock(mutex_);
    auto const last = std::find_if(open_.rbegin(), open_.rend(), [&](open_pool const& each) { return each.id == id; });
    if (last != open_.rend()) open_.erase(std::next(last).base());
    some_open_.store(!open_.empty(), std::memory_order_release);
  }

  /// The pool that gets what the thread allocates now.
  std::optional<pool_id> pool_for(c10::DeviceIndex device, cudaStream_t stream) {
    if (!some_open_.load(std::memory_order_acquire)) return std::nullopt;
    std::lock_guard const lock(mutex_);
    for (auto each = open_.rbegin(); each != open_.rend(); ++each)
      if (each->id.first == device && each->belongs(stream)) return each->id;
    return std::nullopt;
  }

  /// A kept block of the pool that does for a request, which is live again; else null.
  void* use_again(pool_id const& id, block const& request) {
    std::lock_guard const lock(mutex_);
    void* best = nullptr;
    size_t best_size = request.size + request.size / 8 + 512;
    for (auto& [p, each] : pools_[id])
      if (!each.live && each.made.captured && !each.used_elsewhere && each.made.stream == request.stream &&
          each.made.size >= request.size && each.made.size < best_size)
        best = p, best_size = each.made.size;
    if (best != nullptr) revive(pools_[id].at(best), request.size);
    return best;
  }
  void add(pool_id const& id, void* p, block const& made) {
    std::lock_guard const lock(mutex_);
    pools_[id].insert_or_assign(p, one{made, made.size});
    pool_of_.insert_or_assign(p, id);
  }
  /// The program frees a block. What is to be given back to weir; nothing where a checkpoint keeps it.
  std::optional<block> free(void* p) {
    std::lock_guard const lock(mutex_);
    return drop(pool_of_.at(p), p);
  }
  void record_stream(void* p) {
    std::lock_guard const lock(mutex_);
    if (auto const found = pool_of_.find(p); found != pool_of_.end()) pools_[found->second].at(p).used_elsewhere = true;
  }

  bool live_are(pool_id const& id, std::unordered_set<void*> const& expected) {
    std::lock_guard const lock(mutex_);
    size_t live = 0;
    for (auto const& [p, each] : pools_[id])
      if (each.live) {
        if (!expected.contains(p)) return false;
        ++live;
      }
    return live == expected.size();
  }

  /// The blocks that are live now; each is kept once more, until `forget`.
  std::vector<sized> remember(pool_id const& id) {
    std::lock_guard const lock(mutex_);
    std::vector<sized> live;
    for (auto& [p, each] : pools_[id])
      if (each.live) {
        ++each.checkpoints;
        live.push_back({p, as_requested(each)});
      }
    return live;
  }
  /// What is to be given back to weir, since no other checkpoint keeps it.
  std::vector<sized> forget(pool_id const& id, std::vector<sized> const& remembered) {
    std::lock_guard const lock(mutex_);
    std::vector<sized> ended;
    for (auto const& [p, what] : remembered) {
      one& each = pools_[id].at(p);
      if (--each.checkpoints != 0 || each.live) continue;
      count_kept(each.made, -1);
      ended.push_back({p, each.made});
      erase(id, p);
    }
    return ended;
  }

  struct change {
    std::vector<sized> were_live;   // all of the pool
    std::vector<sized> given_back;  // of those: for weir
  };
  /// Those that are remembered are live, and no others of the pool.
  change set_back(pool_id const& id, std::vector<sized> const& remembered) {
    std::lock_guard const lock(mutex_);
    change result;
    for (auto const& [p, each] : pools_[id])
      if (each.live) result.were_live.push_back({p, as_requested(each)});
    for (auto const& [p, what] : result.were_live)
      if (std::optional<block> const made = drop(id, p)) result.given_back.push_back({p, *made});
    for (auto const& [p, what] : remembered) revive(pools_[id].at(p), what.size);
    return result;
  }

  std::optional<pool_id> pool_of(void* p) {
    std::lock_guard const lock(mutex_);
    auto const found = pool_of_.find(p);
    return found == pool_of_.end() ? std::nullopt : std::optional(found->second);
  }
  /// What weir counts as live and the program does not.
  std::pair<size_t, size_t> kept_bytes_and_blocks(c10::DeviceIndex device) {
    std::lock_guard const lock(mutex_);
    return kept_[device];
  }

 private:
  struct one {
    block made;              // as weir allocated it
    size_t requested;        // by who has it now
    size_t checkpoints = 0;  // that it is in
    bool live = true;
    bool used_elsewhere = false;  // by streams that nobody waits for in a graph
  };
  struct open_pool {
    pool_id id;
    std::function<bool(cudaStream_t)> belongs;
  };

  static block as_requested(one const& each) {
    block result = each.made;
    result.size = each.requested;
    return result;
  }
  std::optional<block> drop(pool_id const& id, void* p) {
    one& each = pools_[id].at(p);
    each.live = false;
    if (each.checkpoints != 0) {
      count_kept(each.made, 1);
      return std::nullopt;
    }
    block const made = each.made;
    erase(id, p);
    return made;
  }
  void revive(one& each, size_t requested) {
    if (!each.live) count_kept(each.made, -1);
    each.live = true;
    each.requested = requested;
  }
  void erase(pool_id id, void* p) {
    pools_[id].erase(p);
    if (pools_[id].empty()) pools_.erase(id);
    pool_of_.erase(p);
  }
  void count_kept(block const& of, int sign) {
    auto& [bytes, blocks] = kept_[of.device];

    bytes += sign > 0 ? of.size : -of.size;
    blocks += static_cast<size_t>(sign);
  }

  std::mutex mutex_;
  std::atomic<bool> some_open_ = false;  // changed under the lock
  std::vector<open_pool> open_;
  std::map<pool_id, std::unordered_map<void*, one>> pools_;  // live, or kept
  std::unordered_map<void*, pool_id> pool_of_;
  std::map<c10::DeviceIndex, std::pair<size_t, size_t>> kept_;
};
