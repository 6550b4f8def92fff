#pragma once
// What every runtime call does first, internal: it is counted, it may be told to fail, and then it has the state to
// itself.

#include "control/fault_injection.hpp"
#include "model/call.hpp"
#include "model/runtime.hpp"
#include "scheduler/random.hpp"

#include <atomic>
#include <new>
#include <utility>

namespace weir::sim::detail {

/// Every call that counts goes through here. `body(runtime&, held_lock&)` returns the call's code.
template <class Body>
cudaError_t counted(call which, Body&& body) {
  own_work const not_the_streams;
  thread_state& me = this_thread();
  call_counters[which.index()].fetch_add(1, std::memory_order_relaxed);
  cudaError_t code = cudaSuccess;
  if (faults_are_set.load(std::memory_order_relaxed)) [[unlikely]]
    code = inject_fault(which);
  if (me.in_host_function) code = cudaErrorNotPermitted;
  if (code == cudaSuccess) {
    in_call const own_work(me);
    try {
      runtime& r = state();
      held_lock held(r.mutex);
      if (time_passes(r.how)) [[unlikely]]
        let_time_pass(r, held, which);
      if (r.check != nullptr) [[unlikely]]
        me.call = which.number();
      code = body(r, held);
    } catch (std::bad_alloc const&) {
      code = cudaErrorMemoryAllocation;
    }
  }
  return code;
}

/// A call of the runtime, which remembers its error for `cudaGetLastError`.
template <class Body>
cudaError_t api(call which, Body&& body) {
  own_work const not_the_streams;
  cudaError_t const code = counted(which, std::forward<Body>(body));
  if (code != cudaSuccess) [[unlikely]]
    this_thread().last_error = code;
  return code;
}

/// An injected fault refused a destruction: `mark(runtime&)` marks the object, which `reset` then destroys. Does
/// nothing in a host function: there every call is refused, and the program can still destroy the object afterwards.
template <class Mark>
void destroy_with_reset(Mark mark) {
  if (this_thread().in_host_function) return;
  runtime& r = state();
  std::lock_guard const lock(r.mutex);
  mark(r);
}

}  // namespace weir::sim::detail
