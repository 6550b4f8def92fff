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
/// Serialised with the work of both devices and the current one; here with what their legacy streams are serialised
/// with, which leaves out non-blocking streams. `stream` is a default one.
cudaError_t copy_serialised(runtime& r, held_lock& held, peer_ends const& ends, rows what, cudaStream_t stream,
                            host_waits waits);

}  // namespace weir::sim::detail
