#pragma once
// Runs a trace on a stack that text describes, over the simulated runtime: does it fit, and how much does it hold.

#include "progress.hpp"

#include <weir/core/any_resource.hpp>
#include <weir/core/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/tools/memory_timeline.hpp>
#include <weir/tools/parse.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace weir::memory_tool {

/// One allocation or free of a block of a timeline.
struct replay_step {
  trace_moment moment;
  bool allocates;
  std::size_t block;
};

/// What a trace asks for, in order; blocks that were there before it first, and what it leaves is freed at the end.
inline std::vector<replay_step> steps_of(memory_timeline const& timeline) {
  std::vector<replay_step> steps;
  for (std::size_t i = 0; i < timeline.blocks.size(); ++i) {
    steps.push_back({timeline.blocks[i].from, true, i});
    steps.push_back({timeline.blocks[i].freed, false, i});
  }
  std::stable_sort(steps.begin(), steps.end(), [](replay_step const& a, replay_step const& b) {
    return a.moment != b.moment ? a.moment < b.moment : a.allocates < b.allocates;
  });
  return steps;
}

struct replay_outcome {
  bool is_whole = false;
  trace_moment stopped_at = 0;  ///< where it ran out of memory
  std::string report = {};      ///< what it said
  std::size_t held = 0;         ///< the most bytes taken from the device, or of host memory of CUDA's
  std::uint64_t cuda_calls = 0;
};

/// On a new stack, over a device of `capacity` bytes. By one thread; more than 64 streams share those. Throws what
/// `parse` throws.
inline replay_outcome replay(memory_timeline const& timeline, std::vector<replay_step> const& steps,
                             std::string const& stack, std::size_t capacity, progress& shown) {
  sim::reset();
  sim::set_device_count(1);
  sim::set_capacity(0, capacity);
  sim::set_host_capacity(capacity);
  replay_outcome out;
  std::deque<stream> streams;
  std::map<std::uint64_t, stream_ref> stream_of;
  auto const known_stream = [&](std::uint64_t handle) {
    auto const [at, is_new] = stream_of.try_emplace(handle);
    if (is_new && streams.size() < 64) streams.emplace_back();
    if (is_new) at->second = streams[(stream_of.size() - 1) % 64];
    return at->second;
  };
  std::vector<void*> live(timeline.blocks.size());
  try {
    any_resource memory = parse(stack);
    auto const free = [&](std::size_t i) {
      block_life const& b = timeline.blocks[i];
      if (live[i] != nullptr) memory.deallocate(known_stream(b.stream), live[i], b.bytes);
      live[i] = nullptr;
    };
    std::uint64_t const calls_before = sim::calls();
    try {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        block_life const& b = timeline.blocks[steps[i].block];
        out.stopped_at = steps[i].moment;
        if (steps[i].allocates)
          live[steps[i].block] = memory.allocate(known_stream(b.stream), b.bytes);
        else
          free(steps[i].block);
        if (steps[i].allocates) out.held = std::max(out.held, sim::live_bytes(0));
        shown.at(i, steps.size());
      }
      out.is_whole = true;
    } catch (std::bad_alloc const& e) {
      out.report = e.what();
      for (std::size_t i = 0; i < live.size(); ++i) free(i);
    }
    out.cuda_calls = sim::calls() - calls_before;
  } catch (std::bad_alloc const& e) {  // not even its first memory was to be had
    out.report = e.what();
  }
  return out;
}

/// The least capacity, to 1 part in 1,000, at which the trace runs whole. It has held `held` on a device of `device`.
inline std::size_t smallest_device(memory_timeline const& timeline, std::vector<replay_step> const& steps,
                                   std::string const& stack, std::size_t held, std::size_t device, progress& shown) {
  auto const runs = [&](std::size_t capacity) {
    return memory_tool::replay(timeline, steps, stack, capacity, shown).is_whole;
  };
  std::size_t const peak = peak_of(timeline).bytes;
  std::size_t too_small = peak == 0 ? 0 : peak - 1;
  std::size_t enough = std::min(held, device);
  while (enough < device && !runs(enough)) {  // a limit of 60% leaves 40% of whatever is there
    too_small = std::max(too_small, enough);
    enough = enough < device / 2 ? std::max<std::size_t>(2 * enough, 1) : device;
  }
  while (enough > too_small && enough - too_small > std::max<std::size_t>(enough / 1000, 1)) {
    std::size_t const middle = too_small + (enough - too_small) / 2;
    (runs(middle) ? enough : too_small) = middle;
  }
  return enough;
}

}  // namespace weir::memory_tool
