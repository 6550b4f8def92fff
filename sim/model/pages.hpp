#pragma once
// The host's pages that virtual memory is made of, internal: one file without a name, mapped wherever views are.

#include <cstddef>
#include <optional>

namespace weir::sim::detail {

/// Takes addresses without memory, on which every access faults: at `hint` if they are free there. `alignment` is a
/// power of two of at least a page. Null if the host has none.
void* reserve_addresses(void* hint, std::size_t bytes, std::size_t alignment);
void give_addresses_back(void* p, std::size_t bytes);

/// Whole pages, of the heap or of views that are open, are 0 afterwards, without a write. False if the host refuses.
bool zero_pages(void* p, std::size_t bytes, bool views);

/// Takes memory: its place in the file, where nobody was before. None if the host has no room.
std::optional<std::size_t> take_pages(std::size_t bytes);
/// The memory goes back to the host.
void give_pages_back(std::size_t place, std::size_t bytes);
/// Overwrites memory that is mapped nowhere yet with bytes that differ from call to call.
void scribble_pages(std::size_t place, std::size_t bytes, unsigned char pattern);

/// Puts the memory at reserved addresses, where nobody may touch it yet. False if the host refuses (it limits how many
/// mappings a process may have).
bool map_pages(void* at, std::size_t place, std::size_t bytes);
/// Whether the program may touch what is mapped there. False if the host refuses.
bool open_pages(void* at, std::size_t bytes, bool open);
/// Leaves reserved addresses without memory. False if the host refuses.
bool unmap_pages(void* at, std::size_t bytes);

}  // namespace weir::sim::detail
