#pragma once
// What devices are called, internal.

#include "model/runtime.hpp"

#include <string>

namespace weir::sim::detail {

/// The name that programs see.
std::string device_title(runtime& r, int device);
cudaUUID_t uuid_of(int device);
/// The device's address on the PCI bus, as programs write it: "0000:01:00.0".
std::string bus_id(runtime& r, int device);

}  // namespace weir::sim::detail
