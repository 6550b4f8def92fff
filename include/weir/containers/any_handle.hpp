#pragma once
// A handle to any stack, owned or not: what containers hold, so that their types do not name the memory they are on.

#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_list.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

namespace weir {

template <bool Device, bool Host>
class basic_any_handle;

namespace detail {

template <class H>
inline constexpr bool is_any_handle = false;
template <bool Device, bool Host>
inline constexpr bool is_any_handle<basic_any_handle<Device, Host>> = true;

/// A stack, which is no value: it is referred to. (An `any_handle` is not asked whether it is a handle: that would ask
/// the constructors that ask this.)
template <class R>
concept held_stack = resource<R> && !is_any_handle<std::remove_const_t<R>> && !handle<std::remove_const_t<R>>;
/// A value that keeps its stack alive, or at least does not say that it does not.
template <class H>
concept held_owner = !is_any_handle<H> && handle<H> && !is_reference<H>;

}  // namespace detail

/// A handle to any stack. Made from a stack, from `share(memory)` or from an `any_ref` it refers, and the stack must
/// outlive it; made from an `any_resource` it owns, together with its copies. Three words and a branch more than
/// `any_ref`; one indirect call a request. Allocates no host memory, but for owning handles of other types than
/// `any_resource`. Thread-safe as the stack is. One that owned and was moved from is as an `any_resource` that was.
/// `Device` and `Host` are what it promises of the memory; use the aliases. When not to use it: as a parameter
/// (`any_ref`), or to make a stack (`any_resource`).
template <bool Device, bool Host>
class basic_any_handle {
  using reference = basic_any_ref<Device, Host>;
  using owner = basic_any_resource<Device, Host>;

 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = true;

  /// Refers to `memory`, which is no temporary.
  template <detail::held_stack R>
  basic_any_handle(R& memory) noexcept : held_(reference(memory)) {}
  template <resource R>
  basic_any_handle(resource_ref<R> const& memory) noexcept : held_(reference(memory)) {}
  template <detail::any_ref_with<Device, Host> Other>
  basic_any_handle(Other const& memory) noexcept : held_(reference(memory)) {}
  /// Owns, as `memory` does.
  basic_any_handle(owner memory) noexcept : held_(std::move(memory)) {}
  template <detail::held_owner H>
  requires(!std::same_as<H, owner>) basic_any_handle(H const& memory) : held_(owner(memory)) {}
  template <detail::cannot_be_shared F>
  basic_any_handle(F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`
  /// Holds what `other` does, in the same way, and forgets a promise; the other way round does not compile.
  template <bool D, bool H>
  basic_any_handle(basic_any_handle<D, H> const& other) noexcept requires((D || !Device) && (H || !Host))
      : held_(other.ask([](auto const& held) -> std::variant<reference, owner> {
          if constexpr (detail::is_reference<std::remove_cvref_t<decltype(held)>>)
            return reference(held);
          else
            return owner(held);
        })) {}

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) const {
    return ask([&](auto const& memory) { return memory.allocate(stream, bytes, alignment); });
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes,
                  std::size_t alignment = default_alignment) const noexcept {
    ask([&](auto const& memory) { memory.deallocate(stream, p, bytes, alignment); });
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) const noexcept {
    ask([&](auto const& memory) { memory.deallocate_after(stream, p, bytes, others, alignment); });
  }

  /// Whether it keeps its stack alive.
  bool owns() const noexcept { return std::holds_alternative<owner>(held_); }

  void describe(report& out) const {
    ask([&](auto const& memory) { memory.describe(out); });
  }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return ask([&](auto const& memory) { return memory.taken(bytes, alignment); });
  }
  bool holds_captured(std::uint64_t capture) const noexcept {
    return ask([&](auto const& memory) { return memory.holds_captured(capture); });
  }
  /// The stack's device (`device_of`).
  int device() const noexcept {
    return ask([](auto const& memory) { return memory.device(); });
  }
  /// Shows all layers, outermost first: what `weir::trim`, `numbers` and their like ask through.
  void visit_layers(layer_visitor& visitor) const {
    ask([&](auto const& memory) { memory.visit_layers(visitor); });
  }

  basic_any_handle operator()() const { return *this; }
  /// Equal if both refer to one object, or own one stack together.
  friend bool operator==(basic_any_handle const&, basic_any_handle const&) noexcept = default;

 private:
  template <bool, bool>
  friend class basic_any_handle;

  template <class F>
  auto ask(F const& f) const {
    if (auto const* const owned = std::get_if<owner>(&held_)) return f(*owned);
    return f(*std::get_if<reference>(&held_));
  }

  std::variant<reference, owner> held_;
};

using any_handle = basic_any_handle<true, false>;             ///< memory for kernels
using any_host_handle = basic_any_handle<false, true>;        ///< memory for the host
using any_host_device_handle = basic_any_handle<true, true>;  ///< pinned or managed memory: for both

}  // namespace weir
