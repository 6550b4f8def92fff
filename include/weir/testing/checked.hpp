#pragma once
// Shows a stack's blocks to the simulated runtime, which proves that they are used and reused in stream order. For
// tests: only programs that link `weir::sim` can use it, so no umbrella header includes it.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/sim/order.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir {

template <resource Upstream>
class checked_resource;

/// Tells `weir::sim` about every block that passes, so that its check of order covers them as it covers CUDA's own
/// allocations. Above a pool it proves the pool's users and the pool; below one, that the pool gives back nothing that
/// is in use. Does nothing but pass until `sim::check_order(true)`, which has to come before the stack is made.
/// Violations are in `sim::reports()`. When not to use it: outside tests.
struct checked {
  /// What reports call the owner of the blocks; has to outlive the recipe.
  char const* name = "checked";

  template <resource Upstream>
  using on = checked_resource<Upstream>;

  std::string problem() const { return name == nullptr ? "checked: name is null" : ""; }
  bool valid() const { return problem().empty(); }
};

/// Made by `upstream | checked{...}`. As thread-safe as its upstream. Adds no CUDA call.
template <resource Upstream>
class checked_resource : public detail::adaptor_base<checked_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<checked_resource, Upstream>;

 public:
  static constexpr char const* layer_name = "checked";

  template <recipe F>
  checked_resource(F const& upstream, checked const& options)
      : base(upstream), blocks_(detail::require_valid(options).name) {}

  /// As the upstream's `allocate`, and throws what that throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    void* const p = take(stream, bytes, alignment);
    tell_allocated(stream, p, bytes, alignment);
    return p;
  }

  /// As the upstream's `deallocate`. Unlike other layers', this one's bookkeeping uses host memory.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (stream.is_host_order())
      blocks_.freed_by_host(p, bytes, alignment);
    else
      blocks_.freed(stream.get(), p, bytes, alignment);
    give(stream, p, [=](Upstream& below) { share(below).deallocate(stream, p, bytes, alignment); });
  }

  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    std::vector<cudaStream_t> behind;
    if (!stream.is_host_order()) behind.push_back(stream.get());
    for (stream_ref const other : others)
      if (!other.is_host_order()) behind.push_back(other.get());
    if (behind.empty())
      blocks_.freed_by_host(p, bytes, alignment);
    else
      blocks_.freed_after(behind, p, bytes, alignment);
    give(stream, p, [=](Upstream& below) { weir::deallocate_after(below, stream, p, bytes, others, alignment); });
  }

  /// Takes the caller's word for it that no work is left: what that thread has waited for, the stack knows in every
  /// one.
  std::size_t release_captured(std::uint64_t /*capture*/) noexcept {
    blocks_.waited();
    return 0;
  }

  /// Lives while a whole stack is asked: what its layers learn of streams then, they pass on as they do in a request.
  sim::checked_blocks::inside scope_below() const { return sim::checked_blocks::inside(blocks_); }

  void describe_layer(report& out) const {
    out.below("checked", std::to_string(sim::report_count()) + " violations of order found in the program so far");
  }

 private:
  using base::upstream_;

  void tell_allocated(stream_ref stream, void const* p, std::size_t bytes, std::size_t alignment) {
    if (stream.is_host_order())
      blocks_.allocated_for_all(p, bytes, alignment);
    else
      blocks_.allocated(stream.get(), p, bytes, alignment);
  }

  /// `free(upstream)` frees the block. One that was wrong and ignored leaves it live, as far as a layer below knows it.
  template <class Free>
  void give(stream_ref stream, void* p, Free free) noexcept {
    void* const volatile address = p;  // volatile: taken before p is gone
    detail::last_call.clear();
    {
      sim::checked_blocks::inside const own_work(blocks_);
      free(upstream_);
    }
    if (detail::last_call.what != detail::call_note::misuse) return;
    void* const kept = address;
    if (live_block const still = weir::find_block(upstream_, kept))
      tell_allocated(stream, kept, still.bytes, still.alignment);
  }

  void* take(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    sim::checked_blocks::inside const own_work(blocks_);
    return this->pass(stream, bytes, alignment, [] {});
  }

  sim::checked_blocks blocks_;  // ends before the upstream, which may give back all it has at its end
};

}  // namespace weir
