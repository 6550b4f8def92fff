// Back to a fresh process.

#include "allocations/virtual_memory.hpp"
#include "checker/checker.hpp"
#include "control/fault_injection.hpp"
#include "model/heap.hpp"
#include "model/kernels.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"
#include "scheduler/threads.hpp"

#include <weir/sim/sim.hpp>

#include <vector>

namespace weir::sim {
namespace {

// A default pool, whose handle stays.
void begin_anew(detail::pool_state& pool) {
  cudaMemPool_t const handle = pool.handle;
  pool = detail::pool_state(pool.home);
  pool.handle = handle;
  pool.is_default = true;
}

using detail::held_lock;
using detail::runtime;
using detail::timeline;

void drop_work(runtime& r, held_lock& held) {
  r.finished.wait(held, [&] { return !r.running; });
  for (auto& d : r.devices) {
    std::vector<timeline*> const all = d.timelines;
    for (timeline* t : all) {
      t->waiting.clear();
      t->completed = t->submitted;
      detail::retire_if_over(r, t);
    }
  }
}

// Destroys what an injected fault kept the program from destroying. The program will not try again, so that the objects
// would stay for ever, and every later reset and wait for the legacy stream would look at them.
void drop_what_failures_kept(runtime& r) {
  r.events.remove_if([](detail::event_state const& e) { return e.dies_with_reset; });
  r.streams.remove_if([&](timeline* t) {
    bool const dies = t->dies_with_reset;
    if (dies) detail::end_stream(r, t);
    return dies;
  });
}

void drop_memory(runtime& r) {
  for (auto const& [address, a] : r.allocations) detail::give_to_heap(reinterpret_cast<void*>(address), a.bytes, true);
  r.allocations.clear();
  r.registrations.clear();
  detail::drop_virtual_memory(r);
  r.live_allocations = 0;
  r.host_used = 0;
  r.exported_pools.clear();
  r.pools.remove_if([](auto const& pool) { return !pool->is_default; });
  for (int i = 0; i < detail::max_devices; ++i) {
    detail::device_state& d = r.device(i);
    begin_anew(*d.default_pool);
    d.current_pool = d.default_pool;
    d.used = 0;
    d.live_bytes = 0;
    d.reaches = {};
    d.flags = 0;
    d.limits.clear();
    d.for_graphs = d.most_for_graphs = {};
  }
  for (auto& [home, pools] : r.other_pools) {
    begin_anew(*pools.default_pool);
    pools.current_pool = pools.default_pool;
  }
}

}  // namespace

void reset() {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  detail::stop_workers(r, held);
  drop_work(r, held);
  r.check.reset();
  r.trace.reset();
  detail::forget_captures(r);
  r.executions.remove_if([](auto const&) { return true; });
  r.graphs.remove_if([](auto const&) { return true; });
  drop_memory(r);
  drop_what_failures_kept(r);
  r.events.for_each([](detail::event_state& e) {
    e.recorded = false;
    e.captured = nullptr;
  });
  r.how = mode::immediate;
  r.random_state = 0;
  r.starved = 0;
  r.by_rank = {};
  r.device_count = 2;
  r.access_checked = false;
  r.peers = true;
  r.skips_kernels = false;
  detail::forget_skipped_kernels();
  r.pageable_access = false;
  r.pageable_hints = {};
  r.virtual_memory.supported = true;
  r.host_capacity = detail::default_host_capacity;
  r.model = &detail::device_models().front();
  for (auto& d : r.devices) d.capacity = r.model->capacity;
  detail::forget_threads();
  clear_failure();
  detail::forget_latencies();
  reset_counters();
}

}  // namespace weir::sim
