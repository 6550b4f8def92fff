// All of a device's attributes at once, and its names.

#include "api/device_properties.hpp"

#include "api/device_attributes.hpp"
#include "api/entry.hpp"

#include <cstdio>
#include <cstring>

namespace weir::sim::detail {
namespace {

// A fact that is not here is 0: what the simulated runtime does not have.
void fill_in(runtime& r, int device, cudaDeviceProp& p) {
  auto const set = [&](auto& field, cudaDeviceAttr which) {
    field = static_cast<std::remove_reference_t<decltype(field)>>(device_attribute(r, which, device));
  };
  std::snprintf(p.name, sizeof p.name, "%s", device_title(r, device).c_str());
  p.uuid = uuid_of(device);
  p.totalGlobalMem = r.device(device).capacity;
  set(p.sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
  set(p.regsPerBlock, cudaDevAttrMaxRegistersPerBlock);
  set(p.warpSize, cudaDevAttrWarpSize);
  set(p.maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock);
  set(p.maxThreadsDim[0], cudaDevAttrMaxBlockDimX);
  set(p.maxThreadsDim[1], cudaDevAttrMaxBlockDimY);
  set(p.maxThreadsDim[2], cudaDevAttrMaxBlockDimZ);
  set(p.maxGridSize[0], cudaDevAttrMaxGridDimX);
  set(p.maxGridSize[1], cudaDevAttrMaxGridDimY);
  set(p.maxGridSize[2], cudaDevAttrMaxGridDimZ);
  set(p.totalConstMem, cudaDevAttrTotalConstantMemory);
  set(p.major, cudaDevAttrComputeCapabilityMajor);
  set(p.minor, cudaDevAttrComputeCapabilityMinor);
  set(p.textureAlignment, cudaDevAttrTextureAlignment);
  set(p.texturePitchAlignment, cudaDevAttrTexturePitchAlignment);
  set(p.memPitch, cudaDevAttrMaxPitch);
  set(p.multiProcessorCount, cudaDevAttrMultiProcessorCount);
  set(p.canMapHostMemory, cudaDevAttrCanMapHostMemory);
  set(p.maxTexture1D, cudaDevAttrMaxTexture1DWidth);
  set(p.maxTexture1DMipmap, cudaDevAttrMaxTexture1DMipmappedWidth);
  set(p.maxTexture2D[0], cudaDevAttrMaxTexture2DWidth);
  set(p.maxTexture2D[1], cudaDevAttrMaxTexture2DHeight);
  set(p.maxTexture2DMipmap[0], cudaDevAttrMaxTexture2DMipmappedWidth);
  set(p.maxTexture2DMipmap[1], cudaDevAttrMaxTexture2DMipmappedHeight);
  set(p.maxTexture2DLinear[0], cudaDevAttrMaxTexture2DLinearWidth);
  set(p.maxTexture2DLinear[1], cudaDevAttrMaxTexture2DLinearHeight);
  set(p.maxTexture2DLinear[2], cudaDevAttrMaxTexture2DLinearPitch);
  set(p.maxTexture2DGather[0], cudaDevAttrMaxTexture2DGatherWidth);
  set(p.maxTexture2DGather[1], cudaDevAttrMaxTexture2DGatherHeight);
  set(p.maxTexture3D[0], cudaDevAttrMaxTexture3DWidth);
  set(p.maxTexture3D[1], cudaDevAttrMaxTexture3DHeight);
  set(p.maxTexture3D[2], cudaDevAttrMaxTexture3DDepth);
  set(p.maxTexture3DAlt[0], cudaDevAttrMaxTexture3DWidthAlt);
  set(p.maxTexture3DAlt[1], cudaDevAttrMaxTexture3DHeightAlt);
  set(p.maxTexture3DAlt[2], cudaDevAttrMaxTexture3DDepthAlt);
  set(p.maxTextureCubemap, cudaDevAttrMaxTextureCubemapWidth);
  set(p.maxTexture1DLayered[0], cudaDevAttrMaxTexture1DLayeredWidth);
  set(p.maxTexture1DLayered[1], cudaDevAttrMaxTexture1DLayeredLayers);
  set(p.maxTexture2DLayered[0], cudaDevAttrMaxTexture2DLayeredWidth);
  set(p.maxTexture2DLayered[1], cudaDevAttrMaxTexture2DLayeredHeight);
  set(p.maxTexture2DLayered[2], cudaDevAttrMaxTexture2DLayeredLayers);
  set(p.maxTextureCubemapLayered[0], cudaDevAttrMaxTextureCubemapLayeredWidth);
  set(p.maxTextureCubemapLayered[1], cudaDevAttrMaxTextureCubemapLayeredLayers);
  set(p.maxSurface1D, cudaDevAttrMaxSurface1DWidth);
  set(p.maxSurface2D[0], cudaDevAttrMaxSurface2DWidth);
  set(p.maxSurface2D[1], cudaDevAttrMaxSurface2DHeight);
  set(p.maxSurface3D[0], cudaDevAttrMaxSurface3DWidth);
  set(p.maxSurface3D[1], cudaDevAttrMaxSurface3DHeight);
  set(p.maxSurface3D[2], cudaDevAttrMaxSurface3DDepth);
  set(p.maxSurface1DLayered[0], cudaDevAttrMaxSurface1DLayeredWidth);
  set(p.maxSurface1DLayered[1], cudaDevAttrMaxSurface1DLayeredLayers);
  set(p.maxSurface2DLayered[0], cudaDevAttrMaxSurface2DLayeredWidth);
  set(p.maxSurface2DLayered[1], cudaDevAttrMaxSurface2DLayeredHeight);
  set(p.maxSurface2DLayered[2], cudaDevAttrMaxSurface2DLayeredLayers);
  set(p.maxSurfaceCubemap, cudaDevAttrMaxSurfaceCubemapWidth);
  set(p.maxSurfaceCubemapLayered[0], cudaDevAttrMaxSurfaceCubemapLayeredWidth);
  set(p.maxSurfaceCubemapLayered[1], cudaDevAttrMaxSurfaceCubemapLayeredLayers);
  set(p.surfaceAlignment, cudaDevAttrSurfaceAlignment);
  set(p.concurrentKernels, cudaDevAttrConcurrentKernels);
  set(p.ECCEnabled, cudaDevAttrEccEnabled);
  set(p.pciBusID, cudaDevAttrPciBusId);
  set(p.pciDeviceID, cudaDevAttrPciDeviceId);
  set(p.pciDomainID, cudaDevAttrPciDomainId);
  set(p.asyncEngineCount, cudaDevAttrAsyncEngineCount);
  set(p.unifiedAddressing, cudaDevAttrUnifiedAddressing);
  set(p.memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth);
  set(p.l2CacheSize, cudaDevAttrL2CacheSize);
  set(p.persistingL2CacheMaxSize, cudaDevAttrMaxPersistingL2CacheSize);
  set(p.maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor);
  set(p.streamPrioritiesSupported, cudaDevAttrStreamPrioritiesSupported);
  set(p.globalL1CacheSupported, cudaDevAttrGlobalL1CacheSupported);
  set(p.localL1CacheSupported, cudaDevAttrLocalL1CacheSupported);
  set(p.sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  set(p.regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor);
  set(p.managedMemory, cudaDevAttrManagedMemory);
  set(p.multiGpuBoardGroupID, cudaDevAttrMultiGpuBoardGroupID);
  set(p.pageableMemoryAccess, cudaDevAttrPageableMemoryAccess);
  set(p.concurrentManagedAccess, cudaDevAttrConcurrentManagedAccess);
  set(p.computePreemptionSupported, cudaDevAttrComputePreemptionSupported);
  set(p.canUseHostPointerForRegisteredMem, cudaDevAttrCanUseHostPointerForRegisteredMem);
  set(p.cooperativeLaunch, cudaDevAttrCooperativeLaunch);
  set(p.sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  set(p.maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor);
  set(p.accessPolicyMaxWindowSize, cudaDevAttrMaxAccessPolicyWindowSize);
  set(p.reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock);
  set(p.hostRegisterSupported, cudaDevAttrHostRegisterSupported);
  set(p.memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported);
  set(p.clusterLaunch, cudaDevAttrClusterLaunch);
#if CUDART_VERSION >= 13000
  set(p.deviceNumaId, cudaDevAttrNumaId);
  set(p.gpuPciDeviceID, cudaDevAttrGpuPciDeviceId);
#else
  set(p.clockRate, cudaDevAttrClockRate);
  set(p.memoryClockRate, cudaDevAttrMemoryClockRate);
  set(p.deviceOverlap, cudaDevAttrGpuOverlap);
  set(p.singleToDoublePrecisionPerfRatio, cudaDevAttrSingleToDoublePrecisionPerfRatio);
#endif
}

}  // namespace

std::string device_title(runtime& r, int device) {
  if (!r.model->title.empty()) return std::string(r.model->title);
  return "weir::sim device " + std::to_string(device);
}

cudaUUID_t uuid_of(int device) {
  cudaUUID_t uuid{};
  std::memcpy(uuid.bytes, "weir::sim", 9);
  uuid.bytes[15] = static_cast<char>(device + 1);
  return uuid;
}

std::string bus_id(runtime& r, int device) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0",
                static_cast<unsigned>(device_attribute(r, cudaDevAttrPciBusId, device)) & 0xff);
  return text;
}

}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return sim::api("cudaGetDeviceProperties", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (properties == nullptr) return cudaErrorInvalidValue;
    *properties = {};
    sim::fill_in(r, device, *properties);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return sim::api("cudaDeviceGetPCIBusId", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;  // "large enough to store 13 characters"
    std::snprintf(text, static_cast<std::size_t>(length), "%s", sim::bus_id(r, device).c_str());
    return cudaSuccess;
  });
}

// Takes what people write: "0000:01:00.0", "01:00.0" or "01:00", in hexadecimal digits.
cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int* device, char const* text) {
  return sim::api("cudaDeviceGetByPCIBusId", [&](sim::runtime& r, sim::held_lock&) {
    if (device == nullptr || text == nullptr) return cudaErrorInvalidValue;
    unsigned domain = 0, bus = 0, slot = 0;
    if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      domain = 0;
      if (std::sscanf(text, "%x:%x", &bus, &slot) != 2) return cudaErrorInvalidValue;
    }
    for (int each = 0; each < r.device_count; ++each) {
      bool const here = bus == static_cast<unsigned>(sim::device_attribute(r, cudaDevAttrPciBusId, each));
      if (domain != 0 || slot != 0 || !here) continue;
      *device = each;
      return cudaSuccess;
    }
    return cudaErrorInvalidDevice;
  });
}

}  // extern "C"
