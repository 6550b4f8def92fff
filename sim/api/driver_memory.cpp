// The driver's copies and sets, and what it says of pointers, where that is not a call of the runtime with another
// name.

#include "api/copies.hpp"
#include "api/driver_as_runtime.hpp"
#include "api/driver_functions.hpp"

#include <cstdint>

namespace weir::sim::detail {
namespace {

char* pointer(CUdeviceptr p) { return reinterpret_cast<char*>(static_cast<std::uintptr_t>(p)); }

CUresult set_elements(CUdeviceptr to, unsigned value, unsigned width, std::size_t count, cudaStream_t stream) {
  if (to % width != 0) return CUDA_ERROR_INVALID_VALUE;
  return in_driver([&] { return detail::set_elements("cudaMemset2DAsync", pointer(to), value, width, count, stream); });
}

#if CUDA_VERSION >= 13000
bool is_valid(copy_batch const& batch) {
  if (batch.to == nullptr || batch.from == nullptr || batch.bytes == nullptr || batch.count == 0) return false;
  if (batch.attributes == nullptr || batch.begins == nullptr || batch.kinds == 0 || batch.begins[0] != 0) return false;
  for (std::size_t i = 0; i < batch.kinds; ++i) {
    std::size_t const end = i + 1 < batch.kinds ? batch.begins[i + 1] : batch.count;
    CUmemcpySrcAccessOrder const order = batch.attributes[i].srcAccessOrder;
    if (batch.begins[i] >= end || end > batch.count) return false;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) return false;
  }
  return true;
}
#endif

template <class T>
CUresult answer(void* to, T value) {
  *static_cast<T*>(to) = value;
  return CUDA_SUCCESS;
}

/// Where nothing is known of the pointer, what the attribute says then.
CUresult answer_attribute(void* to, CUpointer_attribute which, cudaPointerAttributes const& known) {
  bool const unknown = known.type == cudaMemoryTypeUnregistered;
  CUcontext context = nullptr;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return unknown ? answer(to, context) : primary_context_retain(static_cast<CUcontext*>(to), known.device);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer(to, unknown                            ? 0u
                        : known.type == cudaMemoryTypeHost ? unsigned{CU_MEMORYTYPE_HOST}
                                                           : unsigned{CU_MEMORYTYPE_DEVICE});
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return answer(to, known.devicePointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return answer(to, unknown ? nullptr : known.hostPointer);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return answer(to, known.type == cudaMemoryTypeManaged);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return answer(to, known.device);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult attributes_of(CUdeviceptr p, cudaPointerAttributes& known) {
  return in_driver([&] { return cudaPointerGetAttributes(&known, pointer(p)); });
}

}  // namespace

CUresult memcpy_any_async(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, cudaStream_t stream) {
  return in_driver([&] { return cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDefault, stream); });
}

#if CUDA_VERSION >= 13000
CUresult memcpy_batch_async(copy_batch const& batch, cudaStream_t stream) {
  if (!is_valid(batch) || stream == cudaStreamLegacy) return CUDA_ERROR_INVALID_VALUE;
  bool read_now = false;
  for (std::size_t i = 0; i < batch.kinds; ++i)
    read_now = read_now || batch.attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  for (std::size_t i = 0; i < batch.count; ++i)
    if (CUresult const code = memcpy_any_async(batch.to[i], batch.from[i], batch.bytes[i], stream);
        code != CUDA_SUCCESS)
      return code;
  if (!read_now) return CUDA_SUCCESS;
  return in_driver([&] { return cudaStreamSynchronize(stream); });
}
#endif

CUresult memset_16_async(CUdeviceptr to, unsigned short value, std::size_t count, cudaStream_t stream) {
  return set_elements(to, value, 2, count, stream);
}

CUresult memset_32_async(CUdeviceptr to, unsigned value, std::size_t count, cudaStream_t stream) {
  return set_elements(to, value, 4, count, stream);
}

CUresult pointer_get_attribute(void* to, CUpointer_attribute which, CUdeviceptr p) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cudaPointerAttributes known{};
  if (CUresult const code = attributes_of(p, known); code != CUDA_SUCCESS) return code;
  if (known.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  return answer_attribute(to, which, known);
}

CUresult pointer_get_attributes(unsigned count, CUpointer_attribute* which, void** to, CUdeviceptr p) {
  if (count == 0 || which == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cudaPointerAttributes known{};
  if (CUresult const code = attributes_of(p, known); code != CUDA_SUCCESS) return code;
  for (unsigned i = 0; i < count; ++i)
    if (CUresult const code = answer_attribute(to[i], which[i], known); code != CUDA_SUCCESS) return code;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim::detail
