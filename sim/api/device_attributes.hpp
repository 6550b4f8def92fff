#pragma once
// What the devices can do, internal.

#include "model/runtime.hpp"

#include <cuda_runtime_api.h>

namespace weir::sim::detail {

/// The value of any attribute that the runtime or the driver has a number for; of those without a name, 0.
int device_attribute(runtime& r, cudaDeviceAttr which, int device);

}  // namespace weir::sim::detail
