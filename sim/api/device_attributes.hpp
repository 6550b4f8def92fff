#pragma once
// What the devices can do, internal.

#include <cuda_runtime_api.h>

#include <optional>

namespace weir::sim::detail {

/// None for attributes that are not modelled: no answer is better than a wrong one.
std::optional<int> device_attribute(cudaDeviceAttr which);

}  // namespace weir::sim::detail
