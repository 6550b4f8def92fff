#pragma once
// What happens to virtual memory, internal: addresses are reserved, physical memory is made, and views of it come and
// go.

#include "allocations/blocks.hpp"
#include "model/runtime.hpp"

#include <optional>

namespace weir::sim::detail {

// ---- addresses
/// Null if the host has none left.
void* reserve(runtime& r, void* hint, std::size_t bytes, std::size_t alignment);
/// False if this is no whole range that was reserved, or something is mapped in it.
bool free_reserved(runtime& r, std::uintptr_t at, std::size_t bytes);
/// Whether memory that begins outside every such range reaches into one.
bool runs_into_reserved(runtime& r, std::uintptr_t at, std::size_t bytes);

// ---- physical memory
/// Null if the device, or the host, has too little left.
physical_memory* create_physical(runtime& r, int device, std::size_t bytes);
/// Null if no such handle is valid now.
physical_memory* find_physical(runtime& r, physical_handle handle);
/// Gives one handle up. The memory goes with the last handle and the last view of it.
void release_physical(runtime& r, physical_memory& memory);

// ---- views
using view = std::map<std::uintptr_t, allocation>::iterator;
/// Views side by side.
struct views {
  view first, end;
};
/// The view that holds this address; the end of all views if none does.
view view_at(runtime& r, std::uintptr_t address);
/// The views that make up these addresses; none if there is a hole between them, or one of them is cut.
std::optional<views> whole_views(runtime& r, std::uintptr_t at, std::size_t bytes);
/// Whether something is mapped at any of these addresses.
bool has_views(runtime& r, std::uintptr_t at, std::size_t bytes);
/// Like `look_up`, for a range that begins at a reserved address: it may reach over several views.
range look_up_views(runtime& r, std::uintptr_t at, std::size_t bytes);

/// Maps the memory's first `bytes` where nothing is mapped. No device has access yet. False if the host refuses.
bool map(runtime& r, std::uintptr_t at, std::size_t bytes, physical_memory& memory);
/// False if the host refuses; then nothing has changed.
bool unmap(runtime& r, views range);
/// False if the host refuses.
bool set_access(views range, int device, bool open);

/// Frees everything of this, whoever still uses it. The devices' counts are the caller's work.
void drop_virtual_memory(runtime& r);

}  // namespace weir::sim::detail
