#pragma once
// Allocation without a stream, internal.

#include "model/call.hpp"
#include "model/memory.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace weir::sim::detail {

/// What calls that allocate without a stream have in common. No bytes give null.
cudaError_t allocate(call which, void** p, std::size_t bytes, memory_kind kind, bool valid_arguments,
                     unsigned flags = 0);

}  // namespace weir::sim::detail
