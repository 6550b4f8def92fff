#pragma once
// Controls the simulated CUDA runtime: programs that link `weir::sim` in place of cudart run their CUDA calls on the
// host.

#include <weir/version.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weir::sim {

/// When queued work runs. Every mode keeps every order that CUDA promises.
enum class mode {
  immediate,  ///< inside the call that queues it: a synchronise never waits, a query always answers "done"
  lazy,       ///< when something needs it (a synchronise, `run_all`), and then only what that needs
  random,     ///< as `lazy`; besides, at any call, some of the work that may run does, chosen by a seed
  pct,        ///< by priorities of the host and each stream, which are drawn from a seed and change at a few places
  threads,    ///< at once, on threads of the simulated runtime, while the program goes on; no two runs are alike
};

/// What a kernel does with memory.
enum class access { read, write };

/// Puts everything back to its default, as in a fresh process: immediate mode, two devices, default capacities,
/// counters at 0, no failures, no latency. Drops queued work, frees all memory and destroys all pools. Streams and
/// events that exist stay valid, idle and never recorded, so that handles kept in caches do not dangle. Call it between
/// tests, not while another thread uses the runtime.
void reset();

/// Changes the mode; the default is `immediate`. Changing to `immediate` first runs all that is queued. Entering or
/// leaving `threads` waits until no operation is under way, so neither this nor `reset` may be called in a host
/// function. Throws `std::system_error` where no threads can be started.
void set_mode(mode m);

/// Sets the seed of `random` and `pct` mode; `reset` sets 0. The same calls by one thread with the same seed run the
/// same work at the same places.
void set_seed(std::uint64_t seed);

/// Sets the two parameters of `pct` mode; `reset` sets the defaults. `depth` (3) is how many events have to happen in
/// one order for a bug to show; `steps` (1000) is roughly how many calls and queued operations the program makes. At
/// `depth` - 1 of these steps the host or the stream at work falls behind all others. With n streams, one seed finds a
/// bug of that depth with a probability of at least 1 / (n * steps^(depth - 1)) (Burckhardt et al., ASPLOS 2010).
/// Throws `std::invalid_argument` if either is 0.
void set_depth(unsigned depth, std::uint64_t steps);

/// In `random` and `pct` mode, runs no work of the stream with this id (`cudaStreamGetId`) until the host waits for it:
/// a slow kernel. Lasts until another id, or 0 for none, is given, or until `set_mode` or `reset`; the stream may be
/// destroyed before that.
void starve(std::uint64_t stream_id);

/// Runs everything queued on every device, in an order that CUDA allows. Host functions run in the calling thread. In
/// threads mode it waits until the threads have run everything.
void run_all();

/// Sets how many devices there are, 1 to 8 (default 2). Throws `std::invalid_argument` for other numbers. Call it after
/// `reset` and before the first CUDA call of a test.
void set_device_count(int count);

/// Sets which device is simulated, by name: "a100-40g", "a100-80g", "h100-80g", "rtx-4090", or "default", the one that
/// `reset` sets. All devices have its properties, attributes and memory from then on, and but for "default" its context
/// takes some of that memory, as on a GPU (about 0.5 GiB; how much differs by driver). What a program could do on such
/// a device does not change: there is no other code here. Throws `std::invalid_argument` for another name. Call it
/// after `reset` and before the first CUDA call of a test.
void set_device_model(std::string_view name);

/// Sets whether launches of kernels are skipped: each succeeds, is counted, takes its place in its stream or graph, and
/// does nothing, so that whatever it would have written is not. The calls that ask about kernels answer as for a small
/// kernel. For programs whose memory does not depend on values. Off by default and after `reset`: launches are refused.
void skip_kernels(bool on);

/// The kernels that were skipped since `reset`, those that were launched most often first.
struct skipped_kernel {
  std::string name;
  std::uint64_t launches;
};
std::vector<skipped_kernel> skipped_kernels();

/// Sets whether `touch` throws where a kernel on a GPU would crash: at another device's memory without access to it
/// (`cudaDeviceEnablePeerAccess`; for a pool's memory `cudaMemPoolSetAccess`, for mapped memory `cuMemSetAccess`). Off
/// by default and after `reset`.
void check_access(bool on);

/// Sets whether the devices can reach each other's memory, as those of one machine often cannot. On by default and
/// after `reset`. While it is off, `cudaDeviceCanAccessPeer` says no, and calls that would give a device access to
/// another's memory fail. Access that was given before stays.
void set_peers(bool on);

/// Sets whether the devices reach all of the host's memory, that of `malloc` too, as where the system has HMM or ATS
/// (`cudaDevAttrPageableMemoryAccess`). Off by default and after `reset`: then `cudaMemsetAsync` and the like refuse
/// such memory.
void set_pageable_access(bool on);

/// Sets whether the devices have virtual memory (`cuMemCreate` and its like), which vGPUs and some others lack. On by
/// default and after `reset`. While it is off, the attribute of the driver says so, and these functions answer
/// `CUDA_ERROR_NOT_SUPPORTED`.
void set_virtual_memory(bool on);

/// Sets how many bytes of memory a device has (default 16 GiB): `cudaMemGetInfo` reports it, and allocations beyond it
/// fail. It may be set below what is in use; then allocations fail until enough is freed. The memory is host memory,
/// committed when first written. Throws `std::invalid_argument` for a device other than 0 to 7.
void set_capacity(int device, std::size_t bytes);

/// Sets how many bytes pinned and managed memory may take together (default 64 GiB).
void set_host_capacity(std::size_t bytes);

/// How many runtime calls were made since `reset_counters`: all, or those of one name ("cudaEventRecord"; the
/// per-thread twins count under the plain name). Reading or clearing the last error and asking for error names do not
/// count. Throws `std::invalid_argument` for a name that the simulated runtime does not have, so that a misspelt name
/// is not a silent 0.
std::uint64_t calls();
std::uint64_t calls(char const* name);
void reset_counters();

/// Injects a fault: the k-th counted call from now (1 is the next one) returns `code` and does nothing else; later
/// calls work again. A second such fault replaces the first. Throws `std::invalid_argument` for k = 0.
void fail_call(std::uint64_t k, cudaError_t code);
/// The same for the k-th call of one name from now. Each name may have one such fault to come, besides the one above.
void fail_call(char const* name, std::uint64_t k, cudaError_t code);
/// Injects a sticky error, as after a kernel that crashed: the k-th counted call from now and every later one, by every
/// thread, returns `code` and does nothing else. From then on `code` is also every thread's last error, and
/// `cudaGetLastError` does not clear it. Work that is queued by then or later never runs, host functions neither. In
/// threads mode, operations under way are finished first; `run_all` waits for them.
void fail_from(std::uint64_t k, cudaError_t code);
/// Takes back every injected fault: those to come, and the sticky one. Each thread's last error is what it was before
/// the sticky one.
void clear_failure();

/// Sets what each call of one name costs, or each call of any name, in nanoseconds of simulated time; the default is 0.
/// The program does not wait. Calls that fail cost as much. Throws `std::invalid_argument` for a name that the
/// simulated runtime does not have.
void set_latency(char const* name, std::uint64_t nanoseconds);
void set_latency(std::uint64_t nanoseconds);
/// What the calls since `reset_counters` cost, of all threads together, in nanoseconds.
std::uint64_t simulated_time();

/// How many bytes were asked for and not yet freed: memory of every kind (device, stream-ordered, managed, pinned, and
/// that of `cuMemCreate`), counted on the device it was allocated for. Memory counts as freed once the free was called,
/// even if that still waits in a queue; that of `cuMemCreate` once its last handle is released and its last view
/// unmapped. Throws `std::invalid_argument` for a device other than 0 to 7.
std::size_t live_bytes(int device);
/// How many allocations that is, over all devices.
std::size_t live_allocations();

/// Records in `file`, from now to `reset`, what the program takes of the devices' memory, gives back, and is refused: a
/// line of JSON each, as `weir::read_trace` reads them. Stream-ordered memory is given back when its free executes,
/// virtual memory is taken where it is mapped. A tag says which kind it is: `cudaMalloc`, `cudaMallocAsync` or
/// `cuMemCreate`. Pinned and managed memory, which the host holds, is left out. The file is made with the first line;
/// if it cannot be, or is there already, a line on stderr says so and nothing is recorded. Where the disk is full a
/// line on stderr says so, and the record ends behind its last whole line. It is of the process that takes something
/// first, without the children that this forks then.
void trace_memory(std::string_view file);

/// How many streams, events and memory pools the program created and did not destroy yet, and how many ranges of
/// addresses it reserved (`cuMemAddressReserve`) and did not free. Graphs do not count.
std::size_t live_handles();

/// Whether the calling thread is inside a runtime call, where the simulated runtime does its own work: false in host
/// functions. For a test that replaces `operator new` and wants only the program's own allocations to fail.
bool in_runtime_call();

/// How many stream captures were broken since `reset` by a call that CUDA does not allow during a capture, made by any
/// thread. Ending a capture while a stream that takes part has not been joined counts too.
std::uint64_t captures_invalidated();

/// Stands for a kernel that reads or writes all of [p, p + bytes) on `stream` (0 is the legacy default stream): when
/// the stream gets there, the bytes are really read, or overwritten with a changing pattern. On a stream that is being
/// captured it stands for a kernel node. Does not count as a runtime call. Throws `std::invalid_argument` for a stream
/// that is not valid, for a range that leaves its allocation, for memory whose stream-ordered free was already called,
/// for reserved addresses where nothing is mapped or no device has access, where a capture was invalidated, and, after
/// `check_access(true)`, for another device's memory that the stream's device has no access to.
void touch(cudaStream_t stream, void const* p, std::size_t bytes, access what);

}  // namespace weir::sim
