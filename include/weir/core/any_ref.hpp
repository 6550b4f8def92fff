#pragma once
// A reference to any stack: for types that must not name the stack they take memory from.

#include <weir/core/cuda_mr_calls.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weir {

template <bool Device, bool Host>
class basic_any_ref;

namespace detail {

/// The functions of a resource whose type is forgotten; one table a type, `const` or not, and never destroyed.
struct erased_functions {
  void* (*allocate)(void* r, stream_ref stream, std::size_t bytes, std::size_t alignment);
  void (*deallocate)(void* r, stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept;
  void (*deallocate_after)(void* r, stream_ref stream, void* p, std::size_t bytes, stream_list others,
                           std::size_t alignment) noexcept;
  void (*describe)(void const* r, report& out);
  std::size_t (*taken)(void const* r, std::size_t bytes, std::size_t alignment) noexcept;
  bool (*holds_captured)(void const* r, std::uint64_t capture) noexcept;
  int (*device)(void* r) noexcept;
  void (*visit_layers)(void* r, layer_visitor& visitor);
  type_mark type;
};

template <class R>
inline constexpr erased_functions functions_of = {
    [](void* r, stream_ref stream, std::size_t bytes, std::size_t alignment) {
      return resource_ref<R>(*static_cast<R*>(r)).allocate(stream, bytes, alignment);
    },
    [](void* r, stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
      resource_ref<R>(*static_cast<R*>(r)).deallocate(stream, p, bytes, alignment);
    },
    [](void* r, stream_ref stream, void* p, std::size_t bytes, stream_list others, std::size_t alignment) noexcept {
      weir::deallocate_after(*static_cast<R*>(r), stream, p, bytes, others, alignment);
    },
    [](void const* r, report& out) { weir::describe(*static_cast<R const*>(r), out); },
    [](void const* r, std::size_t bytes, std::size_t alignment) noexcept {
      return weir::taken(*static_cast<R const*>(r), bytes, alignment);
    },
    [](void const* r, std::uint64_t capture) noexcept {
      return weir::holds_captured(*static_cast<R const*>(r), capture);
    },
    [](void* r) noexcept { return weir::device_of(*static_cast<R*>(r)); },
    [](void* r, layer_visitor& visitor) { detail::show_layers(*static_cast<R*>(r), visitor); },
    type_mark::of<R>(),
};

// References have constructors of their own: what they refer to is referred to directly.
template <class R>
inline constexpr bool is_reference = is_resource_ref<R>;
template <bool Device, bool Host>
inline constexpr bool is_reference<basic_any_ref<Device, Host>> = true;
template <class R>
concept referable = resource<R> && !is_reference<std::remove_const_t<R>>;
// Holds for a `basic_any_ref` that promises as much or more.
template <class R, bool Device, bool Host>
inline constexpr bool is_ref_with = false;
template <bool D, bool H, bool Device, bool Host>
inline constexpr bool is_ref_with<basic_any_ref<D, H>, Device, Host> = (D || !Device) && (H || !Host);
template <class R, bool Device, bool Host>
concept any_ref_with = is_ref_with<R, Device, Host>;

}  // namespace detail

/// Refers to someone else's resource, which must outlive it; two words, copied like a pointer, equal if it is the same
/// object. Costs one indirect call a request. `Device` and `Host` are what it promises of the memory; use the aliases.
/// When not to use it: where the stack must live as long as its user (`any_resource`), or its type is at hand
/// (`share`).
template <bool Device, bool Host>
class basic_any_ref : public detail::cuda_mr_calls<basic_any_ref<Device, Host>> {
 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = true;

  /// Refers to `memory`, which is no temporary; or to what a handle from `share` refers to.
  template <detail::referable R>
  basic_any_ref(R& memory) noexcept
      : resource_(const_cast<std::remove_const_t<R>*>(&memory)),
        functions_(&detail::functions_of<std::remove_const_t<R>>) {
    static_assert(!Device || weir::device_accessible<R>,
                  "memory that the device can reach is needed here; this resource's is for the host only. "
                  "Use device, async, managed or pinned memory.");
    static_assert(!Host || weir::host_accessible<R>,
                  "memory that the host can reach is needed here; this resource's is for the device only. "
                  "Use pinned, managed or host memory, or weir::device_vector.");
  }
  template <resource R>
  basic_any_ref(resource_ref<R> const& memory) noexcept : basic_any_ref(memory.upstream()) {}

  template <detail::cannot_be_shared F>
  basic_any_ref(F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`

  /// Forgets a promise; the other way round does not compile.
  template <detail::any_ref_with<Device, Host> Other>
  basic_any_ref(Other const& other) noexcept : resource_(other.resource_), functions_(other.functions_) {}

  using detail::cuda_mr_calls<basic_any_ref>::allocate;
  using detail::cuda_mr_calls<basic_any_ref>::deallocate;

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) const {
    return functions_->allocate(resource_, stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes,
                  std::size_t alignment = default_alignment) const noexcept {
    functions_->deallocate(resource_, stream, p, bytes, alignment);
  }

  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) const noexcept {
    functions_->deallocate_after(resource_, stream, p, bytes, others, alignment);
  }

  void describe(report& out) const { functions_->describe(resource_, out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return functions_->taken(resource_, bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept { return functions_->holds_captured(resource_, capture); }
  /// The stack's device (`device_of`).
  int device() const noexcept { return functions_->device(resource_); }
  /// Shows all layers, outermost first, to those who look beyond references: what `weir::trim`, `numbers` and their
  /// like ask through.
  void visit_layers(layer_visitor& visitor) const {
    if (visitor.how_far().enters(referred())) functions_->visit_layers(resource_, visitor);
  }

  /// What it refers to.
  referred_object referred() const noexcept { return {resource_, functions_->type}; }

  basic_any_ref operator()() const noexcept { return *this; }
  // The address alone would not do: a layer and the upstream that is its first member share one.
  friend bool operator==(basic_any_ref a, basic_any_ref b) noexcept { return a.referred() == b.referred(); }

 private:
  template <bool, bool>
  friend class basic_any_ref;

  void* resource_;
  detail::erased_functions const* functions_;
};

using any_ref = basic_any_ref<true, false>;             ///< memory for kernels
using any_host_ref = basic_any_ref<false, true>;        ///< memory for the host
using any_host_device_ref = basic_any_ref<true, true>;  ///< pinned or managed memory: for both

}  // namespace weir
