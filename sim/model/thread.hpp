#pragma once
// The state of one host thread, internal, and scopes that say what it is doing.

#include "model/pool.hpp"
#include "model/vector_clock.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <utility>

namespace weir::sim::detail {

/// Where a host function stands in its stream.
struct host_function_place {
  std::uint64_t check;  // its number
  mark at;
  vector_clock known;
};

/// Trivial, so that it can be used until the thread ends.
struct thread_state {
  std::uint64_t generation = 0;  // which `reset` this is about
  int device = 0;
  // Of the driver's contexts that are below the current one, the devices.
  std::array<int, 16> devices_below{};
  unsigned contexts_below = 0;
  cudaError_t last_error = cudaSuccess;
  bool in_call = false;  // does the simulated runtime's work, not the program's
  bool in_host_function = false;
  call_number call = 0;      // under way; only while order is checked
  unsigned times_asked = 0;  // about events that are not done, with no other call in between
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  host_function_place const* host_function = nullptr;  // while order is checked
  // The slot of the thread's clock, and the check that it was given by.
  std::uint64_t check = 0;
  slot_number slot = host_slot;
  // The owners of checked blocks that the thread works for.
  std::array<std::uint64_t, 8> inside{};
  unsigned inside_depth = 0;
  std::array<std::uint64_t, max_devices> default_stream{};  // ids of the per-thread streams; 0: not made yet
};

thread_state& this_thread();

/// Puts every thread back to device 0, without an error.
void forget_threads();

/// While one lives, reports name that call for what the thread does.
class acting_as {
 public:
  explicit acting_as(call_number call) : me_(this_thread()), before_(me_.call) { me_.call = call; }
  ~acting_as() { me_.call = before_; }
  acting_as(acting_as const&) = delete;
  acting_as& operator=(acting_as const&) = delete;

 private:
  thread_state& me_;
  call_number before_;
};

/// While one lives, the thread works for the simulated runtime, except in host functions: a test that lets host memory
/// run out can tell the two apart.
class in_call {
 public:
  explicit in_call(thread_state& me) : me_(me) { me_.in_call = true; }
  ~in_call() { me_.in_call = false; }
  in_call(in_call const&) = delete;
  in_call& operator=(in_call const&) = delete;

 private:
  thread_state& me_;
};

/// While one lives, the thread runs a host function in place of the simulated runtime's own work. On a GPU another
/// thread does, which has a last error of its own.
class in_host_function {
 public:
  explicit in_host_function(host_function_place const* place)
      : me_(this_thread()), was_in_call_(me_.in_call), last_error_(std::exchange(me_.last_error, cudaSuccess)) {
    me_.in_call = false;
    me_.in_host_function = true;
    me_.host_function = place;
  }
  ~in_host_function() {
    me_.host_function = nullptr;
    me_.in_host_function = false;
    me_.in_call = was_in_call_;
    me_.last_error = last_error_;
  }
  in_host_function(in_host_function const&) = delete;
  in_host_function& operator=(in_host_function const&) = delete;

 private:
  thread_state& me_;
  bool was_in_call_;
  cudaError_t last_error_;
};

}  // namespace weir::sim::detail
