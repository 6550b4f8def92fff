#pragma once
// Probes: what devices say of themselves. Answers are in the comments of cuda_runtime_api.h, driver_types.h and
// cuda_profiler_api.h.

#include "probe.hpp"

#include <cuda_profiler_api.h>

#include <cstddef>
#include <cstdint>

namespace probes {

// cudaDeviceProp and cudaDeviceAttr describe the same facts.
inline void properties_are_the_attributes(verdict& v) {
  cudaDeviceProp p{};
  v.ok("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, 0));
  auto const same = [&](char const* what, std::size_t property, cudaDeviceAttr attribute) {
    int value = -1;
    v.ok(what, cudaDeviceGetAttribute(&value, attribute, 0));
    v.equal(what, property, static_cast<std::size_t>(value));
  };
  same("threads a block", static_cast<std::size_t>(p.maxThreadsPerBlock), cudaDevAttrMaxThreadsPerBlock);
  same("threads a multiprocessor", static_cast<std::size_t>(p.maxThreadsPerMultiProcessor),
       cudaDevAttrMaxThreadsPerMultiProcessor);
  same("blocks a multiprocessor", static_cast<std::size_t>(p.maxBlocksPerMultiProcessor),
       cudaDevAttrMaxBlocksPerMultiprocessor);
  same("multiprocessors", static_cast<std::size_t>(p.multiProcessorCount), cudaDevAttrMultiProcessorCount);
  same("grid, x", static_cast<std::size_t>(p.maxGridSize[0]), cudaDevAttrMaxGridDimX);
  same("block, z", static_cast<std::size_t>(p.maxThreadsDim[2]), cudaDevAttrMaxBlockDimZ);
  same("shared memory a block", p.sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
  same("shared memory a block may opt in to", p.sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  same("shared memory a multiprocessor", p.sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  same("registers a block", static_cast<std::size_t>(p.regsPerBlock), cudaDevAttrMaxRegistersPerBlock);
  same("L2 cache", static_cast<std::size_t>(p.l2CacheSize), cudaDevAttrL2CacheSize);
  same("memory bus", static_cast<std::size_t>(p.memoryBusWidth), cudaDevAttrGlobalMemoryBusWidth);
  same("constant memory", p.totalConstMem, cudaDevAttrTotalConstantMemory);
  same("PCI bus", static_cast<std::size_t>(p.pciBusID), cudaDevAttrPciBusId);
  same("2D texture", static_cast<std::size_t>(p.maxTexture2D[1]), cudaDevAttrMaxTexture2DHeight);
  v.yes("a multiprocessor takes a block", p.maxThreadsPerMultiProcessor >= p.maxThreadsPerBlock);
  v.yes("opting in gives more", p.sharedMemPerBlockOptin >= p.sharedMemPerBlock);
}

// "Returns an ASCII string identifying the device ... [domain]:[bus]:[device].[function] where domain, bus, device, and
// function are all hexadecimal values. pciBusId should be large enough to store 13 characters".
inline void devices_are_found_by_their_bus(verdict& v) {
  char text[13] = {};
  v.ok("cudaDeviceGetPCIBusId", cudaDeviceGetPCIBusId(text, sizeof text, 0));
  v.yes("domain:bus:device.function", text[4] == ':' && text[7] == ':' && text[10] == '.');
  int device = -1;
  v.ok("cudaDeviceGetByPCIBusId", cudaDeviceGetByPCIBusId(&device, text));
  v.equal("the device", device, 0);
  v.code("no place", cudaDeviceGetPCIBusId(nullptr, 13, 0), cudaErrorInvalidValue);
  v.code("no such device", cudaDeviceGetPCIBusId(text, sizeof text, 4096), cudaErrorInvalidDevice);
}

// "If the profiler is already enabled, then calling cudaProfilerStart() has no effect" (and alike to stop it).
inline void the_profiler_can_be_switched_at_any_time(verdict& v) {
  v.ok("stop", cudaProfilerStop());
  v.ok("start", cudaProfilerStart());
  v.ok("start", cudaProfilerStart());
  v.ok("stop", cudaProfilerStop());
}

// "cudaGraphMemAttrUsedMemHigh: ... High watermark ... can only be reset to zero."
inline void graph_memory_has_watermarks(verdict& v) {
  std::uint64_t value = 1;
  v.ok("reset", cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &(value = 0)));
  v.ok("used", cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &value));
  v.equal<std::uint64_t>("used by no graph", value, 0);
  v.ok("trim", cudaDeviceGraphMemTrim(0));
  v.code("no place", cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, nullptr), cudaErrorInvalidValue);
  v.code("no such device", cudaDeviceGetGraphMemAttribute(4096, cudaGraphMemAttrUsedMemHigh, &value),
         cudaErrorInvalidDevice);
}

// "Setting limit to value is a request by the application to update the current limit maintained by the device. The
// driver is free to modify the requested value to meet h/w requirements".
inline void limits_are_kept(verdict& v) {
  std::size_t before = 0, now = 0;
  v.ok("the heap", cudaDeviceGetLimit(&before, cudaLimitMallocHeapSize));
  v.yes("there is one", before > 0);
  v.ok("the stack", cudaDeviceGetLimit(&before, cudaLimitStackSize));
  v.ok("set", cudaDeviceSetLimit(cudaLimitStackSize, 4096));
  v.ok("get", cudaDeviceGetLimit(&now, cudaLimitStackSize));
  v.yes("at least what was asked for", now >= 4096);
  v.ok("set back", cudaDeviceSetLimit(cudaLimitStackSize, before));
}

inline void memory_is_at_most_all_of_it(verdict& v) {
  std::size_t free = 0, total = 0;
  cudaDeviceProp p{};
  v.ok("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
  v.ok("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, 0));
  v.yes("free is at most total", free <= total);
  v.equal("total", total, p.totalGlobalMem);
}

inline constexpr probe device_probes[] = {
    {"properties_are_the_attributes", needs::nothing, &properties_are_the_attributes},
    {"devices_are_found_by_their_bus", needs::nothing, &devices_are_found_by_their_bus},
    {"the_profiler_can_be_switched_at_any_time", needs::nothing, &the_profiler_can_be_switched_at_any_time},
    {"graph_memory_has_watermarks", needs::nothing, &graph_memory_has_watermarks},
    {"limits_are_kept", needs::nothing, &limits_are_kept},
    {"memory_is_at_most_all_of_it", needs::nothing, &memory_is_at_most_all_of_it},
};

}  // namespace probes
