#include "allocations/blocks.hpp"

#include "allocations/pools.hpp"
#include "allocations/virtual_memory.hpp"
#include "checker/checker.hpp"
#include "model/heap.hpp"

#include <iterator>
#include <utility>

namespace weir::sim::detail {
namespace {

bool charge(std::size_t& used, std::size_t capacity, std::size_t bytes) {
  if (used > capacity || bytes > capacity - used) return false;
  used += bytes;
  return true;
}

bool take_capacity(runtime& r, allocation const& a) {
  if (a.kind == memory_kind::async) return take_room(r, *a.pool, a.bytes);
  if (a.on_host()) return charge_host(r, a.bytes);
  return charge_device(r.device(a.device), a.bytes);
}

void give_capacity_back(runtime& r, allocation const& a) {
  if (a.kind == memory_kind::async) {
    give_room_back(r, *a.pool, a.bytes);
  } else if (a.on_host()) {
    r.host_used -= a.bytes;
  } else {
    r.device(a.device).used -= a.bytes;
  }
}

void forget_pending(allocation const& a, std::uintptr_t address) {
  if (a.pool == nullptr) return;
  auto const found = a.pool->pending.find({a.bytes, a.freed_at.stream, a.freed_at.sequence});
  if (found != a.pool->pending.end() && found->second == address) a.pool->pending.erase(found);
}

// The registration that covers `address`, if one does.
allocation const* registered(runtime& r, std::uintptr_t address, std::size_t& offset) {
  auto const after = r.registrations.upper_bound(address);
  if (after == r.registrations.begin()) return nullptr;
  auto const& [begin, a] = *std::prev(after);
  offset = address - begin;
  return offset < a.bytes ? &a : nullptr;
}

}  // namespace

void count_live(runtime& r, allocation const& a) {
  device_state& device = r.device(a.device);
  device.live_bytes += a.bytes;
  if (a.graph != 0) device.for_graphs.used += a.bytes;
  ++r.live_allocations;
}

void count_freed(runtime& r, allocation const& a) {
  device_state& device = r.device(a.device);
  device.live_bytes -= a.bytes;
  if (a.graph != 0) device.for_graphs.used -= a.bytes;
  --r.live_allocations;
}

bool charge_host(runtime& r, std::size_t bytes) { return charge(r.host_used, r.host_capacity, bytes); }

bool charge_device(device_state& device, std::size_t bytes) { return charge(device.used, device.capacity, bytes); }

range look_up(runtime& r, void const* p, std::size_t bytes, bool captured) {
  auto const address = reinterpret_cast<std::uintptr_t>(p);
  auto const after = r.allocations.upper_bound(address);
  if (after != r.allocations.begin()) {
    auto const& [begin, a] = *std::prev(after);
    std::size_t const offset = address - begin;
    bool const is_there = !a.freeing || (captured && a.left_by_graph && a.graph != 0);
    if (offset < a.bytes) return {is_there && bytes <= a.bytes - offset, &a, false, true};
  }
  std::size_t offset = 0;
  if (allocation const* const a = registered(r, address, offset)) return {bytes <= a->bytes - offset, a};
  if (r.virtual_memory.is_reserved(address)) return look_up_views(r, address, bytes);
  // Memory that begins outside every allocation must not run into one.
  bool const runs_into_next =
      (after != r.allocations.end() && bytes > after->first - address) || runs_into_reserved(r, address, bytes);
  bool const is_freed = r.check != nullptr && r.check->is_freed(p, bytes);
  return {!runs_into_next && !is_freed, nullptr, r.pageable_access};
}

bool reaches(runtime& r, int device, allocation const& a) {
  if (a.kind == memory_kind::mapped) return a.open_to[static_cast<std::size_t>(device)];
  bool const from_host_pool = a.kind == memory_kind::async && a.on_host();
  if (!from_host_pool && (a.on_host() || a.device == device)) return true;
  if (a.kind == memory_kind::async)
    return a.pool->access[static_cast<std::size_t>(device)] != cudaMemAccessFlagsProtNone;
  return r.device(device).reaches[static_cast<std::size_t>(a.device)];
}

allocation* find_live(runtime& r, void const* p) {
  auto const found = r.allocations.find(reinterpret_cast<std::uintptr_t>(p));
  return found == r.allocations.end() || found->second.freeing ? nullptr : &found->second;
}

void* make_allocation(runtime& r, allocation made, void* at) {
  if (!take_capacity(r, made)) return nullptr;
  // Exactly the alignment that CUDA promises, so that nobody comes to rely on more; pinned memory is made of pages.
  std::size_t const alignment = made.kind == memory_kind::pinned ? 4096 : 256;
  void* const p = at != nullptr ? at : take_from_heap(made.bytes, alignment);
  if (p == nullptr) {
    give_capacity_back(r, made);
    return nullptr;
  }
  made.block = ++r.memory_count;
  // Stream-ordered memory too, which is overwritten again when its allocation executes: a read before that must not
  // find what the heap's last user left there.
  if (at == nullptr) scribble(p, made.bytes, first_pattern(r));
  if (made.kind == memory_kind::async) forbid(p, made.bytes);
  count_live(r, made);
  if (r.trace != nullptr) [[unlikely]]
    r.trace->took(reinterpret_cast<std::uintptr_t>(p), made);
  r.allocations.emplace(reinterpret_cast<std::uintptr_t>(p), std::move(made));
  return p;
}

cudaError_t refuse_allocation(runtime& r, allocation const& wanted) {
  if (r.trace != nullptr) r.trace->refused(wanted);
  return cudaErrorMemoryAllocation;
}

bool end_import(allocation& a) {
  if (a.imported_by.empty()) return false;
  pool_state& importer = *a.imported_by.back();
  importer.used -= a.bytes;
  importer.reserved = importer.used;
  a.imported_by.pop_back();
  return true;
}

std::uint64_t begin_free(runtime& r, allocation& a) {
  a.freeing = true;
  a.free_number = ++r.memory_count;
  count_freed(r, a);
  return a.free_number;
}

void finish_free(runtime& r, std::uintptr_t address, std::uint64_t number, bool waited) {
  auto const found = r.allocations.find(address);
  if (found == r.allocations.end() || found->second.block > number) return;  // another block by now
  // If another allocation has taken the block over, that allows it again when it executes.
  if (found->second.kind == memory_kind::async) forbid(reinterpret_cast<void*>(address), found->second.bytes);
  if (!found->second.freeing || found->second.free_number != number) return;
  if (found->second.graph != 0) {
    found->second.kept_for_graph = true;
    return;
  }
  allocation const gone = std::move(found->second);
  give_capacity_back(r, gone);
  if (r.trace != nullptr) [[unlikely]]
    r.trace->gave_back(address, gone);
  forget_pending(gone, address);
  r.allocations.erase(found);
  if (gone.pool == nullptr || !keep(*gone.pool, address, gone))
    release_block(reinterpret_cast<void*>(address), gone.bytes, waited);
}

void release_block(void* p, std::size_t bytes, bool waited) {
  order_checker* const check = state().check.get();
  if (check == nullptr || !check->quarantine(p, bytes)) give_to_heap(p, bytes, waited);
}

unsigned char next_pattern(runtime& r) { return r.pattern = static_cast<unsigned char>(r.pattern + 37); }

unsigned char first_pattern(runtime& r) { return r.skips_kernels ? 0 : next_pattern(r); }

void revive(runtime& r, allocation& a) {
  a.freeing = a.kept_for_graph = false;
  count_live(r, a);
}

}  // namespace weir::sim::detail
