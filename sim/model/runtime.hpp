#pragma once
// The one state of the simulated runtime, internal: devices, streams, events, pools and memory. One mutex guards it.

#include "model/allocation_trace.hpp"
#include "model/device_model.hpp"
#include "model/event.hpp"
#include "model/graph.hpp"
#include "model/handle_table.hpp"
#include "model/memory.hpp"
#include "model/pool.hpp"
#include "model/stream.hpp"
#include "model/thread.hpp"
#include "model/virtual_memory.hpp"

#include <weir/sim/sim.hpp>

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace weir::sim::detail {

inline constexpr std::size_t default_host_capacity = std::size_t{64} << 30;

/// What kernels may take besides their arguments, by `cudaLimit`: kept for who asks, without effect.
using device_limits = std::map<cudaLimit, std::size_t>;

struct device_state {
  std::size_t capacity = device_models().front().capacity;
  unsigned flags = 0;          // of `cudaSetDeviceFlags`
  device_limits limits;        // of `cudaDeviceSetLimit`
  std::size_t used = 0;        // what counts against the capacity
  std::size_t live_bytes = 0;  // what programs asked for and did not free
  timeline* legacy = nullptr;
  std::vector<timeline*> timelines;  // all on this device, the legacy one too
  std::shared_ptr<pool_state> default_pool, current_pool;
  [[no_unique_address]] device_landmarks landmarks{};
  graph_memory_sizes for_graphs;            // of allocation nodes' memory
  graph_memory_sizes most_for_graphs;       // since the program reset it
  std::array<bool, max_devices> reaches{};  // devices whose `cudaMalloc` memory it may use
};

/// The priorities of pct mode.
struct ranks {
  unsigned depth = 3;
  std::uint64_t steps = 1000;  // among which the ranks change
  bool drawn = false;          // false: the next call draws them anew
  std::uint64_t taken = 0;     // steps so far
  std::uint64_t host = 0;
  std::vector<std::uint64_t> changes;  // at the n-th of these steps, whoever takes it falls to rank n + 1
};

/// The pools of memory that is not pinned memory of a device.
struct home_pools {
  std::shared_ptr<pool_state> default_pool, current_pool;
};

class order_checker;

struct runtime {
  std::mutex mutex;
  std::condition_variable finished;  // notified when `running` becomes false, and in threads mode after each operation
  bool running = false;              // a thread other than the workers executes queued operations
  std::size_t under_way = 0;         // operations that are being executed

  std::vector<std::thread> workers;  // of threads mode: while there are any, nobody else executes what is queued
  std::condition_variable queued;    // notified when there may be something to do for them
  bool workers_end = false;

  mode how = mode::immediate;
  std::uint64_t random_state = 0;
  ranks by_rank;
  std::uint64_t starved = 0;  // the id of a stream
  int device_count = 2;
  device_model const* model = &device_models().front();
  bool skips_kernels = false;    // launches succeed and do nothing
  bool peers = true;             // whether devices can reach each other's memory
  bool access_checked = false;   // whether `touch` needs access to other devices' memory
  bool pageable_access = false;  // whether devices reach all of the host's memory
  managed_hints pageable_hints;  // of that memory
  std::array<device_state, max_devices> devices;
  std::size_t host_capacity = default_host_capacity;
  std::size_t host_used = 0;
  std::size_t live_allocations = 0;

  std::vector<std::unique_ptr<timeline>> timelines;  // by id; null once over. Ids are never used again
  std::uint64_t operations = 0;
  std::uint64_t plans = 0;         // of `force`
  std::uint64_t memory_count = 0;  // of blocks and frees together
  unsigned char pattern = 0;

  handle_table<cudaStream_t, timeline*, 0x5100'0000'0000> streams;
  handle_table<cudaEvent_t, event_state, 0x5200'0000'0000> events;
  handle_table<cudaMemPool_t, std::shared_ptr<pool_state>, 0x5300'0000'0000> pools;
  std::map<pool_home, home_pools> other_pools;  // made when they are asked for
  std::map<std::uint64_t, std::weak_ptr<pool_state>> exported_pools;
  std::uint64_t pool_exports = 0;
  handle_table<cudaGraph_t, std::shared_ptr<graph_state>, 0x5400'0000'0000> graphs;
  handle_table<cudaGraphExec_t, graph_execution, 0x5500'0000'0000> executions;
  std::map<std::uintptr_t, allocation> allocations;    // by address, of every kind
  std::map<std::uintptr_t, allocation> registrations;  // the program's own memory that it made pinned
  virtual_memory_state virtual_memory;

  std::vector<std::shared_ptr<capture_state>> captures;  // under way
  std::uint64_t capture_count = 0, captures_invalidated = 0, execution_count = 0, node_count = 0;

  std::shared_ptr<order_checker>
      check;  // null: the order is not checked. The only owner; a unique_ptr would need the type
  std::unique_ptr<allocation_trace> trace;  // null: nothing is recorded
  std::uint64_t checks = 0, owners = 0, event_count = 0, captured_streams = 0;

  runtime();

  device_state& device(int number) { return devices[static_cast<std::size_t>(number)]; }
  bool has_device(int number) const { return number >= 0 && number < device_count; }
  /// Whether a device can have access to memory of another, or its own.
  bool can_reach(int from, int home) const { return from == home || peers; }
  device_state& current_device() { return device(this_thread().device); }
};

/// Never destroyed: objects with static lifetime may call CUDA in their destructors.
runtime& state();

}  // namespace weir::sim::detail
