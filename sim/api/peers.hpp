#pragma once
// Copies from one device to another, internal.

#include "api/copies.hpp"

namespace weir::sim::detail {

/// A copy's two ends, which lie on devices that the program names.
struct peer_ends {
  void* to = nullptr;
  int to_device = 0;
  void const* from = nullptr;
  int from_device = 0;
};
cudaError_t copy_between(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream);
/// CUDA serialises the copy with the work of both devices and the current one. Here it is serialised with the work that
/// their legacy streams wait for, which leaves out non-blocking streams. `stream` is a default stream.
cudaError_t copy_serialised(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream,
                            host_waits waits);

}  // namespace weir::sim::detail
