// Functions of the driver, asked for by name. Found are those of virtual memory, and what goes with them.

#include "api/driver_functions.hpp"
#include "api/entry.hpp"
#include "api/stream_calls.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace weir::sim::detail {
namespace {

struct driver_function {
  std::string_view name;
  unsigned since;  // the version of CUDA that brought it
  void* address;
};

template <class Function>
driver_function since(unsigned version, std::string_view name, Function* function) {
  return {name, version, reinterpret_cast<void*>(function)};
}

driver_function const* find_driver_function(std::string_view name) {
  static driver_function const all[] = {
      since(6000, "cuGetErrorName", get_error_name),
      since(6000, "cuGetErrorString", get_error_string),
      since(2000, "cuDeviceGet", device_get),
      since(2000, "cuDeviceGetAttribute", device_get_attribute),
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
  };
  auto const* const found =
      std::find_if(std::begin(all), std::end(all), [name](driver_function const& f) { return f.name == name; });
  return found == std::end(all) ? nullptr : found;
}

}  // namespace

cudaError_t driver_entry_point(call which, char const* symbol, void** function, unsigned version,
                               unsigned long long flags, cudaDriverEntryPointQueryResult* result) {
  return api(which, [=](runtime&, held_lock&) {
    bool const known_flags =
        flags == cudaEnableDefault || flags == cudaEnableLegacyStream || flags == cudaEnablePerThreadDefaultStream;
    if (symbol == nullptr || std::string_view(symbol).empty() || function == nullptr || !known_flags)
      return cudaErrorInvalidValue;
    if (version > CUDART_VERSION) return cudaErrorInvalidValue;  // newer than what `cudaDriverGetVersion` says
    driver_function const* const found = find_driver_function(symbol);
    bool const new_enough = found != nullptr && version >= found->since;
    *function = new_enough ? found->address : nullptr;
    if (result != nullptr)
      *result = found == nullptr ? cudaDriverEntryPointSymbolNotFound
                : new_enough     ? cudaDriverEntryPointSuccess
                                 : cudaDriverEntryPointVersionNotSufficent;
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
