#include "allocations/virtual_memory.hpp"

#include "checker/checker.hpp"
#include "model/heap.hpp"
#include "model/pages.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weir::sim::detail {
namespace {

void* at_address(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::uintptr_t end_of(view v) { return v->first + v->second.bytes; }

bool has_any(allocation::device_set const& devices) {
  return std::find(devices.begin(), devices.end(), true) != devices.end();
}

bool is_open(view v) { return has_any(v->second.open_to); }

void drop_if_unused(runtime& r, physical_memory& memory) {
  if (memory.handles != 0 || memory.views != 0) return;
  device_state& device = r.device(memory.device);
  device.used -= memory.bytes;
  device.live_bytes -= memory.bytes;
  --r.live_allocations;
  give_pages_back(memory.place, memory.bytes);
  if (r.check != nullptr) r.check->physical_gone(memory.number);
  r.virtual_memory.physical.remove(memory.handle);
}

}  // namespace

void* reserve(runtime& r, void* hint, std::size_t bytes, std::size_t alignment) {
  void* const p = reserve_addresses(hint, bytes, alignment);
  if (p != nullptr) r.virtual_memory.reserved.emplace(reinterpret_cast<std::uintptr_t>(p), bytes);
  return p;
}

bool free_reserved(runtime& r, std::uintptr_t at, std::size_t bytes) {
  auto const found = r.virtual_memory.reserved.find(at);
  if (found == r.virtual_memory.reserved.end() || found->second != bytes || has_views(r, at, bytes)) return false;
  give_addresses_back(at_address(at), bytes);
  if (r.check != nullptr) r.check->addresses_gone(at, at + bytes);
  r.virtual_memory.reserved.erase(found);
  return true;
}

bool runs_into_reserved(runtime& r, std::uintptr_t at, std::size_t bytes) {
  auto const next = r.virtual_memory.reserved.upper_bound(at);
  return next != r.virtual_memory.reserved.end() && bytes > next->first - at;
}

physical_memory* create_physical(runtime& r, int device, std::size_t bytes) {
  auto made = std::make_shared<physical_memory>();
  device_state& d = r.device(device);
  if (!charge_device(d, bytes)) return nullptr;
  std::optional<std::size_t> const place = take_pages(bytes);
  if (!place) {
    d.used -= bytes;
    return nullptr;
  }
  made->number = ++r.virtual_memory.physical_count;
  made->device = device;
  made->bytes = bytes;
  made->place = *place;
  scribble_pages(*place, bytes, first_pattern(r));
  d.live_bytes += bytes;
  ++r.live_allocations;
  made->handle = r.virtual_memory.physical.add(made);
  if (r.check != nullptr) r.check->physical_made(made->number);
  return made.get();
}

physical_memory* find_physical(runtime& r, physical_handle handle) {
  auto const* const found = r.virtual_memory.physical.find(handle);
  return found == nullptr || (*found)->handles == 0 ? nullptr : found->get();
}

void release_physical(runtime& r, physical_memory& memory) {
  --memory.handles;
  drop_if_unused(r, memory);
}

view view_at(runtime& r, std::uintptr_t address) {
  auto& all = r.virtual_memory.views;
  view const after = all.upper_bound(address);
  if (after == all.begin() || address >= end_of(std::prev(after))) return all.end();
  return std::prev(after);
}

std::optional<views> whole_views(runtime& r, std::uintptr_t at, std::size_t bytes) {
  auto& all = r.virtual_memory.views;
  view const first = all.find(at);
  std::uintptr_t next = at;
  view v = first;
  for (; v != all.end() && v->first == next && next - at < bytes; ++v) next = end_of(v);
  if (next - at != bytes || bytes == 0) return std::nullopt;
  return views{first, v};
}

bool has_views(runtime& r, std::uintptr_t at, std::size_t bytes) {
  auto& all = r.virtual_memory.views;
  view const next = all.lower_bound(at);
  return view_at(r, at) != all.end() || (next != all.end() && next->first - at < bytes);
}

range look_up_views(runtime& r, std::uintptr_t at, std::size_t bytes) {
  view const end = r.virtual_memory.views.end();
  view const first = view_at(r, at);
  if (first == end) return {false, nullptr};
  bool open = is_open(first);
  std::size_t known = end_of(first) - at;
  for (view next = std::next(first); open && known < bytes; ++next) {
    open = next != end && next->first == at + known && is_open(next);
    if (open) known += next->second.bytes;
  }
  return {open, &first->second, false, true};
}

bool map(runtime& r, std::uintptr_t at, std::size_t bytes, physical_memory& memory) {
  allocation made;
  made.bytes = bytes;
  made.kind = memory_kind::mapped;
  made.device = memory.device;
  made.physical = *r.virtual_memory.physical.find(memory.handle);
  auto const [mapped, is_new] = r.virtual_memory.views.emplace(at, std::move(made));
  if (!map_pages(at_address(at), memory.place, bytes)) {
    r.virtual_memory.views.erase(mapped);
    return false;
  }
  ++memory.views;
  if (r.trace != nullptr) r.trace->took(at, mapped->second);
  if (r.check != nullptr) r.check->mapped(at, bytes, memory.number);
  return true;
}

bool unmap(runtime& r, views range) {
  std::uintptr_t const begin = range.first->first;
  std::uintptr_t const end = end_of(std::prev(range.end));
  if (!unmap_pages(at_address(begin), end - begin)) return false;
  if (r.check != nullptr) r.check->unmapped(begin, end);
  for (view v = range.first; v != range.end;) {
    std::shared_ptr<physical_memory> const memory = v->second.physical;
    if (r.trace != nullptr) r.trace->gave_back(v->first, v->second);
    v = r.virtual_memory.views.erase(v);
    --memory->views;
    drop_if_unused(r, *memory);
  }
  return true;
}

bool set_access(views range, int device, bool open) {
  for (view v = range.first; v != range.end; ++v) {
    allocation& a = v->second;
    allocation::device_set now = a.open_to;
    now[static_cast<std::size_t>(device)] = open;
    bool const opens = has_any(now);
    if (opens != has_any(a.open_to) && !open_pages(at_address(v->first), a.bytes, opens)) return false;
    a.open_to = now;
  }
  return true;
}

void drop_virtual_memory(runtime& r) {
  for (auto const& [begin, a] : r.virtual_memory.views) unpoison(at_address(begin), a.bytes);
  for (auto const& [begin, bytes] : r.virtual_memory.reserved) give_addresses_back(at_address(begin), bytes);
  r.virtual_memory.reserved.clear();
  r.virtual_memory.views.clear();
  r.virtual_memory.physical.for_each([](auto const& memory) { give_pages_back(memory->place, memory->bytes); });
  r.virtual_memory.physical.remove_if([](auto const&) { return true; });
}

}  // namespace weir::sim::detail
