#pragma once
// A budget of a stack, whatever the stack's type.

#include <weir/support/type_mark.hpp>
#include <weir/version.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace weir {

namespace detail {

class limit_below;
struct limit_above;  // in adaptors/detail/limits_above.hpp

/// A layer with a budget, as `limit` makes one.
template <class Layer>
concept budget = requires(Layer const& layer) {
  std::size_t{layer.used()};
  std::size_t{layer.max_bytes()};
  std::size_t{layer.peak()};
  std::uint64_t{layer.refused()};
};

/// The functions of a budget whose type is forgotten.
struct budget_functions {
  std::size_t (*used)(void const* layer) noexcept;
  std::size_t (*max_bytes)(void const* layer) noexcept;
  std::size_t (*peak)(void const* layer) noexcept;
  std::uint64_t (*refused)(void const* layer) noexcept;
  std::size_t (*reserve_left)(void const* layer) noexcept;
  void (*set_max_bytes)(void* layer, std::size_t bytes);
  void (*reserve)(void* layer, std::size_t bytes, std::size_t granularity, char const* above);
  void (*release_reserve)(void* layer, std::size_t bytes) noexcept;
  void (*add_above)(void* layer, limit_above& above) noexcept;
  void (*remove_above)(void* layer, limit_above& above) noexcept;
  void (*adopt_captured)(void* layer, std::uint64_t capture, std::size_t bytes) noexcept;
  void (*use_captured_again)(void* layer, std::uint64_t capture, std::size_t bytes) noexcept;
  type_mark type;
};
template <budget Layer>
inline constexpr budget_functions functions_of_budget = {
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->used(); },
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->max_bytes(); },
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->peak(); },
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->refused(); },
    [](void const* layer) noexcept -> std::size_t {
      if constexpr (requires(Layer const& known) { std::size_t{known.reserve_left()}; })
        return static_cast<Layer const*>(layer)->reserve_left();
      else
        return 0;
    },
    [](void* layer, std::size_t bytes) {
      if constexpr (requires(Layer & known) { known.set_max_bytes(bytes); })
        static_cast<Layer*>(layer)->set_max_bytes(bytes);
      else
        throw std::logic_error("weir: set_max_bytes: the layer of this budget has no such function");
    },
    [](void* layer, std::size_t bytes, std::size_t granularity, char const* above) {
      if constexpr (requires(Layer & known) { known.reserve(bytes, granularity, above); })
        static_cast<Layer*>(layer)->reserve(bytes, granularity, above);
      else
        throw std::logic_error("weir: limit: reserve_bytes are taken from the limit below; that layer has no reserves");
    },
    [](void* layer, std::size_t bytes) noexcept {
      if constexpr (requires(Layer & known) { known.release_reserve(bytes); })
        static_cast<Layer*>(layer)->release_reserve(bytes);
    },
    [](void* layer, limit_above& above) noexcept {
      if constexpr (requires(Layer & known) { known.add_above(above); }) static_cast<Layer*>(layer)->add_above(above);
    },
    [](void* layer, limit_above& above) noexcept {
      if constexpr (requires(Layer & known) { known.remove_above(above); })
        static_cast<Layer*>(layer)->remove_above(above);
    },
    [](void* layer, std::uint64_t capture, std::size_t bytes) noexcept {
      if constexpr (requires(Layer & known) { known.adopt_captured(capture, bytes); })
        static_cast<Layer*>(layer)->adopt_captured(capture, bytes);
    },
    [](void* layer, std::uint64_t capture, std::size_t bytes) noexcept {
      if constexpr (requires(Layer & known) { known.use_captured_again(capture, bytes); })
        static_cast<Layer*>(layer)->use_captured_again(capture, bytes);
    },
    type_mark::of<Layer>(),
};

}  // namespace detail

/// A stack's limit, whatever the stack's type. Two words; refers to the layer, which must outlive it. A call costs a
/// load and an indirect call, from any thread.
class limit_ref {
 public:
  template <detail::budget Layer>
  explicit limit_ref(Layer& layer) noexcept : layer_(&layer), functions_(&detail::functions_of_budget<Layer>) {}

  /// Bytes charged now.
  std::size_t used() const noexcept { return functions_->used(layer_); }
  /// The budget in bytes.
  std::size_t max_bytes() const noexcept { return functions_->max_bytes(layer_); }
  /// The most bytes that were charged at one time by requests that were served.
  std::size_t peak() const noexcept { return functions_->peak(layer_); }
  /// How many requests this limit refused.
  std::uint64_t refused() const noexcept { return functions_->refused(layer_); }
  /// What is left of its reserve: 0 where it has none.
  std::size_t reserve_left() const noexcept { return functions_->reserve_left(layer_); }

  /// Changes the budget, as `limit_resource::set_max_bytes`. Throws `std::logic_error` where the layer is one of yours
  /// that has no such function.
  void set_max_bytes(std::size_t bytes) const { functions_->set_max_bytes(layer_, bytes); }

  /// Equal if they refer to the same layer. Of two that stand in one object both may have its address.
  friend bool operator==(limit_ref const& a, limit_ref const& b) noexcept {
    return a.layer_ == b.layer_ && a.functions_->type == b.functions_->type;
  }

 private:
  friend class detail::limit_below;

  void* layer_;
  detail::budget_functions const* functions_;
};

}  // namespace weir
