#pragma once
// Several programs on one device: each has a pool of its own, over memory of its own or over one set of chunks.

#include "../peers/weir.hpp"
#include "../support/null_runtime.hpp"
#include "trace.hpp"

#include <weir/adaptors/pool.hpp>
#include <weir/core/error.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace bench {

/// One event of one of several traces.
struct joint_event {
  std::size_t program;
  trace::event what;
};

/// All events, each where its trace is as far through as the others are.
inline std::vector<joint_event> merged(std::vector<trace> const& programs) {
  struct placed {
    double at;
    joint_event event;
  };
  std::vector<placed> all;
  for (std::size_t p = 0; p < programs.size(); ++p)
    for (std::size_t i = 0; i < programs[p].events.size(); ++i)
      all.push_back({(static_cast<double>(i) + 0.5) / static_cast<double>(programs[p].events.size()),
                     {p, programs[p].events[i]}});
  std::stable_sort(all.begin(), all.end(), [](placed const& a, placed const& b) { return a.at < b.at; });
  std::vector<joint_event> events;
  for (placed const& e : all) events.push_back(e.event);
  return events;
}

/// The most bytes that all of them have live at once.
inline std::size_t joint_peak(std::vector<trace> const& programs, std::vector<joint_event> const& events) {
  std::size_t live = 0, peak = 0;
  for (joint_event const& e : events) {
    std::size_t const bytes = programs[e.program].sizes[e.what.block];
    live = e.what.allocates ? live + bytes : live - bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

struct joint_outcome {
  std::size_t events = 0;    ///< that ran
  std::size_t reserved = 0;  ///< the most bytes held of the device
};

/// On the pool that `pool_of(program)` returns, a reference, for each program.
template <class PoolOf>
joint_outcome replay_together(std::vector<trace> const& programs, std::vector<joint_event> const& events,
                              PoolOf pool_of) {
  std::vector<std::vector<void*>> live;
  for (trace const& t : programs) live.emplace_back(t.sizes.size());
  persistent_streams const streams;
  joint_outcome o;
  try {
    for (joint_event const& e : events) {
      void*& p = live[e.program][e.what.block];
      std::size_t const bytes = programs[e.program].sizes[e.what.block];
      auto const stream = streams[(e.what.stream + e.program * 16) % most_streams];
      if (e.what.allocates)
        p = pool_of(e.program).allocate(stream, bytes);
      else
        pool_of(e.program).deallocate(stream, p, bytes), p = nullptr;
      ++o.events;
    }
  } catch (std::bad_alloc const&) {  // told by how many events ran
  }
  o.reserved = device_bytes_peak();
  for (std::size_t i = 0; i < programs.size(); ++i)
    for (std::size_t block = 0; block < live[i].size(); ++block)
      if (live[i][block] != nullptr) pool_of(i).deallocate(streams[0], live[i][block], programs[i].sizes[block]);
  return o;
}

/// Each program has a stack made by `recipe` to itself.
template <class Recipe>
joint_outcome replay_each_on(std::vector<trace> const& programs, std::vector<joint_event> const& events,
                             Recipe const& recipe) {
  using stack_type = weir::made_by<Recipe>;
  std::vector<std::unique_ptr<stack_type>> stacks;
  for (std::size_t i = 0; i < programs.size(); ++i) stacks.emplace_back(new stack_type(recipe()));
  return replay_together(programs, events, [&](std::size_t i) -> stack_type& { return *stacks[i]; });
}
template <class Recipe>
joint_outcome replay_apart(std::vector<trace> const& programs, std::vector<joint_event> const& events,
                           Recipe const& recipe, std::size_t capacity) {
  set_device_capacity(capacity);
  return replay_each_on(programs, events, recipe);
}

/// Each has a pool, and all one set of chunks.
inline joint_outcome replay_sharing(std::vector<trace> const& programs, std::vector<joint_event> const& events,
                                    std::size_t capacity) {
  set_device_capacity(capacity);
  weir::virtual_memory_resource pages{weir::virtual_memory{}};
  return replay_each_on(programs, events, weir::share(pages) | weir::pool{});
}

}  // namespace bench
