#pragma once
// What the sources have in common: choosing a device, large alignments, and memory that comes and goes at once.

#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
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

/// A line for the report. CUDA may be past answering when it is asked for.
inline std::string device_state(int device) try {
  auto const [free_bytes, total_bytes] = memory_info(device);
  return "device " + std::to_string(device) + ": " + format_bytes(free_bytes) + " free of " + format_bytes(total_bytes);
} catch (cuda_error const&) {
  return "device " + std::to_string(device) + ": its memory could not be asked for";
}

/// No object can be larger than this, so nothing larger is asked for: what CUDA answers to such sizes varies.
inline constexpr std::size_t largest_request = std::numeric_limits<std::ptrdiff_t>::max();

/// Ends a `deallocate` of a pointer that CUDA says it did not give. Other failures are no fault of the caller's: they
/// come from earlier work (then all is lost, and an exception on its way says so) or from CUDA's unloading at exit.
inline void freed(cudaError_t code, char const* source, char const* call, void* p, std::size_t bytes) noexcept {
  if (succeeded(code) || code != cudaErrorInvalidValue) return;
  char where[32];
  std::snprintf(where, sizeof where, "%p", p);
  report_misuse(std::string("weir: ") + source + ": deallocate of " + where + " (" + std::to_string(bytes) +
                " B): " + call + " does not know this pointer; it was freed before, or is not from this resource");
}

/// Alignments above CUDA's own 256 B: asks for more than needed and remembers what was moved up. Thread-safe.
class shifted_blocks {
 public:
  /// `take(n)` gives n bytes aligned to 256 or nullptr, and `give(base)` takes them back. Returns nullptr as `take`
  /// does.
  template <class Take, class Give>
  void* allocate(std::size_t bytes, std::size_t alignment, Take take, Give give) {
    if (bytes > largest_request) return nullptr;
    if (alignment <= default_alignment) [[likely]]
      return take(bytes);
    void* const base = take(padded_or_zero(bytes, alignment));
    std::size_t const shift = (0 - reinterpret_cast<std::uintptr_t>(base)) & (alignment - 1);
    if (base == nullptr || shift == 0) return base;
    void* const p = static_cast<std::byte*>(base) + shift;
    try {
      mutex_guard const lock(mutex_);
      base_of_.insert(reinterpret_cast<std::uintptr_t>(p), base);
    } catch (...) {
      give(base);
      throw;
    }
    return p;
  }

  /// What `take` gave for the block at `p`, which is forgotten.
  void* base_of(void* p, std::size_t alignment) noexcept {
    if (alignment <= default_alignment) [[likely]]
      return p;
    mutex_guard const lock(mutex_);
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    auto const* const found = base_of_.find(address);
    if (found == nullptr) return p;
    void* const base = found->value;
    base_of_.erase(address);
    return base;
  }

 private:
  mutex mutex_;
  address_map<void*> base_of_;  // only blocks that moved
};

/// A source whose CUDA calls know no streams. `Kind` names it, states the facts, takes and gives back.
/// Its memory is ready for everyone at once; to free it in stream order, the host waits for the stream first.
template <class Kind>
class immediate_source {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = Kind::host_accessible;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = Kind::name;

  /// `device` negative: the current one. Throws `std::invalid_argument` if the device cannot do it.
  explicit immediate_source(int device) : device_(chosen_device(Kind::name, device)) { Kind::require(device_); }
  immediate_source(immediate_source const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  immediate_source& operator=(immediate_source const&) = delete;

  /// Throws `out_of_memory`, `cuda_error`, or `std::invalid_argument` for an alignment beyond 2 MiB. Thread-safe.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    require_alignment(alignment);
    if (life_.is_exiting()) check(process_exit::error, Kind::name);
    life_.settle();
    void* const p = shifted_.allocate(
        bytes, alignment,
        [this](std::size_t n) {
          device_guard const on_device(device_);
          return Kind::take(n);
        },
        [](void* base) { succeeded(Kind::give(base)); });
    if (p == nullptr)
      throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream}, Kind::name, report_of(*this));
    return p;
  }

  /// Blocks until the work queued on `stream` so far is done; not in `host_order`, where there is none. Thread-safe.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr || life_.is_exiting()) return;
    // Where not even the device can be waited for, the memory is kept: work that was not seen to end may still write
    // it.
    if (!stream.is_host_order() && !wait_for(stream, device_)) return;
    freed(Kind::give(shifted_.base_of(p, alignment)), Kind::name, Kind::give_call, p, bytes);
  }

  /// The device that was current when this was made, or that the options named.
  int device() const noexcept { return device_; }

  /// What CUDA is asked for: an alignment above 256 B takes room to move in.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }

  void describe(report& out) const {
    out.below(std::string(Kind::name) + "(" + std::to_string(device_) + ")",
              life_.is_exiting() ? process_exit::words : Kind::state(device_));
  }

 private:
  process_exit life_;
  int device_;
  shifted_blocks shifted_;
};

}  // namespace weir::detail
