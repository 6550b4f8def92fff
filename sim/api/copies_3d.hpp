#pragma once
// Copies and sets of slices, internal: `cudaMemcpy3D` and its like.

#include "api/copies.hpp"

namespace weir::sim::detail {

cudaError_t copy_slices(call which, cudaMemcpy3DParms const* asked, cudaStream_t stream, host_waits waits);
cudaError_t copy_slices(call which, cudaMemcpy3DPeerParms const* asked, cudaStream_t stream, host_waits waits);
cudaError_t set_slices(call which, cudaPitchedPtr const& to, int value, cudaExtent extent, cudaStream_t stream,
                       host_waits waits);

}  // namespace weir::sim::detail
