#pragma once
// Probes: the driver's virtual memory. Answers are in the comments of cuda.h, unless named. A device without virtual
// memory is asked nothing.

#include "driver_function.hpp"
#include "probe.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace probes {

/// Eight granules of reserved addresses on device 0, and what is needed to use them. All of it ends with the probe.
class address_range {
 public:
  decltype(&::cuMemAddressReserve) reserve = WEIR_DRIVER_FUNCTION(cuMemAddressReserve);
  decltype(&::cuMemAddressFree) free = WEIR_DRIVER_FUNCTION(cuMemAddressFree);
  decltype(&::cuMemMap) map = WEIR_DRIVER_FUNCTION(cuMemMap);
  decltype(&::cuMemUnmap) unmap = WEIR_DRIVER_FUNCTION(cuMemUnmap);
  decltype(&::cuMemGetAccess) get_access = WEIR_DRIVER_FUNCTION(cuMemGetAccess);
  decltype(&::cuMemRelease) release = WEIR_DRIVER_FUNCTION(cuMemRelease);
  decltype(&::cuMemRetainAllocationHandle) retain = WEIR_DRIVER_FUNCTION(cuMemRetainAllocationHandle);
  CUdeviceptr begin = 0;
  std::size_t granule = 0;
  CUmemLocation location{};

  explicit address_range(verdict& v) : verdict_(v) {
    static_cast<void>(cudaFree(nullptr));  // the runtime's context, which the driver's functions need
    auto* const attribute = WEIR_DRIVER_FUNCTION(cuDeviceGetAttribute);
    auto* const granularity = WEIR_DRIVER_FUNCTION(cuMemGetAllocationGranularity);
    wanted_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted_.location.type = location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    int supported = 0;
    if (attribute == nullptr ||
        attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) != CUDA_SUCCESS ||
        supported == 0)
      return;
    ok("cuMemGetAllocationGranularity", granularity(&granule, &wanted_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ok("cuMemAddressReserve", reserve(&begin, bytes(), 0, 0, 0));
  }
  ~address_range() {
    if (!is_there()) return;
    static_cast<void>(cudaDeviceSynchronize());  // no work may be left that uses a view
    for (std::size_t i = 0; i < 8; ++i) static_cast<void>(unmap(at(i), granule));
    static_cast<void>(free(begin, bytes()));
  }
  address_range(address_range const&) = delete;
  address_range& operator=(address_range const&) = delete;

  bool is_there() const { return begin != 0; }
  std::size_t bytes() const { return 8 * granule; }
  CUdeviceptr at(std::size_t number) const { return begin + number * granule; }
  void* pointer(std::size_t number) const { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at(number))); }

  CUmemGenericAllocationHandle create(std::size_t granules = 1) const {
    CUmemGenericAllocationHandle made = 0;
    ok("cuMemCreate", WEIR_DRIVER_FUNCTION(cuMemCreate)(&made, granules * granule, &wanted_, 0));
    return made;
  }
  void open(std::size_t number, std::size_t granules = 1) const {
    CUmemAccessDesc const access{location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ok("cuMemSetAccess", WEIR_DRIVER_FUNCTION(cuMemSetAccess)(at(number), granules * granule, &access, 1));
  }

  // Driver and runtime number their errors alike.
  void ok(char const* what, CUresult got) const { verdict_.ok(what, static_cast<cudaError_t>(got)); }
  void refused(char const* what, CUresult got) const {
    verdict_.code(what, static_cast<cudaError_t>(got), cudaErrorInvalidValue);
  }

 private:
  verdict& verdict_;
  CUmemAllocationProp wanted_{};
};

// cuMemAddressFree: size and address "must match" what was reserved.
inline void addresses_are_freed_as_they_were_reserved(verdict& v) {
  address_range const range(v);
  if (!range.is_there()) return;
  v.equal("address mod granularity", range.begin % range.granule, CUdeviceptr{0});
  range.refused("another size", range.free(range.begin, range.granule));
  range.refused("another address", range.free(range.at(1), range.granule * 7));
}

// cuMemMap: "Note: currently must be zero"; "only on VA range reservations that are not currently mapped".
inline void memory_is_mapped_where_nothing_is(verdict& v) {
  address_range const range(v);
  if (!range.is_there()) return;
  CUmemGenericAllocationHandle const memory = range.create();
  range.ok("cuMemMap", range.map(range.at(1), range.granule, 0, memory, 0));
  range.refused("over a view", range.map(range.at(1), range.granule, 0, memory, 0));
  v.code("an offset", static_cast<cudaError_t>(range.map(range.at(2), range.granule, range.granule, memory, 0)),
         cudaErrorNotSupported);
  range.refused("flags", range.map(range.at(2), range.granule, 0, memory, 1));
  range.refused("off granularity", range.map(range.at(2) + 1, range.granule, 0, memory, 0));
  range.refused("a range with a view", range.free(range.begin, range.bytes()));
  v.ok("the runtime's last error", cudaGetLastError());
  range.ok("cuMemRelease", range.release(memory));
}

// cuMemUnmap: "cannot unmap a sub-range of an address range mapped by cuMemMap". It does not say what becomes of a
// range with nothing mapped in it: drivers leave it, the simulated runtime refuses.
inline void views_are_unmapped_whole(verdict& v) {
  address_range const range(v);
  if (!range.is_there()) return;
  CUmemGenericAllocationHandle const memory = range.create(2);
  range.ok("cuMemMap", range.map(range.at(0), 2 * range.granule, 0, memory, 0));
  range.refused("half of it", range.unmap(range.at(0), range.granule));
  auto const nothing = [&](char const* what, CUresult got) {
    v.code(what, static_cast<cudaError_t>(got), {cudaErrorInvalidValue, cudaSuccess});
  };
  nothing("a hole", range.unmap(range.at(4), range.granule));
  range.ok("all of it", range.unmap(range.at(0), 2 * range.granule));
  nothing("again", range.unmap(range.at(0), 2 * range.granule));
  range.ok("cuMemRelease", range.release(memory));
}

// Programming guide, virtual aliasing: accesses in different operations that are ordered see each other. And
// cuMemUnmap: memory is freed "if there are no existing mappings and there are no unreleased memory handles".
inline void two_views_hold_the_same_bytes(verdict& v) {
  address_range const range(v);
  if (!range.is_there()) return;
  CUmemGenericAllocationHandle const memory = range.create();
  for (std::size_t const place : {std::size_t{0}, std::size_t{5}}) {
    range.ok("cuMemMap", range.map(range.at(place), range.granule, 0, memory, 0));
    range.open(place);
  }
  range.ok("cuMemRelease", range.release(memory));
  unsigned char byte = 0;
  v.ok("cudaMemset", cudaMemset(range.pointer(0), 42, range.granule));
  v.ok("cudaMemcpy", cudaMemcpy(&byte, range.pointer(5), 1, cudaMemcpyDeviceToHost));
  v.equal("a byte, through the other view", int{byte}, 42);
  range.ok("cuMemUnmap", range.unmap(range.at(0), range.granule));
  v.ok("cudaMemset", cudaMemset(range.pointer(5), 43, range.granule));
  CUmemGenericAllocationHandle again = 0;
  range.ok("cuMemRetainAllocationHandle", range.retain(&again, range.pointer(5)));
  v.yes("the same handle", again == memory);
  range.ok("cuMemRelease", range.release(again));
}

// cuMemMap "does not make the address accessible"; cuMemSetAccess takes a range of several mappings.
inline void views_side_by_side_are_one_range(verdict& v) {
  address_range const range(v);
  if (!range.is_there()) return;
  for (std::size_t const place : {std::size_t{2}, std::size_t{3}}) {
    CUmemGenericAllocationHandle const memory = range.create();
    range.ok("cuMemMap", range.map(range.at(place), range.granule, 0, memory, 0));
    range.ok("cuMemRelease", range.release(memory));
  }
  unsigned long long flags = 99;
  range.ok("cuMemGetAccess", range.get_access(&flags, &range.location, range.at(2)));
  v.equal("access at first", flags, 0ULL);
  range.open(2, 2);
  range.ok("cuMemGetAccess", range.get_access(&flags, &range.location, range.at(3)));
  v.equal("access once given", flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  v.ok("cudaMemset over both", cudaMemset(range.pointer(2), 1, 2 * range.granule));
  cudaPointerAttributes found{};
  v.ok("cudaPointerGetAttributes", cudaPointerGetAttributes(&found, range.pointer(3)));
  v.equal("type", int{found.type}, int{cudaMemoryTypeDevice});
  v.ok("cudaDeviceSynchronize", cudaDeviceSynchronize());
  range.ok("cuMemUnmap of both", range.unmap(range.at(2), 2 * range.granule));
}

inline constexpr probe virtual_memory_probes[] = {
    {"addresses_are_freed_as_they_were_reserved", needs::nothing, &addresses_are_freed_as_they_were_reserved},
    {"memory_is_mapped_where_nothing_is", needs::nothing, &memory_is_mapped_where_nothing_is},
    {"views_are_unmapped_whole", needs::nothing, &views_are_unmapped_whole},
    {"two_views_hold_the_same_bytes", needs::nothing, &two_views_hold_the_same_bytes},
    {"views_side_by_side_are_one_range", needs::nothing, &views_side_by_side_are_one_range},
};

}  // namespace probes
