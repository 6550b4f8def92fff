#pragma once
// Asking a stack layer by layer, whatever its type: trim, synchronize, release_captured. `numbers.hpp` asks for more.

#include <weir/core/handle.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/support/type_mark.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weir {

class layer_ref;  // in layer_ref.hpp

/// What a reference refers to. The address alone would not do: a layer and the upstream that is its first member share
/// one.
struct referred_object {
  void const* address = nullptr;
  detail::type_mark type = {};

  friend constexpr bool operator==(referred_object const&, referred_object const&) noexcept = default;
};

namespace detail {

template <class R>
constexpr referred_object referred_to(R& object) noexcept {
  return {&object, type_mark::of<std::remove_const_t<R>>()};
}

}  // namespace detail

/// What a stack whose type is forgotten shows its layers to. Such a type has one function for it,
/// `visit_layers(layer_visitor&)`, which all questions go through.
class layer_visitor {
 public:
  /// How far down to go: through all references; only to the first, since what is below is someone else's (`own`); or
  /// through all but those to one resource (`above`).
  class extent {
   public:
    static extent const all, own;
    static constexpr extent above(referred_object end) noexcept { return extent(true, end); }

    /// Whether to go on with what a reference refers to.
    constexpr bool enters(referred_object there) const noexcept { return enters_ && there != end_; }

   private:
    constexpr extent(bool enters, referred_object end) noexcept : enters_(enters), end_(end) {}

    bool enters_;
    referred_object end_;
  };

  explicit layer_visitor(extent how_far) noexcept : how_far_(how_far) {}
  virtual void see(layer_ref& layer) = 0;
  /// Called by `visit_parts` of a layer ahead of each stack that it shows: what follows does not stand below what was
  /// shown before.
  virtual void begin_part() {}
  extent how_far() const noexcept { return how_far_; }

 protected:
  ~layer_visitor() = default;

 private:
  extent how_far_;
};
inline constexpr layer_visitor::extent layer_visitor::extent::all(true, {});
inline constexpr layer_visitor::extent layer_visitor::extent::own(false, {});

namespace detail {

template <class R>
inline constexpr bool is_resource_ref = false;
template <class R>
inline constexpr bool is_resource_ref<resource_ref<R>> = true;

/// Calls a function for each layer that it is shown.
template <class F>
class calling_visitor final : public layer_visitor {
 public:
  calling_visitor(F& f, extent how_far) noexcept : layer_visitor(how_far), f_(f) {}
  void see(layer_ref& layer) override { f_(layer); }

 private:
  F& f_;
};

/// What lives while the layers below `layer` are asked: what its `scope_below()` gives, if it has that.
template <class Layer>
auto scope_below(Layer& layer) {
  if constexpr (requires { layer.scope_below(); })
    return layer.scope_below();
  else
    return nullptr;
}

/// Calls `f(layer)` for each layer of a stack, outermost first: with the layer itself where its type is known, with a
/// `layer_ref` where it is forgotten. Handles are no layers.
template <class Top, class F>
void for_each_layer(Top& top, F&& f, layer_visitor::extent how_far = layer_visitor::extent::all) {
  auto& layer = const_cast<std::remove_const_t<Top>&>(top);
  if constexpr (requires(layer_visitor & visitor) { layer.visit_layers(visitor); }) {
    calling_visitor<std::remove_reference_t<F>> visitor(f, how_far);
    layer.visit_layers(visitor);
  } else if constexpr (is_resource_ref<std::remove_const_t<Top>>) {
    if (how_far.enters(detail::referred_to(layer.upstream()))) detail::for_each_layer(layer.upstream(), f, how_far);
  } else {
    f(layer);
    if constexpr (requires { layer.upstream(); }) {
      [[maybe_unused]] auto const scope = detail::scope_below(layer);
      auto&& below = layer.upstream();
      detail::for_each_layer(below, f, how_far);
    }
  }
}

/// A layer that can keep memory which nobody uses, and give it back.
template <class Layer>
concept keeper = requires(Layer& layer) {
  std::size_t{layer.trim_layer(std::size_t{})};
}
|| requires(Layer& layer) { std::size_t{layer.trim(std::size_t{})}; };

/// The same of a layer whose type may be forgotten.
template <class Layer>
bool keeps_memory(Layer const& layer) noexcept {
  if constexpr (requires { bool{layer.keeps_memory()}; })
    return layer.keeps_memory();
  else
    return keeper<Layer>;
}

/// A layer that takes memory for more than one request and cuts blocks from it: it can keep memory, and its own. One
/// that passes requests on as they are, and has only a stack beside it trimmed, says so by
/// `static constexpr bool passes_requests_on`.
template <class Layer>
inline constexpr bool is_own_keeper = [] {
  if constexpr (requires { bool{Layer::passes_requests_on}; }) return keeper<Layer> && !bool{Layer::passes_requests_on};
  return keeper<Layer>;
}();

/// The same of a layer whose type may be forgotten.
template <class Layer>
bool keeps_what_it_takes(Layer const& layer) noexcept {
  if constexpr (requires { bool{layer.keeps_what_it_takes()}; })
    return layer.keeps_what_it_takes();
  else
    return is_own_keeper<Layer>;
}

/// A layer below which requests and frees arrive otherwise than they came: in other sizes, or later. It says so by
/// `static constexpr bool changes_requests`.
template <class Layer>
inline constexpr bool says_it_changes_requests = [] {
  if constexpr (requires { bool{Layer::changes_requests}; }) return bool{Layer::changes_requests};
  return false;
}();

/// The same of a layer whose type may be forgotten.
template <class Layer>
bool changes_requests(Layer const& layer) noexcept {
  if constexpr (requires { bool{layer.changes_requests()}; })
    return layer.changes_requests();
  else
    return says_it_changes_requests<Layer>;
}

/// Lets one layer give back what is idle; what it says that this is, in bytes.
template <class Layer>
std::size_t trim_layer(Layer& layer, std::size_t keep) noexcept try {
  if constexpr (requires { std::size_t{layer.trim_layer(keep)}; })
    return layer.trim_layer(keep);
  else if constexpr (requires { std::size_t{layer.trim(keep)}; })
    return layer.trim(keep);
  else
    return 0;
} catch (...) {  // a source of the user's own
  return 0;
}

template <class Layer>
void synchronize_layer(Layer& layer) noexcept {
  if constexpr (requires { layer.synchronize(); }) layer.synchronize();
}

template <class Layer>
std::size_t release_captured_layer(Layer& layer, std::uint64_t capture) noexcept {
  if constexpr (requires { std::size_t{layer.release_captured(capture)}; })
    return layer.release_captured(capture);
  else
    return 0;
}

/// `weir::trim`, as far down as it is told to.
template <class Top>
std::size_t trim_layers(Top& top, std::size_t keep, layer_visitor::extent how_far) noexcept {
  std::size_t released = 0;
  bool is_of_keeper = false;
  auto const trim_one = [&](auto& layer) {
    if (!detail::keeps_memory(layer)) return;
    std::size_t const gone = detail::trim_layer(layer, keep);
    bool const is_keeper = detail::keeps_what_it_takes(layer);
    if (is_keeper || !is_of_keeper) released = gone;
    is_of_keeper = is_of_keeper || is_keeper;
  };
  detail::for_each_layer(top, trim_one, how_far);
  return released;
}

template <class Top>
void synchronize_layers(Top& top, layer_visitor::extent how_far) noexcept {
  detail::for_each_layer(
      top, [](auto& layer) { detail::synchronize_layer(layer); }, how_far);
}

template <class Top>
std::size_t release_captured_layers(Top& top, std::uint64_t capture, layer_visitor::extent how_far) noexcept {
  std::size_t released = 0;
  auto const release_one = [&](auto& layer) { released += detail::release_captured_layer(layer, capture); };
  detail::for_each_layer(top, release_one, how_far);
  return released;
}

/// What may be asked to change: a stack that is not const, or any handle.
template <class Top>
concept changeable = resource<std::remove_reference_t<Top>> &&
    (!std::is_const_v<std::remove_reference_t<Top>> || handle<std::remove_cvref_t<Top>>);

}  // namespace detail

/// Gives memory that nobody uses back to the system, through all layers of a stack, as `torch.cuda.empty_cache` does:
/// each layer that keeps memory, from the top down, gives back what is idle until it holds at most `keep` bytes, the
/// source too. `memory` is a stack, or any handle to one. Returns how many bytes the lowest of those layers gave back:
/// for a stack that ends in a source, what the system has more of; bytes that only went from one layer to the next are
/// not in it, nor is what a second stack (`fallback`) gave back, unless no layer of the stack itself keeps memory. Does
/// not wait: memory whose work is not known to be done stays; call `weir::synchronize` first to give back all that can
/// be. Thread-safe as the stack is. Breaks no stream capture, and leaves what is kept for graphs. Never throws; what
/// CUDA refuses is not released. When not to use it: between requests as a habit, each trim makes the next request ask
/// CUDA again.
template <detail::changeable Top>
std::size_t trim(Top&& memory, std::size_t keep = 0) noexcept {
  return detail::trim_layers(memory, keep, layer_visitor::extent::all);
}

/// Lets the host wait, in all layers of a stack that can (`pool`, `arena`, `fixed_size`, `binning`), until all work on
/// freed blocks is done. Thread-safe as the stack is; does not wait for a stream that is being captured.
template <detail::changeable Top>
void synchronize(Top&& memory) noexcept {
  detail::synchronize_layers(memory, layer_visitor::extent::all);
}

/// Makes the memory of a stream capture (`weir::capture_id`; 0: of all captures) everyone's again, in all layers of a
/// stack; returns how many bytes that is. When it may be called, and what it costs: see
/// `pool_resource::release_captured`.
template <detail::changeable Top>
std::size_t release_captured(Top&& memory, std::uint64_t capture = 0) noexcept {
  return detail::release_captured_layers(memory, capture, layer_visitor::extent::all);
}

}  // namespace weir
