#pragma once
// What a pointer was allocated with, asked of the stack that gave it: for callers that do not know the size any more.

#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <string>

namespace weir {

/// A live block as it was asked for, but for an alignment that `aligned` raised; `bytes` is 0 if there is none.
struct live_block {
  std::size_t bytes = 0;
  std::size_t alignment = 0;
  bool inside = false;  ///< the address is in memory that a layer keeps, whether a live block begins there or not

  explicit operator bool() const noexcept { return bytes != 0; }
};

namespace detail {

/// None where the layer does not know its blocks.
template <class Layer>
live_block block_of_layer(Layer& layer, void const* p) noexcept {
  if constexpr (requires { live_block{layer.find_block(p)}; })
    return layer.find_block(p);
  else
    return {};
}

/// The answer of the outermost layer that has one: layers below may know the address as a block of that layer's.
template <class Top>
live_block find_block(Top& top, void const* p, layer_visitor::extent how_far) noexcept {
  live_block found;
  auto const ask = [&](auto& layer) {
    if (!found.inside) found = detail::block_of_layer(layer, p);
  };
  detail::for_each_layer(top, ask, how_far);
  return found;
}

}  // namespace detail

/// The live block of a stack that begins at `p`, with the size and alignment that it was asked for. `memory` is a
/// stack or any handle to one. `pool`, `arena`, `fixed_size`, `scrub` and `tracking` know their blocks; other layers
/// are passed by. Constant time and a short lock, unless there is none. Thread-safe; the caller's block stays live
/// meanwhile.
template <detail::changeable Top>
live_block find_block(Top&& memory, void const* p) noexcept {
  return detail::find_block(memory, p, layer_visitor::extent::all);
}

/// `memory.deallocate` for a caller who knows no size: asks the stack first, so that each layer takes back what it
/// counted. Null is nothing. A pointer of which no layer knows a live block goes to the misuse handler. When not to use
/// it: where the size is at hand; it is looked up, and a wrong one is then not noticed.
template <detail::changeable Top>
void deallocate_unsized(Top&& memory, stream_ref stream, void* p) noexcept {
  if (p == nullptr) return;
  if (live_block const found = weir::find_block(memory, p)) {
    memory.deallocate(stream, p, found.bytes, found.alignment);
  } else {
    detail::report_misuse("weir: deallocate_unsized of " + detail::hex(p) +
                          (found.inside
                               ? ": it lies in this stack's memory but no live block starts there (freed "
                                 "twice, or not the pointer that allocate returned)"
                               : ": no layer of this stack knows it (freed twice, allocated by another "
                                 "resource, or by a stack without pool, arena, fixed_size, scrub or tracking)"));
  }
}

}  // namespace weir
