#pragma once
// Probes: the driver's functions that libraries find by name for streams, events, memory and pools. Answers are in the
// comments of cuda.h. Each probe first uses the runtime, so that a context is current.

#include "driver_function.hpp"
#include "probe.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace probes {

// Driver and runtime number their errors alike.
inline cudaError_t runtimes(CUresult code) { return static_cast<cudaError_t>(code); }

inline void use_the_runtime(verdict& v) { v.ok("cudaFree of null", cudaFree(nullptr)); }

/// A primary context that the probe keeps.
class primary_context {
 public:
  primary_context(verdict& v, int device) : device_(device) {
    use_the_runtime(v);
    v.ok("cuDevicePrimaryCtxRetain", runtimes(WEIR_DRIVER_FUNCTION(cuDevicePrimaryCtxRetain)(&handle_, device)));
  }
  ~primary_context() { static_cast<void>(WEIR_DRIVER_FUNCTION(cuDevicePrimaryCtxRelease)(device_)); }
  primary_context(primary_context const&) = delete;
  primary_context& operator=(primary_context const&) = delete;
  operator CUcontext() const { return handle_; }

 private:
  int device_;
  CUcontext handle_ = nullptr;
};

/// Device memory of the driver's.
class driver_memory {
 public:
  driver_memory(verdict& v, std::size_t bytes) {
    use_the_runtime(v);
    v.ok("cuMemAlloc", runtimes(WEIR_DRIVER_FUNCTION(cuMemAlloc)(&at, bytes)));
  }
  ~driver_memory() { static_cast<void>(WEIR_DRIVER_FUNCTION(cuMemFree)(at)); }
  driver_memory(driver_memory const&) = delete;
  driver_memory& operator=(driver_memory const&) = delete;

  CUdeviceptr at = 0;
};

inline void driver_counts_the_same_devices(verdict& v) {
  use_the_runtime(v);
  int devices = 0, drivers = 0, version = 0, drivers_version = 0;
  v.ok("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  v.ok("cuInit", runtimes(WEIR_DRIVER_FUNCTION(cuInit)(0)));
  v.ok("cuDeviceGetCount", runtimes(WEIR_DRIVER_FUNCTION(cuDeviceGetCount)(&drivers)));
  v.equal("devices", drivers, devices);
  v.ok("cudaDriverGetVersion", cudaDriverGetVersion(&version));
  v.ok("cuDriverGetVersion", runtimes(WEIR_DRIVER_FUNCTION(cuDriverGetVersion)(&drivers_version)));
  v.equal("version", drivers_version, version);
  v.code("cuInit with a flag", runtimes(WEIR_DRIVER_FUNCTION(cuInit)(1)), cudaErrorInvalidValue);
}

inline void driver_knows_no_other_devices(verdict& v) {
  use_the_runtime(v);
  CUcontext context = nullptr;
  std::size_t bytes = 0;
  char name[8];
  constexpr int none = 1000;
  v.code("cuDevicePrimaryCtxRetain", runtimes(WEIR_DRIVER_FUNCTION(cuDevicePrimaryCtxRetain)(&context, none)),
         cudaErrorInvalidDevice);
  v.code("cuDeviceTotalMem", runtimes(WEIR_DRIVER_FUNCTION(cuDeviceTotalMem)(&bytes, none)), cudaErrorInvalidDevice);
  v.code("cuDeviceGetName", runtimes(WEIR_DRIVER_FUNCTION(cuDeviceGetName)(name, 8, none)), cudaErrorInvalidDevice);
}

inline void driver_says_names_and_sizes(verdict& v) {
  use_the_runtime(v);
  char name[8] = "-------";
  std::size_t bytes = 0, free_bytes = 0, total = 0;
  v.ok("cuDeviceGetName", runtimes(WEIR_DRIVER_FUNCTION(cuDeviceGetName)(name, 8, 0)));
  v.equal<int>("the last character of a name that is cut", name[7], 0);
  v.ok("cuDeviceTotalMem", runtimes(WEIR_DRIVER_FUNCTION(cuDeviceTotalMem)(&bytes, 0)));
  v.ok("cuMemGetInfo", runtimes(WEIR_DRIVER_FUNCTION(cuMemGetInfo)(&free_bytes, &total)));
  v.equal("total bytes", bytes, total);
  v.yes("free is at most total", free_bytes <= total);
}

inline void driver_contexts_are_a_stack(verdict& v) {
  primary_context const first(v, 0);
  CUcontext seen = nullptr;
  v.ok("cuCtxGetCurrent", runtimes(WEIR_DRIVER_FUNCTION(cuCtxGetCurrent)(&seen)));
  v.yes("the runtime's context is the primary one", seen == first);
  v.ok("cuCtxPushCurrent", runtimes(WEIR_DRIVER_FUNCTION(cuCtxPushCurrent)(first)));
  v.ok("cuCtxPopCurrent", runtimes(WEIR_DRIVER_FUNCTION(cuCtxPopCurrent)(&seen)));
  v.yes("what is popped was pushed", seen == first);
  unsigned flags = 0;
  int active = 0;
  v.ok("cuDevicePrimaryCtxGetState", runtimes(WEIR_DRIVER_FUNCTION(cuDevicePrimaryCtxGetState)(0, &flags, &active)));
  v.equal("active", active, 1);
}

inline void driver_context_is_the_runtimes_device(verdict& v) {
  primary_context const second(v, 1);
  int device = -1;
  v.ok("cuCtxPushCurrent", runtimes(WEIR_DRIVER_FUNCTION(cuCtxPushCurrent)(second)));
  v.ok("cudaGetDevice", cudaGetDevice(&device));
  v.equal("the runtime's device, pushed", device, 1);
  v.ok("cuCtxGetDevice", runtimes(WEIR_DRIVER_FUNCTION(cuCtxGetDevice)(&device)));
  v.equal("the driver's device, pushed", device, 1);
  CUcontext popped = nullptr;
  v.ok("cuCtxPopCurrent", runtimes(WEIR_DRIVER_FUNCTION(cuCtxPopCurrent)(&popped)));
  v.ok("cudaGetDevice", cudaGetDevice(&device));
  v.equal("the runtime's device, popped", device, 0);
}

inline void driver_stream_is_the_runtimes(verdict& v) {
  primary_context const context(v, 0);
  CUstream s = nullptr;
  v.ok("cuStreamCreateWithPriority",
       runtimes(WEIR_DRIVER_FUNCTION(cuStreamCreateWithPriority)(&s, CU_STREAM_NON_BLOCKING, 0)));
  unsigned long long id = 0, drivers_id = 0;
  v.ok("cudaStreamGetId", cudaStreamGetId(s, &id));
  v.ok("cuStreamGetId", runtimes(WEIR_DRIVER_FUNCTION(cuStreamGetId)(s, &drivers_id)));
  v.equal("id", drivers_id, id);
  CUcontext of = nullptr;
  using get_context = CUresult(CUstream, CUcontext*);
  v.ok("cuStreamGetCtx", runtimes(driver_function("cuStreamGetCtx", static_cast<get_context*>(nullptr))(s, &of)));
  v.yes("its context is its device's", of == context);
  int priority = 1;
  v.ok("cuStreamGetPriority", runtimes(WEIR_DRIVER_FUNCTION(cuStreamGetPriority)(s, &priority)));
  v.equal("priority", priority, 0);
  v.ok("cuStreamSynchronize", runtimes(WEIR_DRIVER_FUNCTION(cuStreamSynchronize)(s)));
  v.ok("cuStreamDestroy", runtimes(WEIR_DRIVER_FUNCTION(cuStreamDestroy)(s)));
}

inline void driver_events_order_streams(verdict& v) {
  use_the_runtime(v);
  stream const held, other;
  CUevent e = nullptr;
  v.ok("cuEventCreate", runtimes(WEIR_DRIVER_FUNCTION(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING)));
  {
    gate g(v, held);
    v.ok("cuEventRecord", runtimes(WEIR_DRIVER_FUNCTION(cuEventRecord)(e, held)));
    v.ok("cuStreamWaitEvent", runtimes(WEIR_DRIVER_FUNCTION(cuStreamWaitEvent)(other, e, 0)));
    v.code("cuEventQuery", runtimes(WEIR_DRIVER_FUNCTION(cuEventQuery)(e)), cudaErrorNotReady);
    v.code("cuStreamQuery", runtimes(WEIR_DRIVER_FUNCTION(cuStreamQuery)(other)), cudaErrorNotReady);
  }
  v.ok("cuStreamSynchronize", runtimes(WEIR_DRIVER_FUNCTION(cuStreamSynchronize)(other)));
  v.ok("cuEventSynchronize", runtimes(WEIR_DRIVER_FUNCTION(cuEventSynchronize)(e)));
  v.ok("cuEventDestroy", runtimes(WEIR_DRIVER_FUNCTION(cuEventDestroy)(e)));
}

// cudaEnablePerThreadDefaultStream: the search is for "the per-thread versions", where handle 0 is another stream.
inline void driver_functions_have_per_thread_forms(verdict& v) {
  use_the_runtime(v);
  unsigned long long id_of_legacy = 0, legacy = 0, per_thread = 0;
  v.ok("cudaStreamGetId", cudaStreamGetId(cudaStreamLegacy, &id_of_legacy));
  auto const ask = [&](unsigned long long flags, unsigned long long& id) {
    void* found = nullptr;
#if CUDART_VERSION >= 12050
    v.ok("it is found", cudaGetDriverEntryPointByVersion("cuStreamGetId", &found, 12000, flags, nullptr));
#else
    v.ok("it is found", cudaGetDriverEntryPoint("cuStreamGetId", &found, flags, nullptr));
#endif
    using get_id = CUresult(CUstream, unsigned long long*);
    v.ok("cuStreamGetId of 0", runtimes(reinterpret_cast<get_id*>(found)(nullptr, &id)));
  };
  ask(cudaEnableLegacyStream, legacy);
  ask(cudaEnablePerThreadDefaultStream, per_thread);
  v.equal("handle 0", legacy, id_of_legacy);
  v.no("handle 0 of a per-thread form is the legacy stream", per_thread == id_of_legacy);
}

inline void driver_sets_and_copies_elements(verdict& v) {
  driver_memory const memory(v, 16);
  stream const s;
  v.ok("cuMemsetD8Async", runtimes(WEIR_DRIVER_FUNCTION(cuMemsetD8Async)(memory.at, 7, 4, s)));
  v.ok("cuMemsetD16Async", runtimes(WEIR_DRIVER_FUNCTION(cuMemsetD16Async)(memory.at + 4, 0x0102, 2, s)));
  v.ok("cuMemsetD32Async", runtimes(WEIR_DRIVER_FUNCTION(cuMemsetD32Async)(memory.at + 8, 0x01020304, 2, s)));
  v.code("to an address that is no multiple of 4",
         runtimes(WEIR_DRIVER_FUNCTION(cuMemsetD32Async)(memory.at + 2, 0, 1, s)), cudaErrorInvalidValue);
  std::uint32_t got[4] = {};
  auto const to = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(got));
  v.ok("cuMemcpyAsync", runtimes(WEIR_DRIVER_FUNCTION(cuMemcpyAsync)(to, memory.at, sizeof got, s)));
  v.ok("synchronise", cudaStreamSynchronize(s));
  std::uint32_t const expected[4] = {0x07070707, 0x01020102, 0x01020304, 0x01020304};
  for (int i = 0; i < 4; ++i) v.equal("an element", got[i], expected[i]);
}

#if CUDA_VERSION >= 13000
inline void driver_copies_batches(verdict& v) {
  using copy = CUresult(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*,
                        std::size_t, CUstream);
  void* found = nullptr;
  v.ok("it is found",
       cudaGetDriverEntryPointByVersion("cuMemcpyBatchAsync", &found, 13000, cudaEnableDefault, nullptr));
  if (found == nullptr) return;  // an older driver
  auto* const batch = reinterpret_cast<copy*>(found);
  driver_memory const memory(v, 8);
  stream const s;
  std::uint32_t there[2] = {1, 2}, back[2] = {0, 0};
  auto const address = [](void* p) { return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(p)); };
  CUdeviceptr device[2] = {memory.at, memory.at + 4};
  CUdeviceptr from[2] = {address(&there[0]), address(&there[1])}, to[2] = {address(&back[0]), address(&back[1])};
  std::size_t bytes[2] = {4, 4}, begins[2] = {0, 1};
  CUmemcpyAttributes how[2] = {};
  how[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  how[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  v.ok("two copies, two kinds", runtimes(batch(device, from, bytes, 2, how, begins, 2, s)));
  v.ok("two copies, one kind", runtimes(batch(to, device, bytes, 2, &how[1], begins, 1, s)));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.equal<std::uint32_t>("the first", back[0], 1);
  v.equal<std::uint32_t>("the second", back[1], 2);
  v.code("no copies", runtimes(batch(device, from, bytes, 0, how, begins, 1, s)), cudaErrorInvalidValue);
  how[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  v.code("no order", runtimes(batch(device, from, bytes, 2, how, begins, 1, s)), cudaErrorInvalidValue);
  begins[0] = 1;
  v.code("a first copy without attributes", runtimes(batch(device, from, bytes, 2, &how[1], begins, 1, s)),
         cudaErrorInvalidValue);
}
#endif

inline void driver_knows_what_pointers_are(verdict& v) {
  driver_memory const memory(v, 16);
  unsigned type = 0;
  int device = -1;
  auto* const attribute = WEIR_DRIVER_FUNCTION(cuPointerGetAttribute);
  v.ok("the type", runtimes(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.at)));
  v.equal<unsigned>("the type", type, CU_MEMORYTYPE_DEVICE);
  v.ok("the device", runtimes(attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory.at)));
  v.equal("the device", device, 0);

  void* pinned = nullptr;
  v.ok("cuMemAllocHost", runtimes(WEIR_DRIVER_FUNCTION(cuMemAllocHost)(&pinned, 16)));
  auto const on_host = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(pinned));
  v.ok("the type of pinned memory", runtimes(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, on_host)));
  v.equal<unsigned>("the type of pinned memory", type, CU_MEMORYTYPE_HOST);
  v.ok("cuMemFreeHost", runtimes(WEIR_DRIVER_FUNCTION(cuMemFreeHost)(pinned)));
}

// cuPointerGetAttributes: "Unlike cuPointerGetAttribute, this function will not return an error when the ptr
// encountered is not a valid CUDA pointer".
inline void driver_answers_for_other_pointers(verdict& v) {
  use_the_runtime(v);
  int ours = 0;
  unsigned type = 77;
  auto const p = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(&ours));
  v.code("cuPointerGetAttribute",
         runtimes(WEIR_DRIVER_FUNCTION(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p)),
         cudaErrorInvalidValue);
  CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* to = &type;
  v.ok("cuPointerGetAttributes", runtimes(WEIR_DRIVER_FUNCTION(cuPointerGetAttributes)(1, &which, &to, p)));
  v.equal("the type", type, 0u);
}

inline void driver_pools_are_the_runtimes(verdict& v) {
  use_the_runtime(v);
  CUmemoryPool by_default = nullptr;
  cudaMemPool_t expected = nullptr;
  v.ok("cuDeviceGetDefaultMemPool", runtimes(WEIR_DRIVER_FUNCTION(cuDeviceGetDefaultMemPool)(&by_default, 0)));
  v.ok("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&expected, 0));
  v.yes("the default pool is one", by_default == expected);

  CUmemPoolProps wanted{};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  CUdeviceptr p = 0;
  stream const s;
  v.ok("cuMemPoolCreate", runtimes(WEIR_DRIVER_FUNCTION(cuMemPoolCreate)(&pool, &wanted)));
  cuuint64_t threshold = 12345, used = 0;
  v.ok("cuMemPoolSetAttribute",
       runtimes(WEIR_DRIVER_FUNCTION(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)));
  threshold = 0;
  v.ok("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  v.equal<cuuint64_t>("the threshold", threshold, 12345);
  v.ok("cuMemAllocFromPoolAsync", runtimes(WEIR_DRIVER_FUNCTION(cuMemAllocFromPoolAsync)(&p, 1000, pool, s)));
  v.ok("cuMemPoolGetAttribute",
       runtimes(WEIR_DRIVER_FUNCTION(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used)));
  v.yes("the pool counts what is in use", used >= 1000);
  v.ok("cuMemFreeAsync", runtimes(WEIR_DRIVER_FUNCTION(cuMemFreeAsync)(p, s)));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("cuMemPoolTrimTo", runtimes(WEIR_DRIVER_FUNCTION(cuMemPoolTrimTo)(pool, 0)));
  v.ok("cuMemPoolDestroy", runtimes(WEIR_DRIVER_FUNCTION(cuMemPoolDestroy)(pool)));
}

// "Finds information on memory allocations": the beginning and the size of that which a pointer lies in.
inline void driver_finds_where_memory_begins(verdict& v) {
  use_the_runtime(v);
  driver_memory const memory(v, 3000);
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  v.ok("cuMemGetAddressRange", runtimes(WEIR_DRIVER_FUNCTION(cuMemGetAddressRange)(&begin, &bytes, memory.at + 1000)));
  v.equal<std::uint64_t>("the beginning", begin, memory.at);
  v.yes("the size", bytes >= 3000);
}

inline void driver_copies_where_its_names_say(verdict& v) {
  use_the_runtime(v);
  driver_memory const memory(v, 8);
  stream const s;
  std::uint32_t const there[2] = {11, 22};
  std::uint32_t back[2] = {};
  v.ok("cuMemcpyHtoD", runtimes(WEIR_DRIVER_FUNCTION(cuMemcpyHtoD)(memory.at, there, 8)));
  v.ok("synchronise, since the copy may end after the call", cudaDeviceSynchronize());
  v.ok("cuStreamWriteValue32", runtimes(WEIR_DRIVER_FUNCTION(cuStreamWriteValue32)(s, memory.at + 4, 33, 0)));
  v.ok("synchronise", cudaStreamSynchronize(s));
  v.ok("cuMemcpyDtoH", runtimes(WEIR_DRIVER_FUNCTION(cuMemcpyDtoH)(back, memory.at, 8)));
  v.equal<std::uint32_t>("copied", back[0], 11);
  v.equal<std::uint32_t>("written by the stream", back[1], 33);
}

inline void driver_errors_are_no_last_errors(verdict& v) {
  use_the_runtime(v);
  CUdeviceptr p = 0;
  v.code("cuMemAlloc of everything", runtimes(WEIR_DRIVER_FUNCTION(cuMemAlloc)(&p, SIZE_MAX / 2)),
         cudaErrorMemoryAllocation);
  v.code("the last error", cudaGetLastError(), cudaSuccess);
}

// cuMemAlloc: "If bytesize is 0, cuMemAlloc() returns CUDA_ERROR_INVALID_VALUE", as cuMemAllocManaged does.
inline void driver_allocates_no_zero_bytes(verdict& v) {
  use_the_runtime(v);
  CUdeviceptr p = 0;
  v.code("cuMemAlloc", runtimes(WEIR_DRIVER_FUNCTION(cuMemAlloc)(&p, 0)), cudaErrorInvalidValue);
  v.code("cuMemAllocManaged", runtimes(WEIR_DRIVER_FUNCTION(cuMemAllocManaged)(&p, 0, CU_MEM_ATTACH_GLOBAL)),
         cudaErrorInvalidValue);
}

inline constexpr probe driver_probes[] = {
    {"driver_counts_the_same_devices", needs::nothing, &driver_counts_the_same_devices},
    {"driver_knows_no_other_devices", needs::nothing, &driver_knows_no_other_devices},
    {"driver_says_names_and_sizes", needs::nothing, &driver_says_names_and_sizes},
    {"driver_contexts_are_a_stack", needs::nothing, &driver_contexts_are_a_stack},
    {"driver_context_is_the_runtimes_device", needs::two_devices, &driver_context_is_the_runtimes_device},
    {"driver_stream_is_the_runtimes", needs::nothing, &driver_stream_is_the_runtimes},
    {"driver_events_order_streams", needs::pending_work, &driver_events_order_streams},
    {"driver_functions_have_per_thread_forms", needs::nothing, &driver_functions_have_per_thread_forms},
    {"driver_sets_and_copies_elements", needs::nothing, &driver_sets_and_copies_elements},
#if CUDA_VERSION >= 13000
    {"driver_copies_batches", needs::nothing, &driver_copies_batches},
#endif
    {"driver_knows_what_pointers_are", needs::nothing, &driver_knows_what_pointers_are},
    {"driver_answers_for_other_pointers", needs::nothing, &driver_answers_for_other_pointers},
    {"driver_pools_are_the_runtimes", needs::nothing, &driver_pools_are_the_runtimes},
    {"driver_finds_where_memory_begins", needs::nothing, &driver_finds_where_memory_begins},
    {"driver_copies_where_its_names_say", needs::nothing, &driver_copies_where_its_names_say},
    {"driver_allocates_no_zero_bytes", needs::nothing, &driver_allocates_no_zero_bytes},
    {"driver_errors_are_no_last_errors", needs::nothing, &driver_errors_are_no_last_errors},
};

}  // namespace probes
