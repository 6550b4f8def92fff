// What the devices can do: the attributes of all devices, those of the device that is simulated, and those that are
// settings.

#include "api/device_attributes.hpp"

#include "api/pitch.hpp"

#include <algorithm>
#include <iterator>

namespace weir::sim::detail {
namespace {

struct attribute_value {
  cudaDeviceAttr which;
  int value;
};

constexpr int most_blocks = 0x7fff'ffff;

// What every device of compute capability 8.0 and newer has, and what the simulated runtime can do. All others are 0.
constexpr attribute_value of_all_devices[] = {
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrMemoryPoolSupportedHandleTypes, cudaMemHandleTypePosixFileDescriptor},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrComputePreemptionSupported, 1},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrGlobalL1CacheSupported, 1},
    {cudaDevAttrLocalL1CacheSupported, 1},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, most_blocks},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1 << 10},
    {cudaDevAttrTotalConstantMemory, 64 << 10},
    {cudaDevAttrMaxAccessPolicyWindowSize, 134'213'632},
    {cudaDevAttrTextureAlignment, static_cast<int>(pitch_unit)},
    {cudaDevAttrSurfaceAlignment, 512},
    {cudaDevAttrTexturePitchAlignment, 32},
    {cudaDevAttrMaxPitch, static_cast<int>(max_pitch)},
    {cudaDevAttrMaxTexture1DWidth, 131072},
    {cudaDevAttrMaxTexture1DMipmappedWidth, 32768},
    {cudaDevAttrMaxTexture1DLinearWidth, 1 << 28},
    {cudaDevAttrMaxTexture1DLayeredWidth, 32768},
    {cudaDevAttrMaxTexture1DLayeredLayers, 2048},
    {cudaDevAttrMaxTexture2DWidth, 131072},
    {cudaDevAttrMaxTexture2DHeight, 65536},
    {cudaDevAttrMaxTexture2DMipmappedWidth, 32768},
    {cudaDevAttrMaxTexture2DMipmappedHeight, 32768},
    {cudaDevAttrMaxTexture2DLinearWidth, 131072},
    {cudaDevAttrMaxTexture2DLinearHeight, 65000},
    {cudaDevAttrMaxTexture2DLinearPitch, 2'097'120},
    {cudaDevAttrMaxTexture2DGatherWidth, 32768},
    {cudaDevAttrMaxTexture2DGatherHeight, 32768},
    {cudaDevAttrMaxTexture2DLayeredWidth, 32768},
    {cudaDevAttrMaxTexture2DLayeredHeight, 32768},
    {cudaDevAttrMaxTexture2DLayeredLayers, 2048},
    {cudaDevAttrMaxTexture3DWidth, 16384},
    {cudaDevAttrMaxTexture3DHeight, 16384},
    {cudaDevAttrMaxTexture3DDepth, 16384},
    {cudaDevAttrMaxTexture3DWidthAlt, 8192},
    {cudaDevAttrMaxTexture3DHeightAlt, 8192},
    {cudaDevAttrMaxTexture3DDepthAlt, 32768},
    {cudaDevAttrMaxTextureCubemapWidth, 32768},
    {cudaDevAttrMaxTextureCubemapLayeredWidth, 32768},
    {cudaDevAttrMaxTextureCubemapLayeredLayers, 2046},
    {cudaDevAttrMaxSurface1DWidth, 32768},
    {cudaDevAttrMaxSurface1DLayeredWidth, 32768},
    {cudaDevAttrMaxSurface1DLayeredLayers, 2048},
    {cudaDevAttrMaxSurface2DWidth, 131072},
    {cudaDevAttrMaxSurface2DHeight, 65536},
    {cudaDevAttrMaxSurface2DLayeredWidth, 32768},
    {cudaDevAttrMaxSurface2DLayeredHeight, 32768},
    {cudaDevAttrMaxSurface2DLayeredLayers, 2048},
    {cudaDevAttrMaxSurface3DWidth, 16384},
    {cudaDevAttrMaxSurface3DHeight, 16384},
    {cudaDevAttrMaxSurface3DDepth, 16384},
    {cudaDevAttrMaxSurfaceCubemapWidth, 32768},
    {cudaDevAttrMaxSurfaceCubemapLayeredWidth, 32768},
    {cudaDevAttrMaxSurfaceCubemapLayeredLayers, 2046},
#if CUDART_VERSION >= 12020
    {cudaDevAttrNumaId, -1},  // the devices' memory is no NUMA node of the host
#endif
#if CUDART_VERSION >= 13000
    {cudaDevAttrHostMemoryPoolsSupported, 1},
    {cudaDevAttrHostNumaMemoryPoolsSupported, 1},
#endif
};

int common_attribute(cudaDeviceAttr which) {
  auto const* const found = std::find_if(std::begin(of_all_devices), std::end(of_all_devices),
                                         [which](attribute_value const& a) { return a.which == which; });
  return found == std::end(of_all_devices) ? 0 : found->value;
}

}  // namespace

int device_attribute(runtime& r, cudaDeviceAttr which, int device) {
  device_model const& model = *r.model;
  switch (which) {
    case cudaDevAttrPageableMemoryAccess:
      return r.pageable_access ? 1 : 0;
    case cudaDevAttrMultiGpuBoardGroupID:
      return device;
    case cudaDevAttrPciBusId:
      return device + 1;
    case cudaDevAttrComputeCapabilityMajor:
      return model.major;
    case cudaDevAttrComputeCapabilityMinor:
      return model.minor;
    case cudaDevAttrMultiProcessorCount:
      return model.multiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return model.threads_per_multiprocessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return model.blocks_per_multiprocessor;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return model.shared_per_multiprocessor;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return model.shared_per_multiprocessor - common_attribute(cudaDevAttrReservedSharedMemoryPerBlock);
    case cudaDevAttrL2CacheSize:
      return model.l2_bytes;
    case cudaDevAttrMaxPersistingL2CacheSize:
      return model.persisting_l2_bytes;
    case cudaDevAttrClockRate:
      return model.clock_khz;
    case cudaDevAttrMemoryClockRate:
      return model.memory_clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth:
      return model.memory_bus_bits;
    case cudaDevAttrAsyncEngineCount:
      return model.copy_engines;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
      return model.double_ratio;
    case cudaDevAttrEccEnabled:
      return model.ecc ? 1 : 0;
    case cudaDevAttrClusterLaunch:
      return model.major >= 9 ? 1 : 0;
    case cudaDevAttrMemSyncDomainCount:
      return model.major >= 9 ? 4 : 1;
#if CUDART_VERSION >= 13000
    case cudaDevAttrGpuPciDeviceId:
      return model.pci_id;
#endif
    default:
      return common_attribute(which);
  }
}

}  // namespace weir::sim::detail
