#include "scheduler/stream_ordered.hpp"

#include "allocations/blocks.hpp"
#include "model/heap.hpp"
#include "scheduler/schedule.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace weir::sim::detail {
namespace {

// A block whose free has executed: one that another stream freed (`elsewhere`), or `t` itself.
void* take_kept(runtime& r, held_lock& held, std::shared_ptr<pool_state> const& pool, timeline& t, std::size_t bytes,
                bool elsewhere) {
  auto& kept = pool->kept;
  auto const found = std::find_if(kept.rbegin(), kept.rend(), [&](kept_block const& k) {
    return k.memory.get_deleter().bytes == bytes && (k.freed_on != t.id) == elsewhere;
  });
  if (found == kept.rend()) return nullptr;
  allocation made;
  made.bytes = bytes;
  made.kind = memory_kind::async;
  made.device = pool->device;
  made.pool = pool;
  void* const p = make_allocation(r, std::move(made), found->memory.get());
  if (p == nullptr) return nullptr;
  static_cast<void>(found->memory.release());
  kept.erase(std::next(found).base());
  submit_allocation(r, held, t, p);
  return p;
}

using pending_block = std::map<pending_free, std::uintptr_t>::iterator;

// The block of that size which `stream` freed last, by its first `upto` operations; `end()` if there is none.
pending_block last_freed(pool_state& pool, std::size_t bytes, std::uint64_t stream, std::uint64_t upto) {
  auto const after = pool.pending.upper_bound({bytes, stream, upto});
  if (after == pool.pending.begin()) return pool.pending.end();
  auto const last = std::prev(after);
  return last->first.bytes == bytes && last->first.stream == stream ? last : pool.pending.end();
}

void* take_over(runtime& r, held_lock& held, pool_state& pool, timeline& t, pending_block chosen) {
  if (chosen == pool.pending.end()) return nullptr;
  std::uintptr_t const address = chosen->second;
  pool.pending.erase(chosen);
  revive(r, r.allocations.at(address));
  auto* const p = reinterpret_cast<void*>(address);
  submit_allocation(r, held, t, p);
  return p;
}

// A block that `t` itself freed, whose free is still queued.
void* take_own(runtime& r, held_lock& held, pool_state& pool, timeline& t, std::size_t bytes) {
  return take_over(r, held, pool, t, last_freed(pool, bytes, t.id, t.submitted));
}

// A block that another stream freed, whose free is still queued, but comes before what `t` gets next.
void* take_pending(runtime& r, held_lock& held, pool_state& pool, timeline& t, std::size_t bytes) {
  auto const first = pool.pending.lower_bound({bytes, 0, 0});
  if (first == pool.pending.end() || first->first.bytes != bytes) return nullptr;
  auto chosen = pool.pending.end();
  std::uint64_t latest = 0;
  for (auto const& [stream, upto] : comes_after(r, t)) {
    auto const found = stream == t.id ? pool.pending.end() : last_freed(pool, bytes, stream, upto);
    if (found == pool.pending.end()) continue;
    std::uint64_t const number = r.allocations.at(found->second).free_number;
    if (number < latest) continue;
    chosen = found;
    latest = number;
  }
  return take_over(r, held, pool, t, chosen);
}

}  // namespace

void submit_allocation(runtime& r, held_lock& held, timeline& t, void* p) {
  auto const address = reinterpret_cast<std::uintptr_t>(p);
  std::uint64_t const block = r.allocations.at(address).block;
  auto const begin = [&r, address, block, pattern = first_pattern(r)](held_lock&) {
    auto const found = r.allocations.find(address);
    if (found == r.allocations.end() || found->second.block != block) return;  // freed by the host meanwhile
    begin_use(reinterpret_cast<void*>(address), found->second.bytes, pattern);
  };
  submit(r, held, t, begin, operation_kind::allocation);
}

void finish_idle_frees(runtime& r, held_lock& held) {
  if (r.running || !r.workers.empty()) return;  // somebody else runs what may run
  runs_operations const alone(r);
  for (device_state const& device : r.devices) {
    std::vector<timeline*> const all = device.timelines;  // a stream that is over leaves the list
    for (timeline* const t : all) {
      std::uint64_t const id = t->id;
      while (find_timeline(r, id) != nullptr && may_run(r, *t) && takes_no_time(t->waiting.front().kind))
        run_front(r, held, t);
    }
  }
}

// Of the blocks that CUDA allows, the one that a careless program expects least.
void* reuse(runtime& r, held_lock& held, std::shared_ptr<pool_state> const& pool, timeline& t, std::size_t bytes) {
  // Blocks that another stream freed come first, so that a missing order between the two shows.
  void* p = nullptr;
  if (pool->may_reuse(cudaMemPoolReuseAllowOpportunistic)) p = take_kept(r, held, pool, t, bytes, true);
  if (p == nullptr && pool->may_reuse(cudaMemPoolReuseFollowEventDependencies))
    p = take_pending(r, held, *pool, t, bytes);
  if (p == nullptr) p = take_own(r, held, *pool, t, bytes);
  if (p == nullptr) p = take_kept(r, held, pool, t, bytes, false);
  return p;
}

}  // namespace weir::sim::detail
