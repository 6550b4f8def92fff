#pragma once
// What the layers of a stack know about themselves, as numbers, whatever the stack's type; and finding one by its name.

#include <weir/core/layers.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/report.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

/// What one layer knows about itself at one moment; what it does not know is empty. Bytes, but for the counts.
struct layer_numbers {
  std::string layer = {};  ///< what it is: `pool`
  std::string name = {};   ///< whose it is, where its options say (`limit{.name = "search"}`); else empty
  unsigned depth = 0;  ///< 1 and more: it belongs to a bin of the last layer before it in the list that is less deep

  std::optional<std::size_t> requested = {};  ///< as callers asked
  std::optional<std::size_t> requested_peak = {};
  std::optional<std::size_t> allocated = {};  ///< what serves it
  std::optional<std::size_t> allocated_peak = {};
  std::optional<std::size_t> reserved = {};  ///< held from the layer below, or from CUDA
  std::optional<std::size_t> reserved_peak = {};
  std::optional<std::size_t> pending = {};   ///< of `reserved`: freed, but not known to be done
  std::optional<std::size_t> free = {};      ///< of `reserved`: for anyone to take
  std::optional<std::size_t> captured = {};  ///< of `reserved`, or of `charged`: kept for graphs
  std::optional<std::size_t> charged = {};   ///< against a budget
  std::optional<std::size_t> charged_peak = {};
  std::optional<std::size_t> max_bytes = {};  ///< the most that may be charged, or held; empty: no limit
  std::optional<std::uint64_t> live = {};     ///< how many allocations
  std::optional<std::uint64_t> refused = {};  ///< how many requests this layer refused
  std::optional<std::uint64_t> failed = {};   ///< how many it saw fail, here or below

  friend bool operator==(layer_numbers const&, layer_numbers const&) = default;
};

namespace detail {

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
};
template <budget Layer>
inline constexpr budget_functions functions_of_budget = {
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->used(); },
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->max_bytes(); },
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->peak(); },
    [](void const* layer) noexcept { return static_cast<Layer const*>(layer)->refused(); },
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

 private:
  void* layer_;
  detail::budget_functions const* functions_;
};

namespace detail {

/// The functions of a layer whose type is forgotten; one table a type.
struct layer_functions {
  bool keeps_memory;
  std::size_t (*trim)(void* layer, std::size_t keep) noexcept;
  std::size_t (*reserved)(void const* layer) noexcept;
  void (*synchronize)(void* layer) noexcept;
  std::size_t (*release_captured)(void* layer, std::uint64_t capture) noexcept;
  void (*visit_parts)(void* layer, layer_visitor& visitor);
  layer_numbers (*numbers)(void const* layer);
  std::optional<limit_ref> (*limit)(void* layer) noexcept;
};
template <class Layer>
layer_functions const& functions_of_layer() noexcept;

}  // namespace detail

/// One layer of a stack whose type is forgotten. Two words; refers to the layer, which must outlive it. Unlike the
/// functions of the same names for a stack, these ask this layer alone.
class layer_ref {
 public:
  template <class Layer>
  requires(!std::same_as<Layer, layer_ref>) explicit layer_ref(Layer& layer) noexcept
      : layer_(&layer), functions_(&detail::functions_of_layer<Layer>()) {}

  /// Whether there is anything for `trim` to do, ever.
  bool keeps_memory() const noexcept { return functions_->keeps_memory; }
  /// Gives idle memory back to the layer below until at most `keep` bytes are held; returns how many bytes went.
  std::size_t trim(std::size_t keep = 0) const noexcept { return functions_->trim(layer_, keep); }
  /// Bytes held from the layer below; 0 where the layer does not say.
  std::size_t reserved() const noexcept { return functions_->reserved(layer_); }
  void synchronize() const noexcept { functions_->synchronize(layer_); }
  std::size_t release_captured(std::uint64_t capture = 0) const noexcept {
    return functions_->release_captured(layer_, capture);
  }
  layer_numbers numbers() const { return functions_->numbers(layer_); }
  /// Empty where this layer is no limit.
  std::optional<limit_ref> limit() const noexcept { return functions_->limit(layer_); }

  /// Shows the layers that stand beside the upstream, as those of bins do.
  void visit_parts(layer_visitor& visitor) const { functions_->visit_parts(layer_, visitor); }

 private:
  void* layer_;
  detail::layer_functions const* functions_;
};

namespace detail {

/// What a layer is called: what it says, else the first word of its line in a report.
template <class Layer>
std::string layer_name(Layer const& layer) {
  if constexpr (requires { std::string(Layer::layer_name); }) {
    return Layer::layer_name;
  } else {
    report own;
    if constexpr (requires { layer.describe_layer(own); })
      layer.describe_layer(own);
    else if constexpr (!requires { layer.upstream(); })
      weir::describe(layer, own);
    std::string const name = own.chain().substr(0, own.chain().find('('));
    return name.empty() ? "unnamed" : name;
  }
}

template <class Layer>
std::string given_name(Layer const& layer) {
  if constexpr (requires { std::string(layer.name()); })
    return layer.name();
  else
    return {};
}

/// Copies what `from`, a layer's `numbers()`, has of each kind; a level has `.current` and `.peak`.
template <class Numbers>
void read_numbers(Numbers const& from, layer_numbers& to) {
  auto const read = [](auto const& level, auto& now, auto& peak) {
    now = static_cast<std::size_t>(level.current);
    peak = static_cast<std::size_t>(level.peak);
  };
  if constexpr (requires { from.requested.peak; }) read(from.requested, to.requested, to.requested_peak);
  if constexpr (requires { from.allocated.peak; }) read(from.allocated, to.allocated, to.allocated_peak);
  if constexpr (requires { from.reserved.peak; }) read(from.reserved, to.reserved, to.reserved_peak);
  if constexpr (requires { from.pending; }) to.pending = from.pending;
  if constexpr (requires { from.free; }) to.free = from.free;
  if constexpr (requires { from.captured; }) to.captured = from.captured;
  if constexpr (requires { from.live(); }) to.live = static_cast<std::uint64_t>(from.live());
  if constexpr (requires { from.out_of_memory; }) to.refused = from.out_of_memory;
  if constexpr (requires { from.failures; }) to.failed = static_cast<std::uint64_t>(from.failures);
}

template <class Layer>
layer_numbers numbers_of_layer(Layer const& layer) {
  layer_numbers out{.layer = detail::layer_name(layer), .name = detail::given_name(layer)};
  if constexpr (requires { layer.numbers(); }) try {
      detail::read_numbers(layer.numbers(), out);
    } catch (cuda_error const&) {  // a source that asks CUDA, which does not answer: nothing is known
    }
  else if constexpr (requires { std::size_t{layer.reserved()}; })
    out.reserved = layer.reserved();
  if constexpr (requires { std::size_t{layer.max_bytes()}; })
    if (layer.max_bytes() != 0) out.max_bytes = layer.max_bytes();
  if constexpr (budget<Layer>) {
    out.charged = layer.used();
    out.charged_peak = layer.peak();
    out.refused = layer.refused();
    if constexpr (requires { std::size_t{layer.captured()}; }) out.captured = layer.captured();
  }
  return out;
}
inline layer_numbers numbers_of_layer(layer_ref const& layer) { return layer.numbers(); }

/// Bytes that a layer holds from the one below; 0 where it does not say.
template <class Layer>
std::size_t reserved_by_layer(Layer const& layer) noexcept try {
  if constexpr (requires { std::size_t{layer.reserved()}; })
    return layer.reserved();
  else if constexpr (requires { std::size_t{layer.numbers().reserved.current}; })
    return layer.numbers().reserved.current;
  else
    return 0;
} catch (cuda_error const&) {
  return 0;
}

/// What the lowest layer that keeps memory holds: all that the stack took from below. 0 where none does.
template <class Top>
std::size_t reserved_by_layers(Top& top, layer_visitor::extent how_far) noexcept {
  std::size_t reserved = 0;
  auto const ask_one = [&](auto& layer) {
    if (detail::keeps_memory(layer)) reserved = detail::reserved_by_layer(layer);
  };
  detail::for_each_layer(top, ask_one, how_far);
  return reserved;
}

template <class Layer>
std::optional<limit_ref> limit_of(Layer& layer) noexcept {
  if constexpr (budget<Layer>)
    return limit_ref(layer);
  else
    return std::nullopt;
}
inline std::optional<limit_ref> limit_of(layer_ref& layer) noexcept { return layer.limit(); }

template <class Layer>
layer_ref ref_to(Layer& layer) noexcept {
  return layer_ref(layer);
}
inline layer_ref ref_to(layer_ref& layer) noexcept { return layer; }

/// Shows the layers that stand beside a layer's upstream, if it has some.
template <class Layer>
void visit_parts(Layer& layer, layer_visitor& visitor) {
  if constexpr (requires { layer.visit_parts(visitor); }) layer.visit_parts(visitor);
}

template <class Layer>
layer_functions const& functions_of_layer() noexcept {
  static constexpr layer_functions functions = {
      keeper<Layer>,
      [](void* layer, std::size_t keep) noexcept { return detail::trim_layer(*static_cast<Layer*>(layer), keep); },
      [](void const* layer) noexcept { return detail::reserved_by_layer(*static_cast<Layer const*>(layer)); },
      [](void* layer) noexcept { detail::synchronize_layer(*static_cast<Layer*>(layer)); },
      [](void* layer, std::uint64_t capture) noexcept {
        return detail::release_captured_layer(*static_cast<Layer*>(layer), capture);
      },
      [](void* layer, layer_visitor& visitor) { detail::visit_parts(*static_cast<Layer*>(layer), visitor); },
      [](void const* layer) { return detail::numbers_of_layer(*static_cast<Layer const*>(layer)); },
      [](void* layer) noexcept { return detail::limit_of(*static_cast<Layer*>(layer)); },
  };
  return functions;
}

/// Shows the layers of a stack to a visitor that came through an erased type.
template <class Top>
void show_layers(Top& top, layer_visitor& visitor) {
  auto const show_one = [&](auto& layer) {
    layer_ref shown = detail::ref_to(layer);
    visitor.see(shown);
  };
  detail::for_each_layer(top, show_one, visitor.how_far());
}

/// Calls `f(layer, depth)` for each layer of a stack, and after each for those of its bins, one deeper.
template <class Top, class F>
void for_each_layer_and_part(Top& top, F&& f) {
  auto const see = [&](auto const& self, auto& layer, unsigned depth) -> void {
    f(layer, depth);
    auto const deeper = [&](auto& part) { self(self, part, depth + 1); };
    calling_visitor<decltype(deeper)> parts(deeper, layer_visitor::extent::own);
    detail::visit_parts(layer, parts);
  };
  detail::for_each_layer(top, [&](auto& layer) { see(see, layer, 0); });
}

/// The first layer for which `pick(layer)` gives something, as an optional; throws if there is none, and says which
/// there are by `shown(numbers)`, which is empty for those that do not count.
template <class Found, class Top, class Pick, class Shown>
Found find_layer(Top& top, std::string const& wanted, Pick pick, Shown shown) {
  std::optional<Found> found;
  std::string others;
  detail::for_each_layer_and_part(top, [&](auto& layer, unsigned) {
    if (found) return;
    layer_numbers const one = detail::numbers_of_layer(layer);
    found = pick(layer, one);
    if (std::string const text = shown(one); !text.empty()) others += (others.empty() ? "" : ", ") + text;
  });
  if (found) return *found;
  throw std::invalid_argument("weir: this stack has no " + wanted + (others.empty() ? "" : "; it has " + others));
}

inline std::string quoted(std::string_view name) { return "'" + printable(name) + "'"; }

}  // namespace detail

/// What each layer of a stack knows about itself, outermost first; after `binning`, the layers of its bins, from the
/// first bin to the last. `top` is a stack, or any handle to one. Each entry is of one moment; all of them are not.
/// Costs what the layers' own `numbers()` cost: a short lock for a pool, some CUDA calls for `async`. Thread-safe.
template <resource Top>
std::vector<layer_numbers> numbers(Top const& top) {
  std::vector<layer_numbers> all;
  detail::for_each_layer_and_part(top, [&](auto& layer, unsigned depth) {
    all.push_back(detail::numbers_of_layer(layer));
    all.back().depth = depth;
  });
  return all;
}

/// The outermost layer of a stack that is called `name`, by its options (`limit{.name = "search"}`) or by what it is
/// (`pool`). Throws `std::invalid_argument` if there is none. The stack must outlive what is returned.
template <detail::changeable Top>
layer_ref find(Top&& top, std::string_view name) {
  return detail::find_layer<layer_ref>(
      top, "layer called " + detail::quoted(name),
      [name](auto& layer, layer_numbers const& one) {
        return one.name == name || one.layer == name ? std::optional(detail::ref_to(layer)) : std::nullopt;
      },
      [](layer_numbers const& one) { return one.layer + (one.name.empty() ? "" : " " + detail::quoted(one.name)); });
}

/// The outermost limit of a stack that is called `name`; without a name, the outermost of all. Throws
/// `std::invalid_argument` if there is none. The stack must outlive what is returned.
template <detail::changeable Top>
limit_ref find_limit(Top&& top, std::string_view name = {}) {
  return detail::find_layer<limit_ref>(
      top, name.empty() ? "limit" : "limit called " + detail::quoted(name),
      [name](auto& layer, layer_numbers const& one) {
        return name.empty() || one.name == name ? detail::limit_of(layer) : std::nullopt;
      },
      [](layer_numbers const& one) {
        return one.charged ? one.name.empty() ? "one without a name" : detail::quoted(one.name) : std::string();
      });
}

}  // namespace weir
