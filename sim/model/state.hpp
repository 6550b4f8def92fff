#pragma once
// The one state of the stand-in, internal: devices, streams, events, pools and memory. One mutex guards all of it.

#include <weir/sim/sim.hpp>
#include "model/clocks.hpp"
#include "model/fibers.hpp"
#include "model/handle_table.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace weir::sim::detail {

inline constexpr int max_devices = 8;
inline constexpr std::size_t default_capacity = std::size_t{16} << 30;
inline constexpr std::size_t default_host_capacity = std::size_t{64} << 30;

using held_lock = std::unique_lock<std::mutex>;

/// A place in one stream's work: everything up to its `sequence`-th operation. Streams go by id, for handles come back.
struct point {
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  [[no_unique_address]] landmark reached{};
};

/// Called with the runtime's mutex held; gives it up for as long as it runs a user's code or touches a user's memory.
using work = std::function<void(held_lock&)>;
/// Whose code an operation runs: the stand-in's, or a host function.
enum class whose { stand_in, program };

struct operation {
  std::uint64_t order = 0;   // of the call that queued it, over all streams
  std::vector<point> after;  // what it waits for besides the operations before it in its stream
  work run;
  [[no_unique_address]] landmark handed_over{};  // by the call
  whose code = whose::stand_in;
};

struct capture_state;
struct captured_point;
struct graph_state;
struct graph_execution;

/// One stream from its creation until its last operation is done, which may be after its handle is gone.
struct timeline {
  std::uint64_t id = 0;
  int device = 0;
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  bool legacy = false;
  bool destroyed = false;
  bool dies_with_reset = false;  // a plan refused its destruction
  bool busy = false;             // its first waiting operation is under way
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t plan = 0;         // used by `force` while it collects what must run: which collection this is about
  std::uint64_t planned = 0;      // and how far it got here
  std::uint64_t rank = 0;         // in pct mode: the highest runs first; 0: not drawn yet
  std::deque<operation> waiting;  // the operations after `completed`, in order
  [[no_unique_address]] fibers_of_stream fibers = new_fibers();
  std::shared_ptr<capture_state> capture;  // set: work is not queued, it becomes part of a graph

  bool blocking() const { return !legacy && flags == cudaStreamDefault; }
  bool idle() const { return completed == submitted; }
  point end() const { return {id, submitted}; }
};

using clock = std::chrono::steady_clock;

struct event_state {
  std::uint64_t number = 0;  // in the order of creation
  int device = 0;
  bool timed = true;
  bool recorded = false;
  bool dies_with_reset = false;                    // a plan refused its destruction
  point at;                                        // the latest snapshot
  vector_clock seen;                               // what the snapshot comes after; only while order is checked
  mark recorded_by;                                // the latest record, only while order is checked
  std::uint64_t recorded_on = 0;                   // its stream, whose slot may be another one's by now
  bool waited_for = false;                         // since that
  std::shared_ptr<clock::time_point> reached;      // set when the snapshot's work is done; timed events only
  std::shared_ptr<captured_point const> captured;  // set: the latest record was captured
};

/// Memory that a pool keeps after its free has executed; nobody may touch it meanwhile.
struct kept_block {
  struct release {
    std::size_t bytes;
    void operator()(void* p) const;
  };
  std::unique_ptr<void, release> memory;
  std::uint64_t freed_on = 0;  // id of the stream
};

struct pool_state {
  int device = 0;
  bool is_default = false;
  bool destroyed = false;
  std::size_t max_bytes = 0;  // 0: no limit of its own
  std::size_t live = 0;       // allocations, those with a queued free included
  std::array<int, 3> reuse{1, 1, 1};
  std::uint64_t release_threshold = 0;
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t used = 0, used_high = 0;
  std::array<cudaMemAccessFlags, max_devices> access{};
  // Freed but not yet executed, by stream id and size: the same stream may have it at once.
  std::multimap<std::pair<std::uint64_t, std::size_t>, std::uintptr_t> pending;
  std::vector<kept_block> kept;  // the latest last
  cudaMemPool_t handle = nullptr;
};

enum class memory_kind { device, async, managed, pinned };

struct allocation {
  std::size_t bytes = 0;
  memory_kind kind = memory_kind::device;
  int device = 0;
  unsigned flags = 0;                // of pinned memory, as asked for
  std::shared_ptr<pool_state> pool;  // of stream-ordered memory
  bool freeing = false;              // the free was called; the memory goes when it executes
  bool kept_for_graph = false;       // the free executed, and the next launch of its graph needs the memory
  point freed_at;                    // the place of the free, for stream-ordered memory
  std::uint64_t ticket = 0;          // which free that is, as another allocation may take the block over first
  std::uint64_t block = 0;           // the number of that block, which allocations may hand on; among the tickets
  std::uint64_t graph = 0;           // of an allocation node: whose; the address is that graph's until it is gone
};

struct device_state {
  std::size_t capacity = default_capacity;
  unsigned flags = 0;          // of `cudaSetDeviceFlags`
  std::size_t used = 0;        // what counts against the capacity
  std::size_t live_bytes = 0;  // what programs asked for and did not free
  timeline* legacy = nullptr;
  std::vector<timeline*> timelines;  // all on this device, the legacy one too
  std::shared_ptr<pool_state> default_pool, current_pool;
  [[no_unique_address]] device_landmarks landmarks{};
  std::array<bool, max_devices> reaches{};  // whose `cudaMalloc` memory it was given access to
};

/// Where a host function stands in its stream.
struct host_function_place {
  std::uint64_t check;  // its number
  mark at;
  vector_clock known;
};

/// What belongs to one host thread. Trivial, so that it can be used until the thread's very end.
struct thread_state {
  std::uint64_t generation = 0;  // which `reset` this is about
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  bool in_call = false;  // the stand-in's own work: not the program's
  bool in_host_function = false;
  call_number call = 0;      // under way; only while order is checked
  unsigned times_asked = 0;  // about events that are not done, with no other call in between
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  host_function_place const* host_function = nullptr;  // while order is checked
  // The slot of the thread's clock, and the check that it was given by.
  std::uint64_t check = 0;
  slot_number slot = host_slot;
  // Owners of checked blocks whose own work this is.
  std::array<std::uint64_t, 8> inside{};
  unsigned inside_depth = 0;
  std::array<std::uint64_t, max_devices> default_stream{};  // ids of the per-thread streams; 0: not made yet
};

class order_checker;

/// The priorities of pct mode.
struct ranks {
  unsigned depth = 3;
  std::uint64_t steps = 1000;  // among which the ranks change
  bool drawn = false;          // false: the next call draws them anew
  std::uint64_t taken = 0;     // steps so far
  std::uint64_t host = 0;
  std::vector<std::uint64_t> changes;  // at the n-th of these steps, whoever takes it falls to rank n + 1
};

struct runtime {
  std::mutex mutex;
  std::condition_variable finished;  // notified when `running` becomes false, and in threads mode after each operation
  bool running = false;              // some thread that is no worker executes queued operations
  std::size_t under_way = 0;         // operations that somebody executes

  std::vector<std::thread> workers;  // of threads mode: while there are any, nobody else executes what is queued
  std::condition_variable queued;    // notified when there may be something to do for them
  bool workers_end = false;

  mode how = mode::immediate;
  std::uint64_t chance = 0;  // state of the random numbers
  ranks by_rank;
  std::uint64_t starved = 0;  // the id of a stream
  int device_count = 2;
  bool access_checked = false;  // whether `touch` needs access to other devices' memory
  std::array<device_state, max_devices> devices;
  std::size_t host_capacity = default_host_capacity;
  std::size_t host_used = 0;
  std::size_t live_allocations = 0;

  std::vector<std::unique_ptr<timeline>> timelines;  // by id; null once over. Ids are never used again
  std::uint64_t operations = 0;
  std::uint64_t plans = 0;
  std::uint64_t tickets = 0;
  unsigned char pattern = 0;

  handle_table<cudaStream_t, timeline*, 0x5100'0000'0000> streams;
  handle_table<cudaEvent_t, event_state, 0x5200'0000'0000> events;
  handle_table<cudaMemPool_t, std::shared_ptr<pool_state>, 0x5300'0000'0000> pools;
  handle_table<cudaGraph_t, std::shared_ptr<graph_state>, 0x5400'0000'0000> graphs;
  handle_table<cudaGraphExec_t, graph_execution, 0x5500'0000'0000> executions;
  std::map<std::uintptr_t, allocation> allocations;    // by address, of every kind
  std::map<std::uintptr_t, allocation> registrations;  // the program's own memory that it made pinned

  std::vector<std::shared_ptr<capture_state>> captures;  // under way
  std::uint64_t capture_count = 0, captures_invalidated = 0, execution_count = 0;

  std::unique_ptr<order_checker> check;  // null: the order is not checked
  std::uint64_t checks = 0, owners = 0, event_count = 0, lanes = 0;

  runtime();
  ~runtime();
};

/// Never destroyed: objects with static lifetime may call CUDA in their destructors.
runtime& state();
thread_state& this_thread();

// streams.cpp
timeline* make_timeline(runtime& r, int device, unsigned flags, int priority);
timeline* find_timeline(runtime& r, std::uint64_t id);
/// The stream of a handle other than 0 for the calling thread and its current device; null if there is none.
timeline* find_stream(runtime& r, cudaStream_t handle);
void retire_if_over(runtime& r, timeline* t);
/// The stream gets no more work.
void end_stream(runtime& r, timeline* t);

// pools.cpp
std::shared_ptr<pool_state> make_pool(int device);

// plans.cpp
/// The error that every call returns by now; success if there is none.
cudaError_t sticky_error();
/// Forgets what calls cost.
void forget_latencies();

// state.cpp, for control.cpp
/// Every thread is back at device 0 without an error.
void forget_threads();

}  // namespace weir::sim::detail
