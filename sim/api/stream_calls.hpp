#pragma once
// The calls that depend on a file's default stream, internal: here with the stream's handle resolved, never 0. And
// what several files of calls share.

#include "model/call.hpp"

namespace weir::sim::detail {

/// Waiting for the host: `cudaMemcpy` and `cudaMemset` wait where CUDA says so, their `Async` forms elsewhere.
enum class host_waits { as_documented, no };

/// What a copy or a set is about: rows of bytes, each a pitch after the one before, and slices of such rows.
struct rows {
  std::size_t width = 0;
  std::size_t height = 1;                    // of a slice
  std::size_t to_pitch = 0, from_pitch = 0;  // of no meaning with one row
  std::size_t depth = 1;
  std::size_t to_slice = 0, from_slice = 0;  // bytes from slice to slice; of no meaning with one
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  bool pitched() const { return height > 1 || depth > 1; }
  // From the first byte to the last one; the largest number if it is more than that.
  std::size_t to_bytes() const;
  std::size_t from_bytes() const;
};

cudaError_t copy(call which, void* to, void const* from, rows what, cudaMemcpyKind kind, cudaStream_t stream,
                 host_waits waits);
/// The same inside a call: `cudaSuccess`, or why not.
cudaError_t submit_copy(runtime& r, held_lock& held, void* to, void const* from, rows what, cudaMemcpyKind kind,
                        cudaStream_t stream, host_waits waits);
cudaError_t set(call which, void* to, int value, rows what, cudaStream_t stream, host_waits waits);

// slices.cpp
cudaError_t copy_slices(call which, cudaMemcpy3DParms const* asked, cudaStream_t stream, host_waits waits);
cudaError_t copy_slices(call which, cudaMemcpy3DPeerParms const* asked, cudaStream_t stream, host_waits waits);
cudaError_t set_slices(call which, cudaPitchedPtr const& to, int value, cudaExtent extent, cudaStream_t stream,
                       host_waits waits);

// peers.cpp
/// A copy's two ends, which lie on devices that the program names.
struct peer_ends {
  void* to = nullptr;
  int to_device = 0;
  void const* from = nullptr;
  int from_device = 0;
};
cudaError_t copy_between(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream);
/// Serialised with the work of both devices and the current one; here with what their legacy streams are serialised
/// with, which leaves out non-blocking streams. `stream` is a default one.
cudaError_t copy_serialised(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream,
                            host_waits waits);

// kernels.cpp
/// `function` is the host's stand-in for a kernel, or a handle of one.
cudaError_t refuse_kernel(call which, void const* function);

// driver_entry_points.cpp
cudaError_t driver_entry_point(call which, char const* symbol, void** function, unsigned version,
                               unsigned long long flags, cudaDriverEntryPointQueryResult* result);

/// While one lives, the calling thread runs a host function in place of the stand-in's own work.
class host_function_scope {
 public:
  explicit host_function_scope(host_function_place const* place) : me_(this_thread()), was_in_call_(me_.in_call) {
    me_.in_call = false;
    me_.in_host_function = true;
    me_.host_function = place;
  }
  ~host_function_scope() {
    me_.host_function = nullptr;
    me_.in_host_function = false;
    me_.in_call = was_in_call_;
  }
  host_function_scope(host_function_scope const&) = delete;
  host_function_scope& operator=(host_function_scope const&) = delete;

 private:
  thread_state& me_;
  bool was_in_call_;
};

/// A destruction was refused: `mark(runtime&)` marks what a plan kept alive, for `reset` to end. Not what a host
/// function wanted to destroy, which the program still can.
template <class Mark>
void destroy_in_vain(Mark mark) {
  if (this_thread().in_host_function) return;
  runtime& r = state();
  std::lock_guard const lock(r.mutex);
  mark(r);
}

cudaError_t stream_query(cudaStream_t stream);
cudaError_t stream_synchronize(cudaStream_t stream);
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t stream_get_device(cudaStream_t stream, int* device);
cudaError_t stream_get_flags(cudaStream_t stream, unsigned* flags);
cudaError_t stream_get_id(cudaStream_t stream, unsigned long long* id);
cudaError_t stream_get_priority(cudaStream_t stream, int* priority);
cudaError_t stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t stream_begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t stream_end_capture(cudaStream_t stream, cudaGraph_t* graph);
/// `nodes`: the caller also asks for the nodes that the stream's next one depends on.
cudaError_t stream_get_capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                    cudaGraph_t* graph, bool nodes);
cudaError_t graph_launch(cudaGraphExec_t execution, cudaStream_t stream);
cudaError_t launch_host_function(cudaStream_t stream, cudaHostFn_t function, void* data);
/// `handle` is what the callback is told, `stream` the stream it is put into.
cudaError_t add_callback(cudaStream_t handle, cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                         unsigned flags);

cudaError_t event_record(call which, cudaEvent_t event, cudaStream_t stream, unsigned flags);

/// What calls that allocate without a stream have in common. No bytes give null.
cudaError_t allocate(call which, void** p, std::size_t bytes, memory_kind kind, bool valid_arguments,
                     unsigned flags = 0);

cudaError_t malloc_async(void** p, std::size_t bytes, cudaStream_t stream);
cudaError_t malloc_from_pool_async(void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
cudaError_t free_async(void* p, cudaStream_t stream);
/// `device` is -1 for the host.
inline constexpr int no_device = -2;
int device_at(cudaMemLocation location);
cudaError_t prefetch(void const* p, std::size_t bytes, int device, unsigned flags, cudaStream_t stream);
cudaError_t attach(cudaStream_t stream, void* p, std::size_t bytes, unsigned flags);

}  // namespace weir::sim::detail
