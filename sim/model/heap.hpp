#pragma once
// The host's heap, which all memory is taken from, internal: each allocation is a block of its own there, so that a
// host's memory checkers see it.

#include <cstddef>

namespace weir::sim::detail {

/// Null if the host has no room.
void* take_from_heap(std::size_t bytes, std::size_t alignment);
/// Gives a block back, as the stream whose operation this is. `waited`: the host waited for all work on it. The program
/// may not rely on the order of such a free, so the thread sanitizer does not see it.
void give_to_heap(void* p, std::size_t bytes, bool waited);

/// Between the two, the address sanitizer reports every access to the memory.
void forbid(void* p, std::size_t bytes);
void allow(void* p, std::size_t bytes);
/// Of what is no block of the heap: ends what the program itself said of it.
void unpoison(void* p, std::size_t bytes);

/// Overwrites memory with 0. If it is a block's or that of views, most of its pages go back to the host, whose new ones
/// are 0: a program that zeroes gigabytes is to take no memory for it.
enum class pages_of_memory { program, heap, views };
void zero(void* p, std::size_t bytes, pages_of_memory pages);

/// Overwrites memory with bytes that differ from call to call: all of a small block, both ends of a large one.
void scribble(void* p, std::size_t bytes, unsigned char pattern);

/// What a stream-ordered allocation does when it executes.
void begin_use(void* p, std::size_t bytes, unsigned char pattern);

}  // namespace weir::sim::detail
