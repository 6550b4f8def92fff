#pragma once
// What the null runtime knows: how often CUDA was called, by kind, and how much device memory is held.

#include <array>
#include <cstddef>
#include <cstdint>

namespace bench {

enum class call_kind : std::size_t {
  allocate,        // cudaMalloc and its like
  free,            // cudaFree
  allocate_async,  // cudaMallocAsync, cudaMallocFromPoolAsync
  free_async,      // cudaFreeAsync
  record,          // cudaEventRecord
  query,           // cudaEventQuery
  wait,            // cudaStreamWaitEvent
  event,           // cudaEventCreate, cudaEventDestroy
  synchronize,     // the host waits
  stream_id,       // cudaStreamGetId
  device,          // cudaGetDevice, cudaSetDevice and other questions
  stream,          // cudaStreamCreate, cudaStreamDestroy
  create,          // cuMemCreate; this and the next three count chunks, which their cost goes by
  map,             // cuMemMap
  access,          // cuMemSetAccess
  unmap,           // cuMemUnmap
  other,
};
inline constexpr std::size_t call_kinds = static_cast<std::size_t>(call_kind::other) + 1;
inline constexpr std::array<char const*, call_kinds> call_names{
    "malloc",    "free",       "malloc async", "free async", "record", "query",  "wait",  "event", "synchronize",
    "stream id", "get device", "stream",       "create",     "map",    "access", "unmap", "other"};

/// Calls of all threads since the program began.
struct call_counts {
  std::array<std::uint64_t, call_kinds> by_kind{};

  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (std::uint64_t n : by_kind) sum += n;
    return sum;
  }
  friend call_counts operator-(call_counts a, call_counts const& b) {
    for (std::size_t k = 0; k < call_kinds; ++k) a.by_kind[k] -= b.by_kind[k];
    return a;
  }
};
call_counts cuda_calls();

/// Counts as so many calls of a kind.
void count_calls(call_kind kind, std::uint64_t calls);
/// Takes device memory, false if there is not so much; gives it back.
bool take_device_bytes(std::size_t bytes);
void give_device_bytes(std::size_t bytes);
/// A function of the null driver, by its name; null if it has none.
void* null_driver_function(char const* name);

/// From now on work is done once `pass_time` was called so often after an event was recorded behind it, or the host
/// waited; 0, as at first: at once. For programs with one thread.
void set_time_of_work(std::uint64_t time);
void pass_time();

/// Sets how much device memory there is, and starts the peak again from what is held now. Bytes.
void set_device_capacity(std::size_t bytes);
std::size_t device_bytes_held();
std::size_t device_bytes_peak();

}  // namespace bench
