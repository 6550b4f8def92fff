#pragma once
// Probes: error codes, and the last error of a thread. Sources are the comments of cuda_runtime_api.h, unless named.

#include "probe.hpp"

#include <cstdint>
#include <cstring>
#include <thread>

namespace probes {

// cudaGetLastError "resets it to cudaSuccess", cudaPeekAtLastError "does not reset".
inline void last_error_is_taken_once(verdict& v) {
  v.code("cudaSetDevice(-1)", cudaSetDevice(-1), cudaErrorInvalidDevice);
  v.code("peek", cudaPeekAtLastError(), cudaErrorInvalidDevice);
  v.code("get", cudaGetLastError(), cudaErrorInvalidDevice);
  v.code("get again", cudaGetLastError(), cudaSuccess);
}

// "The last error that has been produced by any of the runtime calls": success is none.
inline void last_error_survives_success(verdict& v) {
  v.code("cudaSetDevice(-1)", cudaSetDevice(-1), cudaErrorInvalidDevice);
  v.ok("cudaSetDevice(0)", cudaSetDevice(0));
  v.code("get", cudaGetLastError(), cudaErrorInvalidDevice);
}

inline void later_error_replaces_the_last_one(verdict& v) {
  v.code("cudaSetDevice(-1)", cudaSetDevice(-1), cudaErrorInvalidDevice);
  v.code("cudaMalloc(null)", cudaMalloc(static_cast<void**>(nullptr), 1), cudaErrorInvalidValue);
  v.code("get", cudaGetLastError(), cudaErrorInvalidValue);
}

// "... in the host thread".
inline void last_error_is_the_threads_own(verdict& v) {
  v.code("cudaSetDevice(-1)", cudaSetDevice(-1), cudaErrorInvalidDevice);
  cudaError_t others = cudaErrorUnknown;
  std::thread([&] { others = cudaPeekAtLastError(); }).join();
  v.code("another thread's", others, cudaSuccess);
}

// PyTorch clears it after cudaEventQuery, "ignore and clear the error if not ready". CUDA 13.0 with driver 580 leaves
// none; the simulated runtime does, since a program that clears it is right on both.
inline void not_ready_may_be_a_last_error(verdict& v) {
  stream const s;
  gate g(v, s);
  v.code("query", cudaStreamQuery(s), cudaErrorNotReady);
  v.code("get", cudaGetLastError(), {cudaErrorNotReady, cudaSuccess});
}

// The allocation fails, the device does not: cudaErrorMemoryAllocation "unable to allocate enough memory".
inline void out_of_memory_is_no_end(verdict& v) {
  void* p = nullptr;
  v.code("cudaMalloc of everything", cudaMalloc(&p, SIZE_MAX / 2), cudaErrorMemoryAllocation);
  v.code("get", cudaGetLastError(), cudaErrorMemoryAllocation);
  v.ok("cudaMalloc after it", cudaMalloc(&p, 256));
  v.ok("cudaFree", cudaFree(p));
}

inline void stream_ordered_out_of_memory_is_no_end(verdict& v) {
  stream const s;
  void* p = nullptr;
  v.code("cudaMallocAsync of everything", cudaMallocAsync(&p, SIZE_MAX / 2, s), cudaErrorMemoryAllocation);
  v.ok("cudaMallocAsync after it", cudaMallocAsync(&p, 256, s));
  v.ok("cudaFreeAsync", cudaFreeAsync(p, s));
}

// "Valid device id's are 0 to (cudaGetDeviceCount() - 1)."
inline void wrong_device_changes_nothing(verdict& v) {
  int count = 0;
  v.ok("cudaGetDeviceCount", cudaGetDeviceCount(&count));
  v.code("cudaSetDevice(count)", cudaSetDevice(count), cudaErrorInvalidDevice);
  int device = -1;
  v.ok("cudaGetDevice", cudaGetDevice(&device));
  v.equal("the device", device, 0);
  v.code("cudaDeviceGetAttribute of it", cudaDeviceGetAttribute(&device, cudaDevAttrWarpSize, count),
         cudaErrorInvalidDevice);
}

inline void results_need_a_place(verdict& v) {
  v.code("cudaMalloc", cudaMalloc(static_cast<void**>(nullptr), 1), cudaErrorInvalidValue);
  v.code("cudaGetDevice", cudaGetDevice(nullptr), cudaErrorInvalidValue);
  v.code("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(nullptr, 0), cudaErrorInvalidValue);
  v.code("cudaEventCreateWithFlags", cudaEventCreateWithFlags(nullptr, 0), cudaErrorInvalidValue);
  v.code("cudaPointerGetAttributes", cudaPointerGetAttributes(nullptr, nullptr), cudaErrorInvalidValue);
}

// cudaGetErrorName: "If the error code is not recognized, "unrecognized error code" is returned."
inline void codes_have_names(verdict& v) {
  auto const named = [&](cudaError_t code, char const* name) {
    v.yes(name, std::strcmp(cudaGetErrorName(code), name) == 0);
  };
  named(cudaSuccess, "cudaSuccess");
  named(cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation");
  named(cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle");
  named(cudaErrorNotReady, "cudaErrorNotReady");
  named(static_cast<cudaError_t>(12345), "unrecognized error code");
  v.yes("out of memory", std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
}

// cudaLaunchHostFunc: "Attempting to use a CUDA API may result in cudaErrorNotPermitted, but this is not required."
inline void host_functions_may_not_call(verdict& v) {
  stream const s;
  cudaError_t inside = cudaErrorUnknown;
  auto const call = [](void* found) {
    int device = 0;
    *static_cast<cudaError_t*>(found) = cudaGetDevice(&device);
  };
  v.ok("launch", cudaLaunchHostFunc(s, call, &inside));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.code("inside", inside, {cudaErrorNotPermitted, cudaSuccess});
  v.ok("the last error of the thread that waited", cudaGetLastError());
}

inline constexpr probe error_probes[] = {
    {"last_error_is_taken_once", needs::nothing, &last_error_is_taken_once},
    {"last_error_survives_success", needs::nothing, &last_error_survives_success},
    {"later_error_replaces_the_last_one", needs::nothing, &later_error_replaces_the_last_one},
    {"last_error_is_the_threads_own", needs::nothing, &last_error_is_the_threads_own},
    {"not_ready_may_be_a_last_error", needs::pending_work, &not_ready_may_be_a_last_error},
    {"out_of_memory_is_no_end", needs::nothing, &out_of_memory_is_no_end},
    {"stream_ordered_out_of_memory_is_no_end", needs::nothing, &stream_ordered_out_of_memory_is_no_end},
    {"wrong_device_changes_nothing", needs::nothing, &wrong_device_changes_nothing},
    {"results_need_a_place", needs::nothing, &results_need_a_place},
    {"codes_have_names", needs::nothing, &codes_have_names},
    {"host_functions_may_not_call", needs::nothing, &host_functions_may_not_call},
};

}  // namespace probes
