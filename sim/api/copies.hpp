#pragma once
// Copies and sets of rows of bytes, internal.

#include "model/call.hpp"
#include "model/runtime.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace weir::sim::detail {

/// Whether the host waits where CUDA documents it (`cudaMemcpy`, `cudaMemset`) or not (their `Async` forms, which wait
/// only for copies from host to host).
enum class host_waits { as_documented, no };

/// What a copy or a set is about: rows of bytes, each a pitch after the one before, and slices of such rows.
struct rows {
  std::size_t width = 0;
  std::size_t height = 1;                    // of a slice
  std::size_t to_pitch = 0, from_pitch = 0;  // not used with one row
  std::size_t depth = 1;
  std::size_t to_slice = 0, from_slice = 0;  // bytes from slice to slice; not used with one slice
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  bool pitched() const { return height > 1 || depth > 1; }
  /// From the first byte to the last one; the largest number if they are more.
  std::size_t to_bytes() const;
  std::size_t from_bytes() const;
};

cudaError_t copy(call which, void* to, void const* from, rows what, cudaMemcpyKind kind, cudaStream_t stream,
                 host_waits waits);
/// The same inside a call: `cudaSuccess`, or why not.
cudaError_t submit_copy(runtime& r, held_lock& held, void* to, void const* from, rows what, cudaMemcpyKind kind,
                        cudaStream_t stream, host_waits waits);
cudaError_t set(call which, void* to, int value, rows what, cudaStream_t stream, host_waits waits);
/// Sets `count` elements of `width` bytes, which are at most those of `value`.
cudaError_t set_elements(call which, void* to, unsigned value, std::size_t width, std::size_t count,
                         cudaStream_t stream);

}  // namespace weir::sim::detail
