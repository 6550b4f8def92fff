#pragma once
// What the layers of a stack know about themselves, whatever the stack's type; and finding one by its name.

#include <weir/core/layer_numbers.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/printable.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

namespace detail {

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

/// The first layer for which `pick(layer)` gives something, as an optional, one of the stack itself before those of its
/// bins; throws if there is none, and says which there are by `shown(numbers)`, which is empty for those that do not
/// count.
template <class Found, class Top, class Pick, class Shown>
Found find_layer(Top& top, std::string const& wanted, Pick pick, Shown shown) {
  std::optional<Found> found;
  unsigned found_depth = 0;
  std::string others;
  detail::for_each_layer_and_part(top, [&](auto& layer, unsigned depth) {
    if (found && depth >= found_depth) return;
    layer_numbers const one = detail::numbers_of_layer(layer);
    if (auto const picked = pick(layer, one)) {
      found.emplace(*picked);
      found_depth = depth;
    }
    if (std::string const text = shown(one); !text.empty()) others += (others.empty() ? "" : ", ") + text;
  });
  if (found) return *found;
  throw std::invalid_argument("weir: this stack has no " + wanted + (others.empty() ? "" : "; it has " + others));
}

inline std::string quoted(std::string_view name) {
  std::string text = "'";  // added to: of a sum of strings g++ 12 warns where it optimises
  return text.append(printable(name)).append("'");
}

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

/// Lets the peaks of all layers start again from what is so now, say at the beginning of a phase; of bins and second
/// stacks too. `memory` is a stack, or any handle to one. A CUDA pool that is someone else's (`use_default_pool`,
/// `pool`) keeps its peaks; what a pool learnt from its own (`max_waste`) is not forgotten. Costs a short lock a layer,
/// and two CUDA calls for `async`. Thread-safe: a peak that is reached meanwhile may count or not. Never throws; what
/// CUDA refuses is not reset.
template <detail::changeable Top>
void reset_peaks(Top&& memory) noexcept {
  detail::for_each_layer_and_part(memory, [](auto& layer, unsigned) { detail::reset_peaks_of_layer(layer); });
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
