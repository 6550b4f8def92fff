#pragma once
// Streams, internal: what each was given to do, and how far it got.

#include "model/tsan_fibers.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace weir::sim::detail {

struct capture_state;
struct runtime;

using held_lock = std::unique_lock<std::mutex>;

/// A place in one stream's work: everything up to its `sequence`-th operation. The stream goes by its id, since handles
/// are used again.
struct point {
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  [[no_unique_address]] landmark reached{};
};

/// What an operation does. Called with the runtime's mutex held; gives it up while it runs the program's code or
/// touches its memory.
using work = std::function<void(held_lock&)>;

/// A host function is the program's own code, and in random and pct mode runs in some calls only. Device work is a
/// kernel's, or what counts as one.
enum class operation_kind { device_work, copy, set, host_function, allocation, free, nothing };

/// Memory's own operations take no time.
inline bool takes_no_time(operation_kind kind) {
  return kind == operation_kind::allocation || kind == operation_kind::free;
}

struct operation {
  std::uint64_t order = 0;   // of the call that queued it, over all streams
  std::vector<point> after;  // what it waits for besides the operations before it in its stream
  work run;
  [[no_unique_address]] landmark handed_over{};  // by the call
  operation_kind kind = operation_kind::device_work;
};

/// One stream from its creation until its last operation is done, which may be after its handle is gone.
struct timeline {
  std::uint64_t id = 0;
  int device = 0;
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  bool legacy = false;
  bool destroyed = false;
  bool dies_with_reset = false;  // an injected failure refused its destruction
  bool busy = false;             // its first waiting operation is under way
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t plan = 0;         // used by `force` while it collects what must run: which collection this is about
  std::uint64_t planned = 0;      // and how far it got here
  std::uint64_t rank = 0;         // in pct mode: the highest runs first; 0: not drawn yet
  std::deque<operation> waiting;  // the operations after `completed`, in order
  std::map<std::uint64_t, std::uint64_t> comes_after;  // kept by `comes_after`, for its next question
  [[no_unique_address]] fibers_of_stream fibers = new_fibers();
  std::shared_ptr<capture_state> capture;  // set: work is not queued, it becomes part of a graph

  bool blocking() const { return !legacy && flags == cudaStreamDefault; }
  bool idle() const { return completed == submitted; }
  point end() const { return {id, submitted}; }
};

timeline* make_timeline(runtime& r, int device, unsigned flags, int priority);
/// Null once the stream is over.
timeline* find_timeline(runtime& r, std::uint64_t id);
/// Forgets a stream that is destroyed and has no work left.
void retire_if_over(runtime& r, timeline* t);

}  // namespace weir::sim::detail
