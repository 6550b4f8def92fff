#pragma once
// The blocks of PyTorch's graph pools, and what a checkpoint of one keeps: `torch.compile(mode="reduce-overhead")`
// records a tree of graphs in one pool, and before it records the next one it sets the pool back to the blocks that
// were live after the last.
#include "plug_in.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

/// What a free has to say besides the pointer, which is all that PyTorch gives.
struct block {
  std::size_t size;
  cudaStream_t stream;
  int device;
  bool of_graphs = false;  // `graph_blocks` knows it
  bool is_kept = false;    // to weir, too, it is the graphs' until their pool ends
};

/// Any thread.
///
/// A block that is in a checkpoint is *kept* when the program frees it, since the pool may be set back to it: its
/// memory goes back to weir when the checkpoint ends. Until then the pool's later graphs may have it again whole, on
/// its stream and where it is not much too large, as PyTorch's own pool would let them have a part of it; if weir keeps
/// it for the graphs, since all other memory is given to others when the checkpoint ends, whatever graphs use it.
class graph_blocks {
 public:
  using pool_id = std::pair<int, weir_graph_pool_id>;  // of a device
  struct sized {
    void* p;
    block what;
  };
  /// By how much weir counts more than the program has.
  struct surplus {
    std::size_t bytes = 0, blocks = 0;
  };

  /// How much larger than a request a kept block may be: a much larger one would be missing where the next graph needs
  /// all of it. The smallest ones are for any request.
  static constexpr std::size_t most_times = 8, least_most = 4096;

  /// A kept block of the pool that does for a request, the smallest there is, which is live again; else null.
  void* use_again(pool_id const& id, block const& request) {
    std::lock_guard const lock(mutex_);
    auto const of = pools_.find(id);
    if (of == pools_.end()) return nullptr;
    auto const best = of->second.free.lower_bound({request.stream, request.size, nullptr});
    if (best == of->second.free.end()) return nullptr;
    auto const [stream, size, p] = *best;
    bool const is_too_large = size > least_most && size / most_times > request.size;
    if (stream != request.stream || is_too_large) return nullptr;
    revive(of->second, p, request.size);
    return p;
  }
  void add(pool_id const& id, void* p, block const& made) {
    std::lock_guard const lock(mutex_);
    pools_[id].blocks.insert_or_assign(p, one{made, made.size});
    pool_of_.insert_or_assign(p, id);
  }
  /// The program frees a block. What is to be given back to weir; nothing where a checkpoint keeps it.
  std::optional<block> free(void* p) {
    std::lock_guard const lock(mutex_);
    return drop(pool_of_.at(p), p);
  }
  /// Nobody waits for other streams in a graph, so that no later one may have the block.
  void record_stream(void* p) {
    std::lock_guard const lock(mutex_);
    if (auto const found = pool_of_.find(p); found != pool_of_.end())
      pools_.at(found->second).blocks.at(p).used_elsewhere = true;
  }

  bool live_are(pool_id const& id, std::unordered_set<void*> const& expected) {
    std::lock_guard const lock(mutex_);
    std::vector<sized> const live = live_of(id);
    for (sized const& each : live)
      if (!expected.contains(each.p)) return false;
    return live.size() == expected.size();
  }

  /// The blocks that are live now; each is kept once more, until `forget`.
  std::vector<sized> remember(pool_id const& id) {
    std::lock_guard const lock(mutex_);
    std::vector<sized> live = live_of(id);
    for (sized const& each : live) ++pools_.at(id).blocks.at(each.p).checkpoints;
    return live;
  }
  /// What is to be given back to weir, since no other checkpoint keeps it.
  std::vector<sized> forget(pool_id const& id, std::vector<sized> const& remembered) {
    std::lock_guard const lock(mutex_);
    std::vector<sized> ended;
    for (auto const& [p, what] : remembered) {
      pool& of = pools_.at(id);
      one& each = of.blocks.at(p);
      if (--each.checkpoints != 0 || each.live) continue;
      of.free.erase(key_of(p, each));
      count(each, -1);
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
    change result{live_of(id), {}};
    for (auto const& [p, what] : result.were_live)
      if (std::optional<block> const made = drop(id, p)) result.given_back.push_back({p, *made});
    for (auto const& [p, what] : remembered) revive(pools_.at(id), p, what.size);
    return result;
  }

  std::optional<pool_id> pool_of(void* p) {
    std::lock_guard const lock(mutex_);
    auto const found = pool_of_.find(p);
    return found == pool_of_.end() ? std::nullopt : std::optional(found->second);
  }
  surplus surplus_of(int device) {
    std::lock_guard const lock(mutex_);
    return surplus_[device];
  }

 private:
  struct one {
    block made;                   // as weir allocated it
    std::size_t requested;        // by who has it now
    std::size_t checkpoints = 0;  // that it is in
    bool live = true;
    bool used_elsewhere = false;
  };
  using key = std::tuple<cudaStream_t, std::size_t, void*>;
  struct pool {
    std::unordered_map<void*, one> blocks;  // live, or kept
    std::set<key> free;                     // kept, and a later graph may have it
  };

  static key key_of(void* p, one const& each) { return {each.made.stream, each.made.size, p}; }

  std::vector<sized> live_of(pool_id const& id) const {
    std::vector<sized> live;
    auto const of = pools_.find(id);
    if (of == pools_.end()) return live;
    for (auto const& [p, each] : of->second.blocks) {
      if (!each.live) continue;
      live.push_back({p, each.made});
      live.back().what.size = each.requested;
    }
    return live;
  }
  std::optional<block> drop(pool_id const& id, void* p) {
    pool& of = pools_.at(id);
    one& each = of.blocks.at(p);
    count(each, -1);
    each.live = false;
    if (each.checkpoints == 0) {
      block const made = each.made;
      erase(id, p);
      return made;
    }
    count(each, 1);
    if (each.made.is_kept && !each.used_elsewhere) of.free.insert(key_of(p, each));
    return std::nullopt;
  }
  void revive(pool& of, void* p, std::size_t requested) {
    one& each = of.blocks.at(p);
    count(each, -1);
    of.free.erase(key_of(p, each));
    each.live = true;
    each.requested = requested;
    count(each, 1);
  }
  void erase(pool_id id, void* p) {
    pool& of = pools_.at(id);
    of.blocks.erase(p);
    if (of.blocks.empty()) pools_.erase(id);
    pool_of_.erase(p);
  }
  /// Adds what it has of the surplus, or takes it off.
  void count(one const& each, int sign) {
    std::size_t const bytes = each.live ? each.made.size - each.requested : each.made.size, blocks = each.live ? 0 : 1;
    surplus& all = surplus_[each.made.device];
    all.bytes = sign > 0 ? all.bytes + bytes : all.bytes - bytes;
    all.blocks = sign > 0 ? all.blocks + blocks : all.blocks - blocks;
  }

  std::mutex mutex_;
  std::map<pool_id, pool> pools_;
  std::unordered_map<void*, pool_id> pool_of_;
  std::map<int, surplus> surplus_;
};
