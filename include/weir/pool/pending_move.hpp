#pragma once
// Idle chunks of one stream that are moved before its work is done.

#include <weir/cuda/event.hpp>
#include <weir/pool/idle_chunks.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>

namespace weir::detail {

/// Chunks that a stream freed, shown to it elsewhere while its work may still use them where they were. That work comes
/// first in the stream's order, at whichever address. When it is `done`, they are taken away where they were.
struct pending_move {
  /// Finds at most `bytes` in `list`, the stream's. May throw `std::bad_alloc` and `cuda_error`.
  pending_move(stream_ordered_heap& heap, pool_level& reserved, std::size_t chunk, std::size_t bytes, list_id list)
      : chunks(heap, reserved, chunk, bytes, list) {}

  idle_chunks chunks;
  event done;
  shared_owner<pending_move> next;
};

}  // namespace weir::detail
