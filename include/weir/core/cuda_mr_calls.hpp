#pragma once
// The names by which cuda::mr calls a resource, for handles. Knows nothing of CCCL: its concepts ask for calls, no
// types.

#include <weir/core/bytes.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <concepts>
#include <cstddef>

namespace weir::detail {

/// What a `Handle` derives from so that `cuda::mr` may call it: by the names of CCCL 3.1 and newer, and by those that
/// CCCL 2 and 3.0 have. Without a stream they are in `host_order`. No state; as thread-safe as the stack.
template <class Handle>
class cuda_mr_calls {
 public:
  void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) const {
    return self().allocate(host_order, bytes, alignment);
  }
  void deallocate_sync(void* p, std::size_t bytes, std::size_t alignment = default_alignment) const noexcept {
    self().deallocate(host_order, p, bytes, alignment);
  }

  // CCCL 2 and 3.0. The first takes nothing but sizes: a stream given as 0 is an error and no size.
  template <std::same_as<std::size_t> Size>
  void* allocate(Size bytes, Size alignment) const {
    return self().allocate(host_order, bytes, alignment);
  }
  void deallocate(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
    self().deallocate(host_order, p, bytes, alignment);
  }
  void* allocate_async(std::size_t bytes, std::size_t alignment, stream_ref stream) const {
    return self().allocate(stream, bytes, alignment);
  }
  void deallocate_async(void* p, std::size_t bytes, std::size_t alignment, stream_ref stream) const noexcept {
    self().deallocate(stream, p, bytes, alignment);
  }

  friend bool operator==(cuda_mr_calls, cuda_mr_calls) noexcept = default;

 private:
  Handle const& self() const noexcept { return static_cast<Handle const&>(*this); }
};

}  // namespace weir::detail
