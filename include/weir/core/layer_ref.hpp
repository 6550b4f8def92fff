#pragma once
// One layer of a stack, whatever the layer's type; and how a stack whose type is forgotten shows its layers.

#include <weir/core/layer_numbers.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/note_event.hpp>
#include <weir/core/shown_events.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace weir {

namespace detail {

class memory_visitor;  // in shown_memory.hpp
class upstream_calls;  // in pool/upstream_calls.hpp

/// The functions of a layer whose type is forgotten; one table a type.
struct layer_functions {
  bool keeps_memory;
  bool keeps_what_it_takes;
  bool changes_requests;
  std::size_t (*trim)(void* layer, std::size_t keep) noexcept;
  std::size_t (*reserved)(void const* layer) noexcept;
  void (*synchronize)(void* layer) noexcept;
  std::size_t (*release_captured)(void* layer, std::uint64_t capture) noexcept;
  void (*visit_parts)(void* layer, layer_visitor& visitor);
  layer_numbers (*numbers)(void const* layer, look how);
  void (*visit_tags)(void const* layer, tag_visitor& visitor);
  void (*reset_peaks)(void* layer) noexcept;
  std::optional<limit_ref> (*limit)(void* layer) noexcept;
  live_block (*find_block)(void* layer, void const* p) noexcept;
  void (*show_memory)(void* layer, memory_visitor& visitor);
  void (*show_events)(void const* layer, event_visitor& visitor);
  bool (*note_event)(void* layer, trace_action action, void const* p, std::size_t bytes, stream_ref stream) noexcept;
  upstream_calls const* (*shared_upstream_calls)(void const* layer) noexcept;
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
  /// Whether it takes memory for more than one request, and so asks the layer below for other things than it is asked
  /// for: a `pool`, but no `fallback`, whose second stack is all that `trim` trims.
  bool keeps_what_it_takes() const noexcept { return functions_->keeps_what_it_takes; }
  /// Whether requests and frees arrive below this layer in other sizes, or later than they came.
  bool changes_requests() const noexcept { return functions_->changes_requests; }
  /// Gives idle memory back to the layer below until at most `keep` bytes are held; returns how many bytes went.
  std::size_t trim(std::size_t keep = 0) const noexcept { return functions_->trim(layer_, keep); }
  /// Bytes held from the layer below; 0 where the layer does not say.
  std::size_t reserved() const noexcept { return functions_->reserved(layer_); }
  void synchronize() const noexcept { functions_->synchronize(layer_); }
  std::size_t release_captured(std::uint64_t capture = 0) const noexcept {
    return functions_->release_captured(layer_, capture);
  }
  layer_numbers numbers() const { return numbers(detail::look::quick); }
  layer_numbers numbers(detail::look how) const { return functions_->numbers(layer_, how); }
  /// Shows the numbers of each tag; nothing where this layer does not count by tag.
  void visit_tags(detail::tag_visitor& visitor) const { functions_->visit_tags(layer_, visitor); }
  /// Lets the peaks start again from what is so now.
  void reset_peaks() const noexcept { functions_->reset_peaks(layer_); }
  /// Empty where this layer is no limit.
  std::optional<limit_ref> limit() const noexcept { return functions_->limit(layer_); }
  /// None where this layer does not know its blocks.
  live_block find_block(void const* p) const noexcept { return functions_->find_block(layer_, p); }

  /// Shows the segments that this layer holds and who has which blocks, as far as it knows.
  void show_memory(detail::memory_visitor& visitor) const { functions_->show_memory(layer_, visitor); }
  /// Shows what this layer recorded; nothing where it records nothing.
  void show_events(detail::event_visitor& visitor) const { functions_->show_events(layer_, visitor); }
  /// Records what another layer did; false where this layer records nothing. See `detail::note_event`.
  bool note_event(trace_action action, void const* p, std::size_t bytes, stream_ref stream) const noexcept {
    return functions_->note_event(layer_, action, p, bytes, stream);
  }

  /// By which those who stand on it wait for each other; null where this layer is no pool.
  detail::upstream_calls const* shared_upstream_calls() const noexcept {
    return functions_->shared_upstream_calls(layer_);
  }

  /// Shows the layers that stand beside the upstream, as those of bins do.
  void visit_parts(layer_visitor& visitor) const { functions_->visit_parts(layer_, visitor); }

 private:
  void* layer_;
  detail::layer_functions const* functions_;
};

namespace detail {

template <class Layer>
std::optional<limit_ref> limit_of(Layer& layer) noexcept {
  if constexpr (budget<Layer>)
    return limit_ref(layer);
  else
    return std::nullopt;
}

/// Shows the layers that stand beside a layer's upstream, if it has some.
template <class Layer>
void visit_parts(Layer& layer, layer_visitor& visitor) {
  if constexpr (requires { layer.visit_parts(visitor); }) layer.visit_parts(visitor);
}

/// By which those who stand on a layer wait for each other: see `upstream_calls`. Null where it is no pool.
template <class Layer>
upstream_calls const* calls_of_layer(Layer const& layer) noexcept {
  if constexpr (requires { layer.shared_upstream_calls(); })
    return layer.shared_upstream_calls();
  else
    return nullptr;
}

template <class Layer>
void show_memory(Layer& layer, memory_visitor& visitor) {
  if constexpr (requires { layer.show_memory(visitor); }) layer.show_memory(visitor);
}
template <class Layer>
void show_events(Layer const& layer, event_visitor& visitor) {
  if constexpr (requires { layer.show_events(visitor); }) layer.show_events(visitor);
}

template <class Layer>
layer_functions const& functions_of_layer() noexcept {
  static constexpr layer_functions functions = {
      keeper<Layer>,
      is_own_keeper<Layer>,
      says_it_changes_requests<Layer>,
      [](void* layer, std::size_t keep) noexcept { return detail::trim_layer(*static_cast<Layer*>(layer), keep); },
      [](void const* layer) noexcept { return detail::reserved_by_layer(*static_cast<Layer const*>(layer)); },
      [](void* layer) noexcept { detail::synchronize_layer(*static_cast<Layer*>(layer)); },
      [](void* layer, std::uint64_t capture) noexcept {
        return detail::release_captured_layer(*static_cast<Layer*>(layer), capture);
      },
      [](void* layer, layer_visitor& visitor) { detail::visit_parts(*static_cast<Layer*>(layer), visitor); },
      [](void const* layer, look how) { return detail::numbers_of_layer(*static_cast<Layer const*>(layer), how); },
      [](void const* layer, tag_visitor& visitor) { detail::visit_tags(*static_cast<Layer const*>(layer), visitor); },
      [](void* layer) noexcept { detail::reset_peaks_of_layer(*static_cast<Layer*>(layer)); },
      [](void* layer) noexcept { return detail::limit_of(*static_cast<Layer*>(layer)); },
      [](void* layer, void const* p) noexcept { return detail::block_of_layer(*static_cast<Layer*>(layer), p); },
      [](void* layer, memory_visitor& visitor) { detail::show_memory(*static_cast<Layer*>(layer), visitor); },
      [](void const* layer, event_visitor& visitor) {
        detail::show_events(*static_cast<Layer const*>(layer), visitor);
      },
      [](void* layer, trace_action action, void const* p, std::size_t bytes, stream_ref stream) noexcept {
        return detail::note_event_in(*static_cast<Layer*>(layer), action, p, bytes, stream);
      },
      [](void const* layer) noexcept { return detail::calls_of_layer(*static_cast<Layer const*>(layer)); },
  };
  return functions;
}

// ---- what can be asked of a layer, asked of a reference to one

inline layer_numbers numbers_of_layer(layer_ref const& layer, look how = look::quick) { return layer.numbers(how); }
inline void visit_tags(layer_ref const& layer, tag_visitor& visitor) { layer.visit_tags(visitor); }
inline std::optional<limit_ref> limit_of(layer_ref& layer) noexcept { return layer.limit(); }

template <class Layer>
layer_ref ref_to(Layer& layer) noexcept {
  return layer_ref(layer);
}
inline layer_ref ref_to(layer_ref& layer) noexcept { return layer; }

/// Shows the layers of a stack to a visitor that came through an erased type.
template <class Top>
void show_layers(Top& top, layer_visitor& visitor) {
  auto const show_one = [&](auto& layer) {
    layer_ref shown = detail::ref_to(layer);
    visitor.see(shown);
  };
  detail::for_each_layer(top, show_one, visitor.how_far());
}

/// What the lowest layer that keeps what it takes holds: all that the stack took from below. 0 where none does.
template <class Top>
std::size_t reserved_by_layers(Top& top, layer_visitor::extent how_far) noexcept {
  std::size_t reserved = 0;
  auto const ask_one = [&](auto& layer) {
    if (detail::keeps_what_it_takes(layer)) reserved = detail::reserved_by_layer(layer);
  };
  detail::for_each_layer(top, ask_one, how_far);
  return reserved;
}

}  // namespace detail

}  // namespace weir
