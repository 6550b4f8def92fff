#pragma once
// The host's heap, which all memory is taken from, internal: each allocation is a block of its own there, so that a
// host's memory checkers see it.

#include <cstddef>

namespace weir::sim::detail {

/// Null if the host has no room.
void* take_from_heap(std::size_t bytes, std::size_t alignment);
/// Gives a block back, as the stream whose turn it is. `waited`: after a wait for all work, which is no order that the
/// program may rely on, so that the thread sanitizer is not told of it.
void give_to_heap(void* p, std::size_t bytes, bool waited);

/// Under the address sanitizer: who touches the memory between the two makes a mistake.
void forbid(void* p, std::size_t bytes);
void allow(void* p, std::size_t bytes);

/// Overwrites memory with bytes that differ from call to call: all of a small block, both ends of a large one.
void scribble(void* p, std::size_t bytes, unsigned char pattern);

/// What a stream-ordered allocation does when it executes.
void begin_use(void* p, std::size_t bytes, unsigned char pattern);

}  // namespace weir::sim::detail
