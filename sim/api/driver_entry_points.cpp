// Functions of the driver, asked for by name. There is no driver here, so none is found.

#include "api/entry.hpp"
#include "api/stream_calls.hpp"

#include <string_view>

namespace weir::sim::detail {

cudaError_t driver_entry_point(call which, char const* symbol, void** function, unsigned version,
                               unsigned long long flags, cudaDriverEntryPointQueryResult* result) {
  return api(which, [=](runtime&, held_lock&) {
    bool const known_flags =
        flags == cudaEnableDefault || flags == cudaEnableLegacyStream || flags == cudaEnablePerThreadDefaultStream;
    if (symbol == nullptr || std::string_view(symbol).empty() || function == nullptr || !known_flags)
      return cudaErrorInvalidValue;
    if (version > CUDART_VERSION) return cudaErrorInvalidValue;  // newer than what `cudaDriverGetVersion` says
    *function = nullptr;
    if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
