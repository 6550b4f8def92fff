#pragma once
// What happens to allocations, internal: they are made, looked up, freed and handed on.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// What lies at [p, p + bytes).
struct range {
  bool valid = false;              // false: it leaves its allocation, or its free was called
  allocation const* in = nullptr;  // null for memory that CUDA does not know
  bool shared = false;             // such memory, which devices reach all the same
  bool ours = false;               // the runtime made it, not the program
  bool device_only() const { return in != nullptr && !in->on_host(); }
  bool reached_by_devices() const { return in != nullptr || shared; }
  bool pageable() const { return in == nullptr; }
  bool is(memory_kind kind) const { return in != nullptr && in->kind == kind; }
};
/// `captured`: for a node of a graph, which may use what another graph will have left live when it is launched.
range look_up(runtime& r, void const* p, std::size_t bytes, bool captured = false);

/// Whether kernels on `device` may use that memory.
bool reaches(runtime& r, int device, allocation const& a);

/// A live allocation that starts at `p`; null if there is none.
allocation* find_live(runtime& r, void const* p);

/// Takes memory from the host, or that at `at`, within the capacity of its kind; `made.bytes` is not 0. Null if there
/// is too little. Nobody may touch stream-ordered memory before the allocation executes.
void* make_allocation(runtime& r, allocation made, void* at = nullptr);

/// The answer where there is too little of it.
cudaError_t refuse_allocation(runtime& r, allocation const& wanted);

/// Counts memory against the host's capacity, or a device's; false if there is too little left.
bool charge_host(runtime& r, std::size_t bytes);
bool charge_device(device_state& device, std::size_t bytes);
void count_live(runtime& r, allocation const& a);
void count_freed(runtime& r, allocation const& a);

/// If the block is imported, the free was the latest importer's, who must free before the exporter does: ends that
/// import.
bool end_import(allocation& a);

/// The free was called: the memory is not the program's any more, but work queued before may still use it. Returns the
/// number of this free.
std::uint64_t begin_free(runtime& r, allocation& a);
/// The free of that number executes. Does nothing to the block if another allocation has taken it over since that free
/// was called. `waited`: the host has waited for all work on the block.
void finish_free(runtime& r, std::uintptr_t address, std::uint64_t number, bool waited = false);
/// Undoes a `begin_free`, as a new allocation of the same size takes the block over.
void revive(runtime& r, allocation& a);

/// Gives the block back to the host's heap, unless the check of order keeps it in quarantine.
void release_block(void* p, std::size_t bytes, bool waited);

/// The next pattern to overwrite memory with: not that of the call before.
unsigned char next_pattern(runtime& r);
/// The same for new memory, or 0 where kernels are skipped: a program that counts by a kernel then counts nothing,
/// where another pattern is a nonsense number of things.
unsigned char first_pattern(runtime& r);

}  // namespace weir::sim::detail
