#pragma once
// Stacks for RMM and what stands on it: cuDF, cuML, cuVS. The only header of weir that includes RMM.

#include <weir/bridges/cuda_mr.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/cuda_mr_calls.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_list.hpp>

#include <rmm/error.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {

/// Made by `for_rmm`: the handle `H`, whose refusals are RMM's. A handle as well.
template <handle H>
class rmm_resource : public detail::cuda_mr_calls<rmm_resource<H>> {
 public:
  static constexpr bool device_accessible = weir::device_accessible<H>;
  static constexpr bool host_accessible = weir::host_accessible<H>;
  static constexpr bool host_ordered = true;
  static constexpr bool knows_blocks = weir::knows_blocks<H>;

  explicit rmm_resource(H memory) noexcept : memory_(std::move(memory)) {}

  using detail::cuda_mr_calls<rmm_resource>::allocate;
  using detail::cuda_mr_calls<rmm_resource>::deallocate;
  /// Throws `rmm::out_of_memory`, with the stack's report, and all else that the stack throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) const try {
    return memory_.allocate(stream, bytes, alignment);
  } catch (out_of_memory const& refusal) {
    throw rmm::out_of_memory(refusal.what());
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes,
                  std::size_t alignment = default_alignment) const noexcept {
    memory_.deallocate(stream, p, bytes, alignment);
  }

  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) const noexcept {
    weir::deallocate_after(memory_, stream, p, bytes, others, alignment);
  }

  H const& memory() const noexcept { return memory_; }
  void describe(report& out) const { weir::describe(memory_, out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return weir::taken(memory_, bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept { return weir::holds_captured(memory_, capture); }
  /// The stack's device (`device_of`).
  int device() const noexcept { return weir::device_of(memory_); }
  /// Shows all layers, outermost first: what `weir::trim`, `numbers` and their like ask through.
  void visit_layers(layer_visitor& visitor) const { detail::show_layers(memory_, visitor); }

  rmm_resource operator()() const { return *this; }
  friend bool operator==(rmm_resource const&, rmm_resource const&) noexcept = default;

 private:
  H memory_;
};

/// `memory` as RMM takes it: `rmm::device_uvector<int> x(n, stream, weir::for_rmm(memory))`, or for a whole device
/// `rmm::mr::set_current_device_resource(weir::for_rmm(owner))` with an `any_resource`, which keeps its stack alive;
/// any other stack must outlive what RMM makes of it. Every handle goes where RMM takes a resource: this is for
/// programs that catch `rmm::out_of_memory`, as RMM's `failure_callback_resource_adaptor` does. For the other way
/// round, a resource of RMM's as a source, there is `from_cuda_mr`.
template <resource R>
[[nodiscard]] rmm_resource<resource_ref<R>> for_rmm(R& memory) noexcept requires held_by_reference<R> {
  return rmm_resource<resource_ref<R>>(share(memory));
}
template <handle H>
[[nodiscard]] rmm_resource<H> for_rmm(H memory) noexcept {
  return rmm_resource<H>(std::move(memory));
}

}  // namespace weir
