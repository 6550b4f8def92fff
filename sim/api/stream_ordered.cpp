// Stream-ordered memory: `cudaMallocAsync` and its like.

#include "scheduler/stream_ordered.hpp"
#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"
#include "checker/checker.hpp"
#include "model/heap.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/graph_memory.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

#include <utility>

namespace weir::sim::detail {
namespace {

// Runs the pool's queued frees, and what they come after, as a driver does before it refuses. False if there are none.
bool finish_frees(runtime& r, held_lock& held, pool_state const& pool) {
  std::vector<point> wanted;
  for (auto const& [free, address] : pool.pending) wanted.push_back({free.stream, free.sequence});
  if (wanted.empty()) return false;
  force(r, held, std::move(wanted));
  return true;
}

allocation memory_of(std::shared_ptr<pool_state> const& pool, std::size_t bytes) {
  allocation made;
  made.bytes = bytes;
  made.kind = memory_kind::async;
  made.device = pool->device;
  made.pool = pool;
  return made;
}

// Of a graph's memory, that the stream captures. Queued frees make room for it as for any other.
cudaError_t allocate_in_capture(runtime& r, held_lock& held, void** p, std::size_t bytes,
                                std::shared_ptr<pool_state> const& pool, timeline& t) {
  std::uint64_t const id = t.id;
  std::shared_ptr<capture_state> const capture = t.capture;
  timeline* still_there = &t;
  void* node = capture_allocation(r, t, bytes, *pool);
  if (node == nullptr && pool->may_reuse(cudaMemPoolReuseAllowInternalDependencies) && finish_frees(r, held, *pool)) {
    // Meanwhile another thread may have ended the capture, or destroyed the stream.
    still_there = find_timeline(r, id);
    if (still_there == nullptr) return cudaErrorInvalidResourceHandle;
    if (still_there->capture != capture || capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    node = capture_allocation(r, *still_there, bytes, *pool);
  }
  if (node == nullptr) return refuse_allocation(r, memory_of(pool, bytes));
  *p = node;
  if (r.check != nullptr) r.check->allocated(still_there, node, bytes);
  return cudaSuccess;
}

cudaError_t allocate_async(runtime& r, held_lock& held, void** p, std::size_t bytes,
                           std::shared_ptr<pool_state> const& pool, timeline& t) {
  if (cudaError_t const code = admit_work(r, t); code != cudaSuccess) return code;
  if (bytes == 0) {
    *p = nullptr;
    return cudaSuccess;
  }
  if (t.capture != nullptr) return allocate_in_capture(r, held, p, bytes, pool, t);
  std::uint64_t const id = t.id;
  void* found = reuse(r, held, pool, t, bytes);
  if (found == nullptr) {
    allocation const made = memory_of(pool, bytes);
    bool const may_wait = pool->may_reuse(cudaMemPoolReuseAllowInternalDependencies);
    found = make_allocation(r, made);
    if (found == nullptr && may_wait && finish_frees(r, held, *pool)) found = make_allocation(r, made);
    if (found == nullptr) return refuse_allocation(r, made);
    // While the frees were finished, another thread may have destroyed the stream.
    if (timeline* const still_there = find_timeline(r, id)) {
      submit_allocation(r, held, *still_there, found);
    } else {
      begin_use(found, bytes, first_pattern(r));
    }
  }
  *p = found;
  if (r.check != nullptr) [[unlikely]] {
    timeline const* const still_there = find_timeline(r, id);
    r.check->allocated(still_there, found, bytes);
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t malloc_async(void** p, std::size_t bytes, cudaStream_t stream) {
  return api("cudaMallocAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (p == nullptr) return cudaErrorInvalidValue;
    // Of the stream's device, whatever device is current.
    return allocate_async(r, held, p, bytes, r.device(t->device).current_pool, *t);
  });
}

cudaError_t malloc_from_pool_async(void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return api("cudaMallocFromPoolAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    auto const* const from = r.pools.find(pool);
    if (p == nullptr || from == nullptr || (*from)->exporter != nullptr) return cudaErrorInvalidValue;
    return allocate_async(r, held, p, bytes, *from, *t);
  });
}

cudaError_t free_async(void* p, cudaStream_t stream) {
  return api("cudaFreeAsync", [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit_work(r, *t); code != cudaSuccess) return code;
    allocation* const a = find_live(r, p);
    if (t->capture != nullptr) {
      if (!capture_free(r, *t, p)) return cudaErrorInvalidValue;
      if (r.check == nullptr) return cudaSuccess;
      t->capture->graph->nodes.back().frees == nullptr ? r.check->freed(t, p) : r.check->freed_by_launches(*t, p);
      return cudaSuccess;
    }
    bool const right_kind =
        a != nullptr && (a->kind == memory_kind::async || a->kind == memory_kind::device) && !is_being_captured(r, *a);
    if (!right_kind) {
      if (r.check != nullptr) r.check->refused_free(t, p);
      return cudaErrorInvalidValue;
    }
    if (end_import(*a)) return cudaSuccess;
    if (r.check != nullptr) [[unlikely]]
      r.check->freed(t, p);
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    std::uint64_t const number = begin_free(r, *a);
    a->freed_at = {t->id, t->submitted + 1};
    if (a->pool != nullptr && a->graph == 0 && r.how != mode::immediate)
      a->pool->pending.emplace(pending_free{a->bytes, t->id, a->freed_at.sequence}, address);
    auto const finish = [&r, address, number](held_lock&) { finish_free(r, address, number); };
    submit(r, held, *t, finish, operation_kind::free);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
