#pragma once
// How a layer that does something by itself says so to whoever records events.

#include <weir/core/layers.hpp>
#include <weir/core/shown_events.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>

namespace weir::detail {

/// Tells one layer, whose type may be forgotten; false where it records nothing.
template <class Layer>
bool note_event_in(Layer& layer, trace_action action, void const* p, std::size_t bytes, stream_ref stream) noexcept {
  if constexpr (requires { bool{layer.note_event(action, p, bytes, stream)}; })
    return layer.note_event(action, p, bytes, stream);
  else
    return false;
}

/// Says that a layer did `action` to `bytes` at `p`, to the first layer at or below `top` that records events; nothing
/// happens where none does. For what no request shows: a pool that moved chunks, contents that went to the host. Not
/// for a hot path: looks at each layer that is erased. Never throws, and takes no memory.
template <class Top>
void note_event(Top& top, trace_action action, void const* p, std::size_t bytes, stream_ref stream) noexcept {
  bool noted = false;
  detail::for_each_layer(top,
                         [&](auto& layer) { noted = noted || detail::note_event_in(layer, action, p, bytes, stream); });
}

}  // namespace weir::detail
