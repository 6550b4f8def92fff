// Which freed block a pool hands out again: of those that CUDA allows, the one that a careless program expects least.

#include "model/memory.hpp"
#include "scheduler/schedule.hpp"

#include <algorithm>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_SIM_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_SIM_POISON 1
#endif
#endif
#ifdef WEIR_SIM_POISON  // as in <sanitizer/asan_interface.h>
extern "C" void __asan_poison_memory_region(void const volatile* p, std::size_t bytes);
extern "C" void __asan_unpoison_memory_region(void const volatile* p, std::size_t bytes);
#endif

namespace weir::sim::detail {
namespace {

constexpr std::size_t most_kept = 16;

bool may(pool_state const& pool, cudaMemPoolAttr policy) {
  return pool.reuse[static_cast<std::size_t>(policy - cudaMemPoolReuseFollowEventDependencies)] != 0;
}

// The free has executed: anybody may have the block, or only the stream that freed it.
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

// The free is still queued, but `t` comes after it.
void* take_pending(runtime& r, held_lock& held, pool_state& pool, timeline& t, std::size_t bytes, bool elsewhere) {
  auto chosen = pool.pending.end();
  std::uint64_t latest = 0;
  for (auto one = pool.pending.begin(); one != pool.pending.end(); ++one) {
    if (one->first.second != bytes || (one->first.first != t.id) != elsewhere) continue;
    allocation const& a = r.allocations.at(one->second);
    if (a.ticket < latest || (elsewhere && !comes_after(r, t, a.freed_at))) continue;
    chosen = one;
    latest = a.ticket;
  }
  if (chosen == pool.pending.end()) return nullptr;
  std::uintptr_t const address = chosen->second;
  pool.pending.erase(chosen);
  revive(r, r.allocations.at(address));
  auto* const p = reinterpret_cast<void*>(address);
  submit_allocation(r, held, t, p);
  return p;
}

}  // namespace

void forbid([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  __asan_poison_memory_region(p, bytes);
#endif
}

void allow([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  __asan_unpoison_memory_region(p, bytes);
#endif
}

void kept_block::release::operator()(void* p) const { give_to_heap(p, bytes, false); }

bool keep(pool_state& pool, std::uintptr_t address, allocation const& freed) {
  // To the thread sanitizer whoever gets it would race with who had it, though the driver saw to it: it has to be new.
  if (streams_are_fibers) return false;
  if (pool.destroyed || pool.reserved == pool.used) return false;
  auto* const p = reinterpret_cast<void*>(address);
  if (pool.kept.size() == most_kept) pool.kept.erase(pool.kept.begin());
  pool.kept.push_back({{p, {freed.bytes}}, freed.freed_at.stream});
  return true;
}

void* reuse(runtime& r, held_lock& held, std::shared_ptr<pool_state> const& pool, timeline& t, std::size_t bytes) {
  // What another stream freed comes first: whoever forgot an order between the two finds out.
  void* p = nullptr;
  if (may(*pool, cudaMemPoolReuseAllowOpportunistic)) p = take_kept(r, held, pool, t, bytes, true);
  if (p == nullptr && may(*pool, cudaMemPoolReuseFollowEventDependencies))
    p = take_pending(r, held, *pool, t, bytes, true);
  if (p == nullptr) p = take_pending(r, held, *pool, t, bytes, false);
  if (p == nullptr) p = take_kept(r, held, pool, t, bytes, false);
  return p;
}

}  // namespace weir::sim::detail
