// What tests do to the stand-in: modes, capacities, counters, failures, and work that stands for kernels.

#include "checker/checker.hpp"
#include "model/call.hpp"
#include "model/memory.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace weir::sim {
namespace {

using detail::held_lock;
using detail::runtime;
using detail::timeline;

[[noreturn]] void refuse(std::string const& why) { throw std::invalid_argument("weir::sim::" + why); }

detail::device_state& device_at(runtime& r, int device) {
  if (device < 0 || device >= detail::max_devices) refuse("no device " + std::to_string(device));
  return r.devices[static_cast<std::size_t>(device)];
}

bool all_idle(runtime& r) {
  return std::all_of(r.devices.begin(), r.devices.end(), [](detail::device_state const& d) {
    return std::all_of(d.timelines.begin(), d.timelines.end(), [](timeline const* t) { return t->idle(); });
  });
}

// Other threads may queue more while the work runs without the lock.
void drain(runtime& r, held_lock& held) {
  while (!all_idle(r)) detail::force_all(r, held);
}

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

// What a program could not destroy since a plan was in the way it will not try again: it would stay for ever, and every
// later reset and wait for the legacy stream would look at it. All other streams and events may be in a cache.
void drop_what_plans_kept(runtime& r) {
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
  r.live_allocations = 0;
  r.host_used = 0;
  r.pools.remove_if([](auto const& pool) { return !pool->is_default; });
  for (int i = 0; i < detail::max_devices; ++i) {
    detail::device_state& d = r.devices[static_cast<std::size_t>(i)];
    cudaMemPool_t const handle = d.default_pool->handle;
    *d.default_pool = std::move(*detail::make_pool(i));
    d.default_pool->handle = handle;
    d.default_pool->is_default = true;
    d.current_pool = d.default_pool;
    d.used = 0;
    d.live_bytes = 0;
    d.reaches = {};
    d.flags = 0;
  }
}

// A kernel on a GPU crashes at memory that its device cannot reach.
void require_access(runtime& r, int device, void const* p, std::size_t bytes) {
  detail::allocation const* const a = detail::look_up(r, p, bytes).in;
  if (a == nullptr || detail::reaches(r, device, *a)) return;
  refuse("touch: device " + std::to_string(device) + " has no access to this memory of device " +
         std::to_string(a->device) +
         "; give it access with cudaDeviceEnablePeerAccess, or for a pool's memory with cudaMemPoolSetAccess");
}

// Not optimised away, and a read for the sanitizers.
void read_all(unsigned char const* first, std::size_t bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) sum += first[i];
  static std::atomic<unsigned> sink;
  sink.store(sum, std::memory_order_relaxed);
}

void write_all(unsigned char* first, std::size_t bytes, unsigned char pattern) { std::memset(first, pattern, bytes); }

}  // namespace

void reset() {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  detail::stop_workers(r, held);
  drop_work(r, held);
  r.check.reset();
  detail::forget_captures(r);
  r.executions.remove_if([](auto const&) { return true; });
  r.graphs.remove_if([](auto const&) { return true; });
  drop_memory(r);
  drop_what_plans_kept(r);
  r.events.for_each([](detail::event_state& e) {
    e.recorded = false;
    e.captured = nullptr;
  });
  r.how = mode::immediate;
  r.chance = 0;
  r.starved = 0;
  r.by_rank = {};
  r.device_count = 2;
  r.access_checked = false;
  r.host_capacity = detail::default_host_capacity;
  for (auto& d : r.devices) d.capacity = detail::default_capacity;
  detail::forget_threads();
  clear_failure();
  detail::forget_latencies();
  reset_counters();
}

void set_mode(mode m) {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  m == mode::threads ? detail::start_workers(r, held) : detail::stop_workers(r, held);
  if (m == mode::immediate) drain(r, held);
  r.how = m;
  r.starved = 0;
  r.by_rank.drawn = false;
}

void set_seed(std::uint64_t seed) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.chance = seed;
  r.by_rank.drawn = false;
}

void set_depth(unsigned depth, std::uint64_t steps) {
  if (depth == 0) refuse("set_depth: a bug has a depth of 1 at least");
  if (steps == 0) refuse("set_depth: a program takes 1 step at least");
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.by_rank = {};
  r.by_rank.depth = depth;
  r.by_rank.steps = steps;
}

void starve(std::uint64_t stream_id) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.starved = stream_id;
}

void run_all() {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  detail::force_all(r, held);
}

void set_device_count(int count) {
  if (count < 1 || count > detail::max_devices) {
    refuse("set_device_count: " + std::to_string(count) + " is not 1 to " + std::to_string(detail::max_devices));
  }
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.device_count = count;
}

void check_access(bool on) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.access_checked = on;
}

void set_capacity(int device, std::size_t bytes) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  device_at(r, device).capacity = bytes;
}

void set_host_capacity(std::size_t bytes) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.host_capacity = bytes;
}

std::uint64_t calls() {
  std::uint64_t sum = 0;
  for (auto const& counter : detail::call_counters) sum += counter.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t calls(char const* name) {
  return detail::call_counters[detail::index_of("calls", name)].load(std::memory_order_relaxed);
}

void reset_counters() {
  for (auto& counter : detail::call_counters) counter.store(0, std::memory_order_relaxed);
  detail::simulated_nanoseconds.store(0, std::memory_order_relaxed);
}

std::uint64_t simulated_time() { return detail::simulated_nanoseconds.load(std::memory_order_relaxed); }

std::size_t live_bytes(int device) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  return device_at(r, device).live_bytes;
}

std::size_t live_allocations() {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  return r.live_allocations;
}

std::size_t live_handles() {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  std::size_t count = 0;
  r.streams.for_each([&](timeline const*) { ++count; });
  r.events.for_each([&](detail::event_state const&) { ++count; });
  r.pools.for_each([&](auto const& pool) { count += pool->is_default ? 0 : 1; });
  return count;
}

bool in_runtime_call() { return detail::this_thread().in_call; }

void touch(cudaStream_t stream, void const* p, std::size_t bytes, access what) {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  if (detail::time_passes(r.how)) detail::let_time_pass(r, held, detail::host_functions::may_run);
  timeline* const t = detail::find_stream(r, stream == nullptr ? cudaStreamLegacy : stream);
  if (t == nullptr) refuse("touch: not a valid stream");
  if (detail::admit_work(r, *t) != cudaSuccess)
    refuse("touch: a stream capture was invalidated, or is by this use of the legacy stream");
  if (bytes == 0) return;
  detail::acting_as const named(detail::number_of("sim::touch"));
  bool const valid = detail::look_up(r, p, bytes).valid;
  if (r.check != nullptr)
    r.check->access(*t, valid ? r.check->operate(*t) : r.check->act(t), p, bytes, valid,
                    what == access::read ? detail::use::read : detail::use::write);
  if (!valid) refuse("touch: the range leaves its allocation, or that is freed");
  if (r.access_checked) require_access(r, t->device, p, bytes);
  if (what == access::read) {
    detail::submit(r, held, *t, [p, bytes](held_lock& lock) {
      detail::unlocked(lock, [p, bytes] { read_all(static_cast<unsigned char const*>(p), bytes); });
    });
  } else {
    unsigned char const pattern = r.pattern = static_cast<unsigned char>(r.pattern + 37);
    auto* const first = static_cast<unsigned char*>(const_cast<void*>(p));
    detail::submit(r, held, *t, [first, bytes, pattern](held_lock& lock) {
      detail::unlocked(lock, [first, bytes, pattern] { write_all(first, bytes, pattern); });
    });
  }
}

}  // namespace weir::sim
