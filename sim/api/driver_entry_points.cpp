// Functions of the driver, asked for by name. Found are those of virtual memory, and what CCCL's streams, events,
// buffers and memory pools call.

#include "api/driver_as_runtime.hpp"
#include "api/driver_functions.hpp"
#include "api/driver_lookup.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"

#include <cstdint>
#include <string_view>

namespace weir::sim::detail {
namespace {

void* any_pointer(CUdeviceptr p) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p)); }
void* any_pointer(void const* p) { return const_cast<void*>(p); }

struct driver_function {
  std::string_view name;
  unsigned since;  // the version of CUDA that brought it, or this form of it
  void* legacy;    // where handle 0 is the legacy default stream
  void* per_thread;
};

template <class Function>
driver_function since(unsigned version, std::string_view name, Function* legacy, Function* per_thread) {
  return {name, version, reinterpret_cast<void*>(legacy), reinterpret_cast<void*>(per_thread)};
}
template <class Function>
driver_function since(unsigned version, std::string_view name, Function* function) {
  return since(version, name, function, function);
}
template <auto Runtime, class Function>
driver_function same(unsigned version, std::string_view name) {
  return since(version, name, same_as<Runtime, Function, false>::call, same_as<Runtime, Function, true>::call);
}
// The driver's type is that of the newest form of the name, as cuda.h has it.
#define WEIR_SAME(version, name, runtime) same<runtime, decltype(::name)>(version, #name)

// The runtime answers a request for no bytes with null, the driver refuses it.
CUresult mem_alloc(CUdeviceptr* at, std::size_t bytes) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return in_driver([&] { return cudaMalloc(reinterpret_cast<void**>(at), bytes); });
}
CUresult mem_alloc_managed(CUdeviceptr* at, std::size_t bytes, unsigned flags) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return in_driver([&] { return cudaMallocManaged(reinterpret_cast<void**>(at), bytes, flags); });
}

// With a stream, and none of the runtime's.
template <bool PerThread>
CUresult memcpy_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return memcpy_any_async(to, from, bytes, stream_of<PerThread>(stream));
}
#if CUDA_VERSION >= 13000
template <bool PerThread>
CUresult memcpy_batch_async_v2(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                               CUmemcpyAttributes* how, std::size_t* begins, std::size_t kinds, CUstream stream) {
  return memcpy_batch_async({to, from, bytes, count, how, begins, kinds}, stream_of<PerThread>(stream));
}
#endif
template <bool PerThread>
CUresult memset_d16_async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  return memset_16_async(to, value, count, stream_of<PerThread>(stream));
}
template <bool PerThread>
CUresult memset_d32_async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return memset_32_async(to, value, count, stream_of<PerThread>(stream));
}
template <bool PerThread>
CUresult stream_write_32(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags) {
  if ((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) != 0) return CUDA_ERROR_INVALID_VALUE;
  return memset_32_async(to, value, 1, stream_of<PerThread>(stream));
}

// Copies whose direction is in the name.
template <cudaMemcpyKind Kind, class To, class From>
CUresult copy_now(To to, From from, std::size_t bytes) {
  return in_driver([&] { return cudaMemcpy(any_pointer(to), any_pointer(from), bytes, Kind); });
}
template <bool PerThread, cudaMemcpyKind Kind, class To, class From>
CUresult copy_async(To to, From from, std::size_t bytes, CUstream stream) {
  cudaStream_t const on = stream_of<PerThread>(stream);
  return in_driver([&] { return cudaMemcpyAsync(any_pointer(to), any_pointer(from), bytes, Kind, on); });
}
template <cudaMemcpyKind Kind, class To, class From>
driver_function copy_async_since(unsigned version, std::string_view name) {
  return since(version, name, copy_async<false, Kind, To, From>, copy_async<true, Kind, To, From>);
}
CUresult memset_d32(CUdeviceptr to, unsigned value, std::size_t count) {
  CUresult const code = memset_32_async(to, value, count, cudaStreamLegacy);
  return code != CUDA_SUCCESS ? code : in_driver([] { return cudaStreamSynchronize(cudaStreamLegacy); });
}

template <bool PerThread>
CUresult stream_get_ctx(CUstream stream, CUcontext* context) {
  return stream_get_context(stream_of<PerThread>(stream), context);
}
#if CUDA_VERSION >= 12050
// There are no green contexts.
template <bool PerThread>
CUresult stream_get_ctx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  CUresult const code = stream_get_context(stream_of<PerThread>(stream), context);
  if (code == CUDA_SUCCESS && green != nullptr) *green = nullptr;
  return code;
}
#endif

/// The newest form of a function up to a version; null if there is none so old, and `is_known` says if any is newer.
driver_function const* find_driver_function(std::string_view name, unsigned version, bool& is_known) {
  static driver_function const all[] = {
    since(2000, "cuInit", init),
    since(6000, "cuGetErrorName", get_error_name),
    since(6000, "cuGetErrorString", get_error_string),
    WEIR_SAME(2020, cuDriverGetVersion, cudaDriverGetVersion),

    since(2000, "cuDeviceGet", device_get),
    since(2000, "cuDeviceGetAttribute", device_get_attribute),
    since(2000, "cuDeviceGetName", device_get_name),
    since(3020, "cuDeviceTotalMem", device_total_memory),
    WEIR_SAME(2000, cuDeviceGetCount, cudaGetDeviceCount),
    WEIR_SAME(4000, cuDeviceCanAccessPeer, cudaDeviceCanAccessPeer),
    WEIR_SAME(8000, cuDeviceGetP2PAttribute, cudaDeviceGetP2PAttribute),
    WEIR_SAME(4010, cuDeviceGetPCIBusId, cudaDeviceGetPCIBusId),
    WEIR_SAME(4010, cuDeviceGetByPCIBusId, cudaDeviceGetByPCIBusId),
    since(9020, "cuDeviceGetUuid", device_get_uuid),

    since(7000, "cuDevicePrimaryCtxRetain", primary_context_retain),
    since(7000, "cuDevicePrimaryCtxRelease", primary_context_release),
    since(7000, "cuDevicePrimaryCtxGetState", primary_context_get_state),
    since(4000, "cuCtxPushCurrent", context_push),
    since(4000, "cuCtxPopCurrent", context_pop),
    since(4000, "cuCtxGetCurrent", context_get_current),
    since(4000, "cuCtxSetCurrent", context_set_current),
    since(7000, "cuDevicePrimaryCtxSetFlags", primary_context_set_flags),
    WEIR_SAME(3010, cuCtxSetLimit, cudaDeviceSetLimit),
    WEIR_SAME(3010, cuCtxGetLimit, cudaDeviceGetLimit),
    WEIR_SAME(2000, cuCtxGetDevice, cudaGetDevice),
    WEIR_SAME(2000, cuCtxSynchronize, cudaDeviceSynchronize),
    WEIR_SAME(5050, cuCtxGetStreamPriorityRange, cudaDeviceGetStreamPriorityRange),

    WEIR_SAME(2000, cuStreamCreate, cudaStreamCreateWithFlags),
    WEIR_SAME(5050, cuStreamCreateWithPriority, cudaStreamCreateWithPriority),
    WEIR_SAME(4000, cuStreamDestroy, cudaStreamDestroy),
    WEIR_SAME(2000, cuStreamSynchronize, cudaStreamSynchronize),
    WEIR_SAME(2000, cuStreamQuery, cudaStreamQuery),
    WEIR_SAME(3020, cuStreamWaitEvent, cudaStreamWaitEvent),
    WEIR_SAME(5050, cuStreamGetPriority, cudaStreamGetPriority),
    WEIR_SAME(5050, cuStreamGetFlags, cudaStreamGetFlags),
    WEIR_SAME(12000, cuStreamGetId, cudaStreamGetId),
    WEIR_SAME(10000, cuLaunchHostFunc, cudaLaunchHostFunc),
    WEIR_SAME(5000, cuStreamAddCallback, cudaStreamAddCallback),
    since(9020, "cuStreamGetCtx", stream_get_ctx<false>, stream_get_ctx<true>),
#if CUDA_VERSION >= 12050
    since(12050, "cuStreamGetCtx", stream_get_ctx_v2<false>, stream_get_ctx_v2<true>),
#endif
#if CUDA_VERSION >= 12080
    WEIR_SAME(12080, cuStreamGetDevice, cudaStreamGetDevice),
#endif

    WEIR_SAME(10000, cuStreamIsCapturing, cudaStreamIsCapturing),
    WEIR_SAME(10010, cuStreamBeginCapture, cudaStreamBeginCapture),
    WEIR_SAME(10000, cuStreamEndCapture, cudaStreamEndCapture),
    since(8000, "cuStreamWriteValue32", stream_write_32<false>, stream_write_32<true>),

    WEIR_SAME(2000, cuEventCreate, cudaEventCreateWithFlags),
    WEIR_SAME(4000, cuEventDestroy, cudaEventDestroy),
    WEIR_SAME(2000, cuEventRecord, cudaEventRecord),
    WEIR_SAME(2000, cuEventQuery, cudaEventQuery),
    WEIR_SAME(2000, cuEventSynchronize, cudaEventSynchronize),
    WEIR_SAME(2000, cuEventElapsedTime, cudaEventElapsedTime),

    since(3020, "cuMemAlloc", mem_alloc),
    WEIR_SAME(3020, cuMemFree, cudaFree),
    WEIR_SAME(3020, cuMemAllocHost, cudaMallocHost),
    WEIR_SAME(2000, cuMemFreeHost, cudaFreeHost),
    WEIR_SAME(2000, cuMemHostAlloc, cudaHostAlloc),
    WEIR_SAME(4000, cuMemHostRegister, cudaHostRegister),
    WEIR_SAME(4000, cuMemHostUnregister, cudaHostUnregister),
    WEIR_SAME(3020, cuMemHostGetDevicePointer, cudaHostGetDevicePointer),
    WEIR_SAME(2030, cuMemHostGetFlags, cudaHostGetFlags),
    since(6000, "cuMemAllocManaged", mem_alloc_managed),
    WEIR_SAME(3020, cuMemGetInfo, cudaMemGetInfo),
    since(3020, "cuMemGetAddressRange", mem_get_address_range),
    WEIR_SAME(3020, cuMemsetD8, cudaMemset),
    since(3020, "cuMemsetD32", memset_d32),
    WEIR_SAME(3020, cuMemsetD8Async, cudaMemsetAsync),
    since(3020, "cuMemsetD16Async", memset_d16_async<false>, memset_d16_async<true>),
    since(3020, "cuMemsetD32Async", memset_d32_async<false>, memset_d32_async<true>),
    since(4000, "cuMemcpy", copy_now<cudaMemcpyDefault, CUdeviceptr, CUdeviceptr>),
    since(3020, "cuMemcpyHtoD", copy_now<cudaMemcpyHostToDevice, CUdeviceptr, void const*>),
    since(3020, "cuMemcpyDtoH", copy_now<cudaMemcpyDeviceToHost, void*, CUdeviceptr>),
    since(3020, "cuMemcpyDtoD", copy_now<cudaMemcpyDeviceToDevice, CUdeviceptr, CUdeviceptr>),
    copy_async_since<cudaMemcpyHostToDevice, CUdeviceptr, void const*>(3020, "cuMemcpyHtoDAsync"),
    copy_async_since<cudaMemcpyDeviceToHost, void*, CUdeviceptr>(3020, "cuMemcpyDtoHAsync"),
    copy_async_since<cudaMemcpyDeviceToDevice, CUdeviceptr, CUdeviceptr>(3020, "cuMemcpyDtoDAsync"),
    since(4000, "cuMemcpyAsync", memcpy_async<false>, memcpy_async<true>),
#if CUDA_VERSION >= 13000
    since(13000, "cuMemcpyBatchAsync", memcpy_batch_async_v2<false>, memcpy_batch_async_v2<true>),
#endif
    since(4000, "cuPointerGetAttribute", pointer_get_attribute),
    since(7000, "cuPointerGetAttributes", pointer_get_attributes),

    WEIR_SAME(11020, cuMemPoolCreate, cudaMemPoolCreate),
    WEIR_SAME(11020, cuMemPoolDestroy, cudaMemPoolDestroy),
    WEIR_SAME(11020, cuMemPoolSetAttribute, cudaMemPoolSetAttribute),
    WEIR_SAME(11020, cuMemPoolGetAttribute, cudaMemPoolGetAttribute),
    WEIR_SAME(11020, cuMemPoolTrimTo, cudaMemPoolTrimTo),
    WEIR_SAME(11020, cuMemPoolSetAccess, cudaMemPoolSetAccess),
    WEIR_SAME(11020, cuMemPoolGetAccess, cudaMemPoolGetAccess),
    WEIR_SAME(11020, cuDeviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool),
    WEIR_SAME(11020, cuDeviceGetMemPool, cudaDeviceGetMemPool),
    WEIR_SAME(11020, cuDeviceSetMemPool, cudaDeviceSetMemPool),
#if CUDA_VERSION >= 13000
    WEIR_SAME(13000, cuMemGetDefaultMemPool, cudaMemGetDefaultMemPool),
#endif
    WEIR_SAME(11020, cuMemAllocAsync, cudaMallocAsync),
    WEIR_SAME(11020, cuMemAllocFromPoolAsync, cudaMallocFromPoolAsync),
    WEIR_SAME(11020, cuMemFreeAsync, cudaFreeAsync),

    since(10020, "cuMemAddressReserve", mem_address_reserve),
    since(10020, "cuMemAddressFree", mem_address_free),
    since(10020, "cuMemCreate", mem_create),
    since(10020, "cuMemRelease", mem_release),
    since(10020, "cuMemMap", mem_map),
    since(10020, "cuMemUnmap", mem_unmap),
    since(10020, "cuMemSetAccess", mem_set_access),
    since(10020, "cuMemGetAccess", mem_get_access),
    since(10020, "cuMemGetAllocationGranularity", mem_get_allocation_granularity),
    since(10020, "cuMemGetAllocationPropertiesFromHandle", mem_get_allocation_properties_from_handle),
    since(11000, "cuMemRetainAllocationHandle", mem_retain_allocation_handle),
    since(10020, "cuMemExportToShareableHandle", mem_export_to_shareable_handle),
    since(10020, "cuMemImportFromShareableHandle", mem_import_from_shareable_handle),
  };
  driver_function const* newest = nullptr;
  is_known = false;
  for (driver_function const& f : all) {
    if (f.name != name) continue;
    is_known = true;
    if (f.since <= version && (newest == nullptr || f.since > newest->since)) newest = &f;
  }
  return newest;
}

void* form_of(driver_function const* found, bool per_thread) {
  return found == nullptr ? nullptr : per_thread ? found->per_thread : found->legacy;
}

}  // namespace

void* driver_function_of(std::string_view name, unsigned version, bool per_thread) {
  bool is_known = false;
  driver_function const* const found = find_driver_function(name, version, is_known);
  return form_of(found, per_thread);
}

cudaError_t driver_entry_point(call which, char const* symbol, void** function, unsigned version,
                               unsigned long long flags, cudaDriverEntryPointQueryResult* result) {
  return api(which, [=](runtime&, held_lock&) {
    bool const known_flags =
        flags == cudaEnableDefault || flags == cudaEnableLegacyStream || flags == cudaEnablePerThreadDefaultStream;
    if (symbol == nullptr || std::string_view(symbol).empty() || function == nullptr || !known_flags)
      return cudaErrorInvalidValue;
    if (version > CUDART_VERSION) return cudaErrorInvalidValue;  // newer than what `cudaDriverGetVersion` says
    bool is_known = false;
    driver_function const* const found = find_driver_function(symbol, version, is_known);
    bool const per_thread = flags == cudaEnablePerThreadDefaultStream;
    *function = form_of(found, per_thread);
    if (result != nullptr)
      *result = found != nullptr ? cudaDriverEntryPointSuccess
                : is_known       ? cudaDriverEntryPointVersionNotSufficent
                                 : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
