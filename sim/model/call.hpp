#pragma once
// What every runtime call does first, internal: it is counted, it may be told to fail, and then it has the state to
// itself.

#include "model/state.hpp"

#include <atomic>
#include <new>
#include <string_view>

namespace weir::sim::detail {

/// The calls that count. A call that is not here does not compile; a call that nobody defines does not link.
inline constexpr std::string_view call_names[] = {
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaGetDeviceCount",
    "cudaDeviceGetAttribute",
    "cudaGetDeviceProperties",
    "cudaDeviceSynchronize",
    "cudaDeviceReset",
    "cudaDeviceGetStreamPriorityRange",
    "cudaMemGetInfo",
    "cudaInitDevice",
    "cudaSetDeviceFlags",
    "cudaGetDeviceFlags",
    "cudaDeviceCanAccessPeer",
    "cudaDeviceEnablePeerAccess",
    "cudaDeviceDisablePeerAccess",
    "cudaDeviceGetP2PAttribute",
    "cudaDeviceGetDefaultMemPool",
    "cudaDeviceGetMemPool",
    "cudaDeviceSetMemPool",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaMallocHost",
    "cudaFreeHost",
    "cudaMallocManaged",
    "cudaMallocPitch",
    "cudaMalloc3D",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaHostGetDevicePointer",
    "cudaHostGetFlags",
    "cudaPointerGetAttributes",
    "cudaMemPrefetchAsync",
    "cudaMemAdvise",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpy2D",
    "cudaMemcpy2DAsync",
    "cudaMemcpyPeer",
    "cudaMemcpyPeerAsync",
    "cudaMemcpy3D",
    "cudaMemcpy3DAsync",
    "cudaMemcpy3DPeer",
    "cudaMemcpy3DPeerAsync",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaMemset2D",
    "cudaMemset2DAsync",
    "cudaMemset3D",
    "cudaMemset3DAsync",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaFreeAsync",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolGetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMemPoolSetAccess",
    "cudaMemPoolGetAccess",
    "cudaMemPoolExportToShareableHandle",
    "cudaMemPoolImportFromShareableHandle",
    "cudaMemPoolExportPointer",
    "cudaMemPoolImportPointer",
    "cudaMemGetDefaultMemPool",
    "cudaMemGetMemPool",
    "cudaMemSetMemPool",
    "cudaIpcGetMemHandle",
    "cudaIpcOpenMemHandle",
    "cudaIpcCloseMemHandle",
    "cudaIpcGetEventHandle",
    "cudaIpcOpenEventHandle",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
    "cudaStreamQuery",
    "cudaStreamWaitEvent",
    "cudaStreamGetId",
    "cudaStreamGetFlags",
    "cudaStreamGetDevice",
    "cudaStreamGetPriority",
    "cudaStreamIsCapturing",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cudaStreamGetCaptureInfo",
    "cudaThreadExchangeStreamCaptureMode",
    "cudaGraphInstantiate",
    "cudaGraphInstantiateWithFlags",
    "cudaGraphLaunch",
    "cudaGraphExecDestroy",
    "cudaGraphDestroy",
    "cudaLaunchHostFunc",
    "cudaStreamAddCallback",
    "cudaStreamAttachMemAsync",
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPointByVersion",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaFuncSetCacheConfig",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaOccupancyAvailableDynamicSMemPerBlock",
};
inline constexpr std::size_t call_count = std::size(call_names);

/// What else the check of order names in its reports.
inline constexpr std::string_view other_names[] = {"sim::touch", "sim::host_access", "checked_blocks::allocated",
                                                   "checked_blocks::freed"};

/// The number that reports know a name by; does not compile for another name.
consteval call_number number_of(std::string_view name) {
  call_number n = 1;
  for (std::string_view const known : call_names) {
    if (known == name) return n;
    ++n;
  }
  for (std::string_view const known : other_names) {
    if (known == name) return n;
    ++n;
  }
  throw "no such name";
}

/// While one lives, what the thread does is done by that call.
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

/// Calls in which host functions may run as time passes: those that wait, that ask whether a stream is done, or that
/// put work into one. All else may come from a library that allocates under a lock of its own, which a host function
/// may want too. On a GPU that is no matter, as host functions have a thread to themselves.
inline constexpr std::string_view calls_with_host_functions[] = {
    "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize",
    "cudaStreamQuery",       "cudaLaunchHostFunc",   "cudaStreamAddCallback",
    "cudaGraphLaunch",       "cudaMemcpy",           "cudaMemset",  // and all that begin so
};

/// A name of the list above, turned into its number by the compiler.
class call {
 public:
  consteval call(char const* name) : index_(find(name)) {
    for (std::string_view const begin : calls_with_host_functions)
      runs_host_functions_ = runs_host_functions_ || call_names[index_].substr(0, begin.size()) == begin;
  }
  std::size_t index() const { return index_; }
  call_number number() const { return static_cast<call_number>(index_ + 1); }
  bool runs_host_functions() const { return runs_host_functions_; }

  /// `call_count` if there is no such call.
  static constexpr std::size_t find(std::string_view name) {
    std::size_t i = 0;
    while (i < call_count && call_names[i] != name) ++i;
    return i;
  }

 private:
  std::size_t index_;
  bool runs_host_functions_ = false;
};

extern std::atomic<std::uint64_t> call_counters[call_count];
extern std::atomic<std::uint64_t> simulated_nanoseconds;

/// The number of the call of that name; throws `std::invalid_argument` that says who asked if there is none.
std::size_t index_of(char const* who, char const* name);

/// Whether a call may have to fail or costs time; while none does, a call pays for one look at this.
extern std::atomic<bool> calls_have_plans;
/// What the plans (plans.cpp) want of this call: success, or the code that it must return.
cudaError_t follow_plans(call which);

/// In random and pct mode: time passes, and some of the queued work that may run does (chance.cpp); of host functions
/// only what may run in such a call.
enum class host_functions { wait, may_run };
void let_time_pass(runtime& r, held_lock& held, host_functions theirs);
void let_time_pass(runtime& r, held_lock& held, call which);
inline bool time_passes(mode how) { return how == mode::random || how == mode::pct; }

/// While one lives, the thread works for the stand-in, except in host functions: so that a test that lets host memory
/// run out can leave the stand-in alone.
class in_call {
 public:
  explicit in_call(thread_state& me) : me_(me) { me_.in_call = true; }
  ~in_call() { me_.in_call = false; }
  in_call(in_call const&) = delete;
  in_call& operator=(in_call const&) = delete;

 private:
  thread_state& me_;
};

/// Every runtime call that counts goes through here. `body(runtime&, held_lock&)` returns the call's code.
template <class Body>
cudaError_t api(call which, Body&& body) {
  own_work const not_the_streams;
  thread_state& me = this_thread();
  call_counters[which.index()].fetch_add(1, std::memory_order_relaxed);
  cudaError_t code = cudaSuccess;
  if (calls_have_plans.load(std::memory_order_relaxed)) [[unlikely]]
    code = follow_plans(which);
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
  if (code != cudaSuccess) [[unlikely]]
    me.last_error = code;
  return code;
}

}  // namespace weir::sim::detail
