// Settings of the simulated runtime, and what can be asked of it.

#include "control/fault_injection.hpp"
#include "control/refuse.hpp"
#include "model/call.hpp"
#include "model/kernels.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/threads.hpp"

#include <weir/sim/sim.hpp>

#include <algorithm>
#include <string>

namespace weir::sim {
namespace {

using detail::held_lock;
using detail::refuse;
using detail::runtime;
using detail::timeline;

detail::device_state& device_at(runtime& r, int device) {
  if (device < 0 || device >= detail::max_devices) refuse("no device " + std::to_string(device));
  return r.device(device);
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

}  // namespace

void set_mode(mode m) {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  if (m == mode::immediate) drain(r, held);  // by the workers, where there are some: host functions may meet
  m == mode::threads ? detail::start_workers(r, held) : detail::stop_workers(r, held);
  if (m == mode::immediate) drain(r, held);
  r.how = m;
  r.starved = 0;
  r.by_rank.drawn = false;
}

void set_seed(std::uint64_t seed) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.random_state = seed;
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

void set_device_model(std::string_view name) {
  detail::device_model const* const found = detail::find_device_model(name);
  if (found == nullptr) {
    std::string why = "set_device_model: there is no ";
    why.append(name).append("; it can be one of");
    for (detail::device_model const& each : detail::device_models()) why.append(" ").append(each.name);
    refuse(why);
  }
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  for (detail::device_state& device : r.devices) {
    device.used += found->context_bytes - r.model->context_bytes;
    device.capacity = found->capacity;
  }
  r.model = found;
}

void skip_kernels(bool on) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.skips_kernels = on;
}

std::vector<skipped_kernel> skipped_kernels() {
  detail::kernel_table& known = detail::kernels();
  std::lock_guard const lock(known.mutex);
  std::vector<skipped_kernel> result;
  for (auto const& [name, launches] : known.skipped) result.push_back({detail::demangled(name), launches});
  std::stable_sort(result.begin(), result.end(), [](auto const& a, auto const& b) { return a.launches > b.launches; });
  return result;
}

void set_peers(bool on) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.peers = on;
}

void set_pageable_access(bool on) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.pageable_access = on;
}

void set_virtual_memory(bool on) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.virtual_memory.supported = on;
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

void trace_memory(std::string_view file) {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.trace = std::make_unique<detail::allocation_trace>(std::string(file));
}

std::size_t live_handles() {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  std::size_t count = 0;
  r.streams.for_each([&](timeline const*) { ++count; });
  r.events.for_each([&](detail::event_state const&) { ++count; });
  r.pools.for_each([&](auto const& pool) { count += pool->is_default ? 0 : 1; });
  return count + r.virtual_memory.reserved.size();
}

std::uint64_t captures_invalidated() {
  runtime& r = detail::state();
  held_lock const held(r.mutex);
  return r.captures_invalidated;
}

bool in_runtime_call() { return detail::this_thread().in_call; }

}  // namespace weir::sim
