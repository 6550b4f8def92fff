#pragma once
// Controls the stand-in CUDA runtime: programs that link `weir::sim` in place of cudart run their CUDA calls on the
// host.

#include <weir/version.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace weir::sim {

/// When queued work runs. All keep every order that CUDA promises.
enum class mode {
  immediate,  ///< inside the call that queues it; a synchronise never waits, a query always answers "done"
  lazy,       ///< not before something needs it (a synchronise, `run_all`), and then only what that needs
  random,     ///< at any call: some of what may run then runs, by a seed; else as `lazy`
  pct,        ///< by priorities of the host and each stream, drawn from a seed, that change at a few places
  threads,  ///< at once, on threads of the stand-in's, while the program goes on: as on a GPU, and no run like another
};

/// What a kernel does with memory.
enum class access { read, write };

/// Back to a fresh process: immediate mode, two devices, default capacities, counters at 0, no failures, no latency.
/// Drops queued work and frees all memory; pools are gone. Streams and events that exist stay valid, idle and never
/// recorded, so that handles kept in caches do not dangle. Call it between tests, not while another thread uses the
/// runtime.
void reset();

/// Changes the mode. Going to `immediate` first runs all that is queued. `immediate` is the default. Going to
/// `threads` and leaving it waits until no operation is under way, so it is no call for a host function, as `reset` is
/// none. May throw `std::system_error` where there are no threads to be had.
void set_mode(mode m);

/// What happens in `random` and `pct` mode: the same calls with the same seed, by one thread, run the same work at the
/// same places. `reset` sets 0.
void set_seed(std::uint64_t seed);

/// For `pct` mode: how many things have to go wrong in a row for a bug to show (its depth, default 3), and how many
/// steps (calls, and queued operations that run) the program takes, roughly (default 1000). Whoever is at work, host or
/// stream, falls behind all others at `depth` - 1 of these steps. With n streams, one seed finds a bug of that depth
/// with a probability of at least 1 / (n * steps^(depth - 1)), however unlikely it is else (Burckhardt et al., ASPLOS
/// 2010). Throws `std::invalid_argument` if either is 0. `reset` sets the defaults.
void set_depth(unsigned depth, std::uint64_t steps);

/// In `random` and `pct` mode, `stream` gets nowhere until the host waits for it: a slow kernel. By its id
/// (`cudaStreamGetId`), so that it needs no end; `set_mode` and `reset` end it. 0 starves none.
void starve(std::uint64_t stream_id);

/// Runs everything queued on every device, in an order that CUDA allows. Host functions run in the calling thread; in
/// threads mode it waits for the threads instead.
void run_all();

/// How many devices there are, 1 to 8 (default 2). Throws `std::invalid_argument` for other numbers. Call it after
/// `reset` and before the first CUDA call of a test.
void set_device_count(int count);

/// Switches on or off that `touch` refuses what a kernel on a GPU would crash at: another device's memory without
/// access to it (`cudaDeviceEnablePeerAccess`; for a pool's memory `cudaMemPoolSetAccess`). `reset` switches it off.
void check_access(bool on);

/// Bytes of memory of a device (default 16 GiB); `cudaMemGetInfo` reports it and allocations beyond it fail. Memory is
/// host memory, committed when first written. Below what is in use now, nothing more can be had until enough is freed.
void set_capacity(int device, std::size_t bytes);

/// Bytes that pinned and managed memory may take together (default 64 GiB).
void set_host_capacity(std::size_t bytes);

/// Runtime calls since `reset_counters`: all, or those of one name ("cudaEventRecord"; the per-thread twins count under
/// the plain name). Reading or clearing the last error and asking for error names do not count. Throws
/// `std::invalid_argument` for a name that the stand-in does not have, so that a misspelt name is not a silent 0.
std::uint64_t calls();
std::uint64_t calls(char const* name);
void reset_counters();

/// The k-th counted call from now (1 is the next one) returns `code` and does nothing else; later calls work again.
/// Throws `std::invalid_argument` for k = 0.
void fail_call(std::uint64_t k, cudaError_t code);
/// The same for the k-th call of one name from now. Each name may have one such failure to come, besides the one above.
void fail_call(char const* name, std::uint64_t k, cudaError_t code);
/// A sticky error, as after a kernel that crashed: the k-th counted call from now and every later one, by every thread,
/// returns `code` and does nothing else. From then on that is also every thread's last error, and `cudaGetLastError`
/// does not clear it. What is queued by then or later is never done: no kernel runs any more, and no host function is
/// called. In threads mode what is under way is finished first, for which `run_all` waits.
void fail_from(std::uint64_t k, cudaError_t code);
/// Forgets every failure: those to come, and the sticky one. What a thread's last error was before, it is again.
void clear_failure();

/// Each call of that name (without a name: of any) costs so many nanoseconds of simulated time; 0 is the default. The
/// program does not wait. Calls that fail or answer at once cost as much. Throws `std::invalid_argument` for a name
/// that the stand-in does not have.
void set_latency(char const* name, std::uint64_t nanoseconds);
void set_latency(std::uint64_t nanoseconds);
/// What the calls since `reset_counters` cost, of all threads together, in nanoseconds.
std::uint64_t simulated_time();

/// Bytes asked for and not yet freed: memory of every kind (device, stream-ordered, managed, pinned), counted on the
/// device it was allocated for. Freed means that the free was called, even if it still waits in a queue.
std::size_t live_bytes(int device);
/// How many allocations that is, over all devices.
std::size_t live_allocations();

/// How many streams, events and memory pools the program created and did not destroy yet. Graphs do not count.
std::size_t live_handles();

/// Whether the calling thread is inside a runtime call, where the simulated runtime does its own work: false in host
/// functions. For a test that replaces `operator new` and wants only the program's own allocations to fail.
bool in_runtime_call();

/// How many stream captures were broken since `reset` by a call that CUDA does not allow during a capture, from
/// whatever thread. Ending a capture on a stream that misses a join counts.
std::uint64_t captures_invalidated();

/// Stands for a kernel that reads or writes all of [p, p + bytes) on `stream`: the bytes are really read, or
/// overwritten with a changing pattern, when the stream gets there. 0 is the legacy default stream. Counts as no
/// runtime call. Throws `std::invalid_argument` for a stream that is not valid, for a range that leaves its allocation,
/// for memory whose stream-ordered free was already called, where a capture was invalidated, and, after
/// `check_access(true)`, for another device's memory that the stream's device was given no access to. On a stream that
/// is being captured it stands for a kernel node.
void touch(cudaStream_t stream, void const* p, std::size_t bytes, access what);

}  // namespace weir::sim
