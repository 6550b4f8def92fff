// How much memory graphs have. It is given back with the graph, so that there is never any to trim.

#include "api/entry.hpp"

namespace weir::sim::detail {
namespace {

cudaError_t read(runtime& r, int device, cudaGraphMemAttributeType which, std::uint64_t& value) {
  graph_memory_sizes const& now = r.device(device).for_graphs;
  graph_memory_sizes const& most = r.device(device).most_for_graphs;
  switch (which) {
    case cudaGraphMemAttrUsedMemCurrent:
      value = now.used;
      return cudaSuccess;
    case cudaGraphMemAttrUsedMemHigh:
      value = most.used;
      return cudaSuccess;
    case cudaGraphMemAttrReservedMemCurrent:
      value = now.reserved;
      return cudaSuccess;
    case cudaGraphMemAttrReservedMemHigh:
      value = most.reserved;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

// The high watermarks can be written, and only with zero, which puts them to what is there now.
cudaError_t write(runtime& r, int device, cudaGraphMemAttributeType which, std::uint64_t value) {
  graph_memory_sizes const& now = r.device(device).for_graphs;
  graph_memory_sizes& most = r.device(device).most_for_graphs;
  if (value != 0) return cudaErrorInvalidValue;
  switch (which) {
    case cudaGraphMemAttrUsedMemHigh:
      most.used = now.used;
      return cudaSuccess;
    case cudaGraphMemAttrReservedMemHigh:
      most.reserved = now.reserved;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType which, void* value) {
  return sim::api("cudaDeviceGetGraphMemAttribute", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (value == nullptr) return cudaErrorInvalidValue;
    return sim::read(r, device, which, *static_cast<std::uint64_t*>(value));
  });
}

cudaError_t CUDARTAPI cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType which, void* value) {
  return sim::api("cudaDeviceSetGraphMemAttribute", [&](sim::runtime& r, sim::held_lock&) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    if (value == nullptr) return cudaErrorInvalidValue;
    return sim::write(r, device, which, *static_cast<std::uint64_t const*>(value));
  });
}

cudaError_t CUDARTAPI cudaDeviceGraphMemTrim(int device) {
  return sim::api("cudaDeviceGraphMemTrim", [&](sim::runtime& r, sim::held_lock&) {
    return r.has_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

}  // extern "C"
