// Memory for rows and planes of bytes.

#include "api/memory.hpp"
#include "api/pitch.hpp"

namespace weir::sim::detail {
namespace {

std::size_t pitch_of(std::size_t width) {
  bool const fits = width <= too_many - (pitch_unit - 1);
  return fits ? (width + pitch_unit - 1) / pitch_unit * pitch_unit : too_many;
}

}  // namespace
}  // namespace weir::sim::detail

namespace sim = weir::sim::detail;

extern "C" {

cudaError_t CUDARTAPI cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  std::size_t const row = sim::pitch_of(width);
  std::size_t const bytes = sim::times(row, height);
  cudaError_t const code = sim::allocate("cudaMallocPitch", p, bytes, sim::memory_kind::device, pitch != nullptr);
  if (code == cudaSuccess) *pitch = row;  // NOLINT(clang-analyzer-*): `allocate` refuses what has no place for it
  return code;
}

cudaError_t CUDARTAPI cudaMalloc3D(cudaPitchedPtr* made, cudaExtent extent) {
  std::size_t const row = sim::pitch_of(extent.width);
  std::size_t const bytes = sim::times(row, sim::times(extent.height, extent.depth));
  void* p = nullptr;
  cudaError_t const code = sim::allocate("cudaMalloc3D", &p, bytes, sim::memory_kind::device, made != nullptr);
  if (code == cudaSuccess) *made = {p, row, extent.width, extent.height};  // NOLINT(clang-analyzer-*): as above
  return code;
}

}  // extern "C"
