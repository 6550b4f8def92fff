#pragma once
// A stack behind one type: for APIs that must not be templates.

#include <weir/core/cuda_mr_calls.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {

namespace detail {

/// A stack whose type is forgotten, by itself that of an `any_resource` that was moved from. Destroyed by those who
/// know its type, so not by a virtual function: `none` must outlive all static objects.
struct erased_stack {
  virtual void* allocate(stream_ref, std::size_t bytes, std::size_t) {
    if (bytes == 0) return nullptr;
    throw std::logic_error("weir: allocate of " + std::to_string(bytes) + " B: " + moved_from);
  }
  virtual void deallocate(stream_ref, void* p, std::size_t bytes, std::size_t) noexcept {
    if (p == nullptr) return;
    report_misuse("weir: deallocate of " + hex(p) + " (" + std::to_string(bytes) + " B): " + moved_from);
  }
  virtual void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list,
                                std::size_t alignment) noexcept {
    deallocate(stream, p, bytes, alignment);
  }
  virtual void describe(report& out) const { out.below("moved from", moved_from); }
  virtual int device() noexcept { return -1; }
  virtual void visit_layers(layer_visitor&) {}
  virtual std::size_t taken(std::size_t bytes, std::size_t) const noexcept { return bytes; }
  virtual bool holds_captured(std::uint64_t) const noexcept { return false; }

  static constexpr char const* moved_from = "this any_resource was moved from; assign a stack to it first";

 protected:
  ~erased_stack() = default;
};
struct no_stack final : erased_stack {};

template <resource R>
struct made_stack final : erased_stack {
  template <recipe F>
  explicit made_stack(F const& f) : held(f()) {}

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) override {
    if constexpr (!weir::host_ordered<R>)
      if (stream.is_host_order()) return weir::allocate_sync(held, bytes, alignment);
    return held.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept override {
    if constexpr (!weir::host_ordered<R>)
      if (stream.is_host_order()) return weir::deallocate_sync(held, p, bytes, alignment);
    held.deallocate(stream, p, bytes, alignment);
  }
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment) noexcept override {
    weir::deallocate_after(held, stream, p, bytes, others, alignment);
  }
  void describe(report& out) const override { weir::describe(held, out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept override {
    return weir::taken(held, bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept override { return weir::holds_captured(held, capture); }
  int device() noexcept override { return weir::device_of(held); }
  void visit_layers(layer_visitor& visitor) override { detail::show_layers(held, visitor); }

  R held;
};

}  // namespace detail

/// Owns a stack whose type is forgotten; copies share it, the last one destroys it. Thread-safe as the stack is.
/// One that was moved from serves zero bytes and null, and refuses everything else (`std::logic_error`, or the misuse
/// handler) until a stack is assigned to it. Costs one virtual call a request. `Device` and `Host` are what it promises
/// of the memory; use the aliases below. `weir::trim`, `numbers`, `find_limit` and `report_of` ask the stack that it
/// holds. When not to use it: where the stack's type is at hand, `share(memory)` is cheaper.
template <bool Device, bool Host>
class basic_any_resource : public detail::cuda_mr_calls<basic_any_resource<Device, Host>> {
 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = true;

  /// Makes the stack that `f` describes, in place.
  template <recipe F>
  requires(!std::same_as<F, basic_any_resource>) explicit basic_any_resource(F const& f)
      : held_(detail::shared_owner<detail::erased_stack>::make<detail::made_stack<made_by<F>>>(f)) {
    static_assert(!Device || weir::device_accessible<made_by<F>>,
                  "any_resource promises memory that the device can reach; this stack's is not. "
                  "Use any_host_resource for host memory.");
    static_assert(!Host || weir::host_accessible<made_by<F>>,
                  "any_host_resource promises memory that the host can reach; this stack's is not. "
                  "Use any_resource for device memory.");
  }

  // The constructor above is the better one where it is named: this one has a pack.
  template <detail::cannot_be_shared F, class... Nothing>
  basic_any_resource(F const&, Nothing...) = delete;  // weir: a recipe is made by name: `weir::any_resource(recipe)`

  /// Shares the stack of `other` and forgets a promise; the other way round does not compile.
  template <bool D, bool H>
  basic_any_resource(basic_any_resource<D, H> const& other) noexcept requires((D || !Device) && (H || !Host))
      : held_(other.held_) {}

  /// Not to be called: a stack that is made has an owner.
  template <resource R>
  requires(!recipe<R>) explicit basic_any_resource(R const&) {
    static_assert(
        recipe<R>,
        "weir: any_resource makes and owns its stack: give it the recipe, `weir::any_resource(weir::async{} | "
        "weir::pool{})`, or `weir::share(memory)` to refer to a stack that outlives it");
  }

  basic_any_resource(basic_any_resource const&) = default;
  basic_any_resource& operator=(basic_any_resource const&) = default;
  basic_any_resource(basic_any_resource&& other) noexcept : held_(std::exchange(other.held_, none())) {}
  basic_any_resource& operator=(basic_any_resource&& other) noexcept {
    held_ = std::exchange(other.held_, none());
    return *this;
  }

  using detail::cuda_mr_calls<basic_any_resource>::allocate;
  using detail::cuda_mr_calls<basic_any_resource>::deallocate;
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) const {
    return held_->allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes,
                  std::size_t alignment = default_alignment) const noexcept {
    held_->deallocate(stream, p, bytes, alignment);
  }

  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) const noexcept {
    held_->deallocate_after(stream, p, bytes, others, alignment);
  }

  void describe(report& out) const { held_->describe(out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return held_->taken(bytes, alignment); }
  bool holds_captured(std::uint64_t capture) const noexcept { return held_->holds_captured(capture); }
  /// The stack's device (`device_of`).
  int device() const noexcept { return held_->device(); }
  /// Shows all layers, outermost first: what `weir::trim`, `numbers` and their like ask through. One that was moved
  /// from has none.
  void visit_layers(layer_visitor& visitor) const { held_->visit_layers(visitor); }

  basic_any_resource operator()() const { return *this; }
  friend bool operator==(basic_any_resource const&, basic_any_resource const&) noexcept = default;

 protected:
  /// The stack that it holds, for who knows its type.
  template <resource R>
  R& stack() const noexcept {
    return static_cast<detail::made_stack<R>&>(*held_).held;
  }

 private:
  template <bool, bool>
  friend class basic_any_resource;

  static detail::shared_owner<detail::erased_stack> none() noexcept {
    static constinit detail::no_stack none;
    return detail::shared_owner<detail::erased_stack>::unowned(none);
  }

  detail::shared_owner<detail::erased_stack> held_;
};

using any_resource = basic_any_resource<true, false>;             ///< memory for kernels
using any_host_resource = basic_any_resource<false, true>;        ///< memory for the host
using any_host_device_resource = basic_any_resource<true, true>;  ///< pinned or managed memory: for both

}  // namespace weir
