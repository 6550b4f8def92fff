#pragma once
// A stack used by many: a copyable handle that does not own.

#include <weir/core/cuda_mr_calls.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>

#include <cstddef>

namespace weir {

/// A resource of one pointer that forwards to someone else's, which must outlive it. Copies are equal if they refer to
/// the same object. It is a recipe too, so `share(memory) | limit{256_MiB}` is a budget inside a budget.
template <resource R>
class resource_ref : public detail::cuda_mr_calls<resource_ref<R>> {
 public:
  static constexpr bool device_accessible = weir::device_accessible<R>;
  static constexpr bool host_accessible = weir::host_accessible<R>;
  static constexpr bool host_ordered = true;
  static constexpr bool knows_blocks = weir::knows_blocks<R>;

  explicit resource_ref(R& r) noexcept : resource_(&r) {}

  using detail::cuda_mr_calls<resource_ref>::allocate;
  using detail::cuda_mr_calls<resource_ref>::deallocate;

  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = default_alignment) const {
    if constexpr (!weir::host_ordered<R>)
      if (stream.is_host_order()) return weir::allocate_sync(*resource_, bytes, alignment);
    return resource_->allocate(stream, bytes, alignment);
  }
  [[gnu::always_inline]] void deallocate(stream_ref stream, void* p, std::size_t bytes,
                                         std::size_t alignment = default_alignment) const noexcept {
    if constexpr (!weir::host_ordered<R>)
      if (stream.is_host_order()) return weir::deallocate_sync(*resource_, p, bytes, alignment);
    resource_->deallocate(stream, p, bytes, alignment);
  }

  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) const noexcept {
    weir::deallocate_after(*resource_, stream, p, bytes, others, alignment);
  }

  // A handle to a `growable` is one.
  std::size_t chunk_bytes() const noexcept requires growable<R> { return resource_->chunk_bytes(); }
  address_range reserve_range(std::size_t most) const requires growable<R> { return resource_->reserve_range(most); }
  void release_range(address_range range) const noexcept requires growable<R> { resource_->release_range(range); }
  bool map(void* p, std::size_t bytes) const requires growable<R> { return resource_->map(p, bytes); }
  bool unmap(void* p, std::size_t bytes) const noexcept requires growable<R> { return resource_->unmap(p, bytes); }
  bool alias(void* to, void* from, std::size_t bytes) const requires growable<R> {
    return resource_->alias(to, from, bytes);
  }
  tenants& tenancy() const noexcept requires has_tenants<R> { return resource_->tenancy(); }

  R& upstream() const noexcept { return *resource_; }
  void describe(report& out) const { weir::describe(*resource_, out); }

  resource_ref operator()() const noexcept { return *this; }
  friend bool operator==(resource_ref, resource_ref) noexcept = default;

 private:
  R* resource_;
};

/// A handle to `memory`, to copy into containers and APIs or to stack adaptors on. `memory` must outlive it.
template <resource R>
[[nodiscard]] resource_ref<R> share(R& memory) noexcept {
  return resource_ref<R>(memory);
}
/// A handle is shared as itself.
template <resource R>
[[nodiscard]] resource_ref<R> share(resource_ref<R> const& memory) noexcept {
  return memory;
}

}  // namespace weir
