#pragma once
// The device that a source is for: how options name it, what it can do, and its line in reports; and which requests no
// source serves.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/options.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace weir::detail {

template <class Source>
constexpr auto device_option() {
  return option::count("device", "device", &Source::device).at_least(-1, "which is the current device");
}

/// The device that a source is for: `wanted`, or the current one. Throws `std::invalid_argument` if there is no such.
inline int chosen_device(char const* source, int wanted) {
  int const count = device_count();
  if (wanted >= count)
    throw std::invalid_argument(std::string("weir: ") + source + ": there is no device " + std::to_string(wanted) +
                                "; this process sees " + std::to_string(count) + ", numbered from 0");
  return wanted < 0 ? current_device() : wanted;
}

/// Throws `std::invalid_argument` unless `device` has the attribute; `what` says what that means to people.
inline void require_ability(char const* source, int device, cudaDeviceAttr attribute, char const* what) {
  if (device_attribute(attribute, device) != 0) return;
  throw std::invalid_argument(std::string("weir: ") + source + ": device " + std::to_string(device) + " " + what);
}

/// Calls `f(other)` for each other device that can reach memory of `home` (`cudaDeviceCanAccessPeer`).
template <class F>
void for_each_peer(int home, F const& f) {
  for (int other = 0, count = device_count(); other < count; ++other) {
    int reaches = 0;
    if (other != home) check(cudaDeviceCanAccessPeer(&reaches, other, home), "cudaDeviceCanAccessPeer");
    if (reaches != 0) f(other);
  }
}

/// True for a request that only memory which the stream's capture freed may serve (`captured_memory_only`). A source
/// has none, and refuses: what it gave for the moment it could not take back before the capture ends, and not after it.
inline bool wants_captured_memory(stream_ref stream) noexcept {
  return captured_memory_only::is_set() && capture_in(stream) != 0;
}

/// A line for the report. CUDA may be past answering when it is asked for. `held`: bytes of the device's memory that
/// this source has; the rest is other sources', other libraries', other processes' and CUDA's own.
inline std::string device_state(int device, std::size_t held = 0) try {
  auto const [free_bytes, total_bytes] = memory_info(device);
  std::size_t const used = total_bytes - free_bytes;
  return "device " + std::to_string(device) + ": " + format_bytes(free_bytes) + " free of " +
         format_bytes(total_bytes) +
         (held == 0 ? std::string()
                    : "; " + format_bytes(held) + " held here, " + format_bytes(used < held ? 0 : used - held) +
                          " by everything else");
} catch (cuda_error const&) {
  return "device " + std::to_string(device) + ": its memory could not be asked for";
}

/// Lets a report know how much there is of `device`, the only memory of a source, which takes it in multiples of
/// `piece`. Nothing where CUDA does not answer.
inline void note_device_memory(report& out, int device, std::size_t piece = 1) try {
  out.device_memory(device, memory_info(device).total_bytes, piece);
} catch (cuda_error const&) {
}

/// What a request takes with the room to align it; without that where it cannot be counted.
inline std::size_t counted_room(std::size_t bytes, std::size_t alignment) noexcept {
  std::size_t const padded = padded_or_zero(bytes, alignment);
  return padded == 0 ? bytes : padded;
}

/// The last line of an error whose source has no more.
inline constexpr char const* device_is_full =
    "the device has no more: free something, ask for less, or see what else uses it (nvidia-smi)";

/// The same where the source does not know what its pool is of, and how large it may be.
inline constexpr char const* given_pool_is_full =
    "the CUDA pool that was given has no more: free something, ask for less, or make one with a larger maxSize";

/// The same of a source that holds `held` bytes and may hold `max_bytes`; 0: as much as there is. `full`: what to do
/// where that is not the reason.
inline char const* full_source_hint(std::size_t held, std::size_t bytes, std::size_t max_bytes,
                                    char const* full = device_is_full) noexcept {
  if (max_bytes == 0) return full;
  if (bytes > max_bytes)
    return "the request is larger than max_bytes of the source: ask for less at a time (with_retry), or raise it";
  return held > max_bytes - bytes ? "max_bytes of the source is used up: raise it, or free something" : full;
}

}  // namespace weir::detail
