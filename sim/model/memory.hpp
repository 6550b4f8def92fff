#pragma once
// Memory, internal: every allocation is a block of the host's heap of its own, so that a host's memory checkers see it.

#include "model/state.hpp"

namespace weir::sim::detail {

/// The largest pitch of a copy (`cudaDevAttrMaxPitch`), and what pitches of allocations are multiples of.
inline constexpr std::size_t max_pitch = 0x7fff'ffff;
inline constexpr std::size_t pitch_unit = 512;

/// Numbers of bytes that stay at the largest number, which no device has room for.
inline constexpr std::size_t too_many = static_cast<std::size_t>(-1);
inline std::size_t times(std::size_t a, std::size_t b) { return b != 0 && a > too_many / b ? too_many : a * b; }
inline std::size_t plus(std::size_t a, std::size_t b) { return a > too_many - b ? too_many : a + b; }

/// What lies at [p, p + bytes).
struct range {
  bool valid = false;              // false: it leaves its allocation, or that one's free was called; as far as known
  allocation const* in = nullptr;  // null for memory that CUDA does not know
  bool device_only() const {
    return in != nullptr && (in->kind == memory_kind::device || in->kind == memory_kind::async);
  }
  bool reached_by_devices() const { return in != nullptr; }
  bool pageable() const { return in == nullptr; }
};
range look_up(runtime& r, void const* p, std::size_t bytes);

/// Whether kernels on `device` may use that memory.
bool reaches(runtime& r, int device, allocation const& a);

/// A live allocation that starts at `p`; null if there is none.
allocation* find_live(runtime& r, void const* p);

/// Takes memory from the host, or that at `at`, within the capacity of its kind; `made.bytes` is not 0. Null if there
/// is too little. Nobody may touch stream-ordered memory before the allocation executes.
void* make_allocation(runtime& r, allocation made, void* at = nullptr);

/// Memory of the host counts against its capacity; false if that is used up.
bool charge_host(runtime& r, std::size_t bytes);
void count_live(runtime& r, allocation const& a);
void count_freed(runtime& r, allocation const& a);

// host_memory.cpp
/// The ranges that were registered while `device` was current are the program's own again.
void forget_registrations(runtime& r, int device);

/// The free was called: the program has the memory no more, though work that was queued before may use it still.
std::uint64_t begin_free(runtime& r, allocation& a);
/// The free executes. The block stays if another allocation has taken it over since that free was called. `waited`: for
/// all work that there was, so that none is too late.
void finish_free(runtime& r, std::uintptr_t address, std::uint64_t ticket, bool waited = false);
/// Undoes a `begin_free`, as a new allocation of the same size takes the block over.
void revive(runtime& r, allocation& a);

/// Gives stream-ordered memory to whom comes after this place in `t`: the allocation executes.
void submit_allocation(runtime& r, held_lock& held, timeline& t, void* p);

/// What an allocation does when it executes.
void begin_use(void* p, std::size_t bytes, unsigned char pattern);

/// Under the address sanitizer: who touches the memory between the two makes a mistake.
void forbid(void* p, std::size_t bytes);
void allow(void* p, std::size_t bytes);

/// The block is the heap's again, unless the check of order holds it back.
void give_to_heap(void* p, std::size_t bytes, bool waited);

/// Overwrites memory with bytes that differ from call to call: all of a small block, both ends of a large one.
void scribble(void* p, std::size_t bytes, unsigned char pattern);
unsigned char next_pattern(runtime& r);

// reuse.cpp
/// A pool keeps a block whose free has executed, to hand it out again. False: it does not.
bool keep(pool_state& pool, std::uintptr_t address, allocation const& freed);
/// A block of the pool that `t` may have, now; null if there is none. It is live then.
void* reuse(runtime& r, held_lock& held, std::shared_ptr<pool_state> const& pool, timeline& t, std::size_t bytes);

// pools.cpp
void trim(runtime& r, pool_state& pool, std::uint64_t keep);
/// Sees to the release thresholds, as every synchronise does.
void trim_pools(runtime& r);
/// Makes room for an allocation of a pool; false if the pool or its device is full.
bool take_room(runtime& r, pool_state& pool, std::size_t bytes);
void give_room_back(runtime& r, pool_state& pool, std::size_t bytes);

}  // namespace weir::sim::detail
