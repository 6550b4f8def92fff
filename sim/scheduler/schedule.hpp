#pragma once
// The order of work, internal: what an operation waits for, when it runs, and how the host waits.

#include "model/call.hpp"
#include "model/runtime.hpp"
#include "scheduler/capture.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace weir::sim::detail {

/// What CUDA's default streams make the next operation of `t` wait for.
std::vector<point> implicit_order(runtime& r, timeline const& t);

void enqueue(runtime& r, timeline& t, std::vector<point> after, work run,
             operation_kind kind = operation_kind::device_work);

/// How much of each stream's work the next operation of `t` comes after, by what it and the operations before it wait
/// for: streams by their ids, and those alone of which it is not done yet.
std::map<std::uint64_t, std::uint64_t> const& comes_after(runtime& r, timeline& t);

/// Puts an operation into a stream, or into the graph that the stream captures. In immediate mode it runs before this
/// returns.
template <class Work>
void submit(runtime& r, held_lock& held, timeline& t, Work&& run, operation_kind kind = operation_kind::device_work) {
  if (t.capture != nullptr) [[unlikely]] {
    capture_operation(r, t, std::forward<Work>(run), kind);
  } else if (r.how == mode::immediate) {
    t.completed = ++t.submitted;
    turn const its_turn(r, t);
    if (sticky_error() == cudaSuccess) run(held);
  } else {
    enqueue(r, t, implicit_order(r, t), std::forward<Work>(run), kind);
  }
}

/// A place after all that `t` was given so far, and after what its next operation would have to wait for.
point record(runtime& r, held_lock& held, timeline& t, std::shared_ptr<clock::time_point> time);

/// Holds back what `t` gets from now on until `p` is reached.
void wait_for(runtime& r, timeline& t, point p);

/// Replaces all queued work by nothing; its order stays.
void abandon_work(runtime& r);

/// Whether all that the first waiting operation of `t` waits for is done; false if there is none, or it is under way.
bool may_run(runtime& r, timeline const& t);
/// Runs that operation. Outside threads mode one thread at a time does so (`runs_operations`). If a host function
/// throws, its operation is done, and the exception goes to the caller.
void run_front(runtime& r, held_lock& held, timeline* t);
/// While one lives, the calling thread alone executes operations. Begins and ends with the runtime's mutex held.
class runs_operations {
 public:
  explicit runs_operations(runtime& r) : r_(r) { r_.running = true; }
  ~runs_operations() {
    r_.running = false;
    r_.finished.notify_all();
  }
  runs_operations(runs_operations const&) = delete;
  runs_operations& operator=(runs_operations const&) = delete;

 private:
  runtime& r_;
};

bool done(runtime& r, point p);
/// Whether all work is done that a synchronise with `t` would wait for.
bool done(runtime& r, timeline const& t);

/// Makes the host wait: runs what must run before all these places are reached, and nothing else. Then trims pools.
void force(runtime& r, held_lock& held, std::vector<point> wanted);
void force(runtime& r, held_lock& held, timeline const& t);
void force_device(runtime& r, held_lock& held, int device);
void force_all(runtime& r, held_lock& held);

}  // namespace weir::sim::detail
