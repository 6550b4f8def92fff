#pragma once
// The calls that there are, of the runtime and of the driver, internal: their names, their numbers, and how often each
// was made.

#include "model/vector_clock.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace weir::sim::detail {

/// The calls that are counted. To use a name that is not here does not compile.
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
    "cudaDeviceSetLimit",
    "cudaDeviceGetLimit",
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
    "cudaMemRangeGetAttribute",
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
    "cuInit",
    "cuDeviceGetName",
    "cuDeviceTotalMem",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxSetFlags",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuCtxGetCurrent",
    "cuStreamGetCtx",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid",
    "cuMemGetAddressRange",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAccess",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemRetainAllocationHandle",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaFuncSetCacheConfig",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaOccupancyAvailableDynamicSMemPerBlock",
    "cudaDeviceGetPCIBusId",
    "cudaDeviceGetByPCIBusId",
    "cudaProfilerStart",
    "cudaProfilerStop",
    "cudaGraphGetNodes",
    "cudaGraphNodeGetType",
    "cudaGraphAddEmptyNode",
    "cudaGraphDebugDotPrint",
    "cudaGraphGetRootNodes",
    "cudaGraphNodeGetDependencies",
    "cudaGraphNodeGetDependentNodes",
    "cudaDeviceGetGraphMemAttribute",
    "cudaDeviceSetGraphMemAttribute",
    "cudaDeviceGraphMemTrim",
    "cudaStreamUpdateCaptureDependencies",
    "cudaStreamBeginCaptureToGraph",
    "cudaGraphAddNode",
    "cudaGraphConditionalHandleCreate",
    "cudaUserObjectCreate",
    "cudaUserObjectRelease",
    "cudaGraphRetainUserObject",
    "cudaGetSymbolAddress",
    "cudaMemcpyToSymbol",
    "cudaKernelSetAttributeForDevice",
    "cudaLibraryLoadData",
    "cudaLibraryLoadFromFile",
    "cudaLibraryUnload",
    "cudaLibraryGetKernel",
    "cudaLibraryGetKernelCount",
    "cudaLibraryGetGlobal",
    "cudaLibraryGetManaged",
    "cudaLibraryGetUnifiedFunction",
};
inline constexpr std::size_t call_count = std::size(call_names);

/// What else the check of order names in its reports.
inline constexpr std::string_view other_names[] = {"sim::touch", "sim::host_access", "checked_blocks::allocated",
                                                   "checked_blocks::freed"};

/// The number of a name in reports; does not compile for a name that is in neither list.
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

/// The calls, by how their names begin, in which host functions may run in random and pct mode: those that wait, that
/// ask whether a stream is done, or that put work into one. A library may make the other calls under a lock that a host
/// function takes as well; on a GPU that works, as host functions have a thread of their own.
inline constexpr std::string_view calls_with_host_functions[] = {
    "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize",
    "cudaStreamQuery",       "cudaLaunchHostFunc",   "cudaStreamAddCallback",
    "cudaGraphLaunch",       "cudaMemcpy",           "cudaMemset",
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

/// How often each call was made since `reset_counters`.
extern std::atomic<std::uint64_t> call_counters[call_count];

/// The error that every call returns by now; success if there is none.
extern std::atomic<cudaError_t> sticky_code;
inline cudaError_t sticky_error() { return sticky_code.load(std::memory_order_relaxed); }

}  // namespace weir::sim::detail
