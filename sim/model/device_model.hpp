#pragma once
// Which devices there are to simulate, internal: what distinguishes one real device from another.

#include <cstddef>
#include <span>
#include <string_view>

namespace weir::sim::detail {

/// Sizes in bytes, clocks in kHz. Numbers are those that the runtime reports of such a device.
struct device_model {
  std::string_view name;   // what `set_device_model` takes
  std::string_view title;  // what programs see; empty: "weir::sim device N"
  std::size_t capacity;
  std::size_t context_bytes;  // of the capacity, what the device's context takes; it differs by driver and program
  int major, minor;
  int multiprocessors;
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int shared_per_multiprocessor;
  int l2_bytes, persisting_l2_bytes;
  int clock_khz, memory_clock_khz, memory_bus_bits;
  int copy_engines;
  int double_ratio;  // how much slower double precision is than single precision
  bool ecc;
  int pci_id;  // of device and vendor
};

/// The first is the default: no real device.
std::span<device_model const> device_models();
/// Null if there is none of that name.
device_model const* find_device_model(std::string_view name);

}  // namespace weir::sim::detail
