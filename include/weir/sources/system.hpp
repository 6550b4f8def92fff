#pragma once
// Source: ordinary host memory, on systems where devices reach it.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/managed.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sources/shifted_blocks.hpp>
#include <weir/sources/source_device.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace weir {

class system_resource;

/// Memory of the host's allocator (`aligned_alloc`) that the device reaches through the system's page tables, as on
/// Grace Hopper (ATS) or with heterogeneous memory management (HMM).
/// When not to use it: where pages move too slowly for the work (`device`, or `managed` with `prefetch`).
struct system {
  int device = -1;  ///< which device; -1: the one current at `make`
  /// Bytes of the device's memory to leave free for others: pages of an allocation that would take more are advised to
  /// stay on the host, the others to live on the device. 0: nothing is advised, and pages go to where they are touched.
  std::size_t headroom_bytes = 0;

  static constexpr char const* layer_name = "system";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<weir::system>());
    f(option::bytes("headroom", "headroom_bytes", &weir::system::headroom_bytes));
  }

  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    return option::first_problem(*this);
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
  template <class = void>
  system_resource operator()() const;
};

/// Gives memory of the host's allocator that host and devices reach. Thread-safe. Alignment: 256 B or as asked, up to
/// 2 MiB.
class system_resource {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = true;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "system";

  /// Throws `std::invalid_argument` for a device that does not reach this memory.
  template <class = void>  // so that only those pay for compiling it who use it
  explicit system_resource(weir::system const& options)
      : device_(detail::chosen_device("system", detail::require_valid(options).device)),
        headroom_bytes_(options.headroom_bytes) {
    detail::require_ability("system", device_, cudaDevAttrPageableMemoryAccess,
                            "does not reach memory of malloc (cudaDevAttrPageableMemoryAccess is 0); use managed");
  }
  system_resource(system_resource const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  system_resource& operator=(system_resource const&) = delete;

  /// Throws `out_of_memory`, or `std::invalid_argument` for an alignment beyond 2 MiB. No CUDA call, but with headroom:
  /// then it asks how much memory the device has left, and advises; what CUDA refuses of that is no error.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (detail::wants_captured_memory(stream)) refuse(stream, bytes);
    life_.settle();
    std::size_t const real = alignment < default_alignment ? default_alignment : alignment;
    void* const p = bytes > most ? nullptr : std::aligned_alloc(real, round_up_or_zero(bytes, real));
    if (p == nullptr) refuse(stream, bytes);
    if (headroom_bytes_ != 0) keep_headroom(p, bytes);
    return p;
  }

  /// Frees behind the work queued on `stream`, by a host function: the host does not wait, but later work of the stream
  /// waits for that function. In `host_order` it frees at once. Memory that is freed while the stream is being captured
  /// is kept for good.
  void deallocate(stream_ref stream, void* p, std::size_t, std::size_t = default_alignment) noexcept {
    if (p == nullptr) return;
    if (stream.is_host_order()) return std::free(p);
    if (life_.is_exiting() || detail::may_break_capture(stream.get())) return detail::note_kept();
    if (detail::succeeded(cudaLaunchHostFunc(stream.get(), &std::free, p))) return;
    if (!detail::wait_for(stream, device_)) return detail::note_kept();  // work that was not seen to end may use it
    std::free(p);
  }

  int device() const noexcept { return device_; }

  /// An allocator asks the system for that much where an alignment is large.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }

  void describe(report& out) const {
    out.below("system(" + std::to_string(device_) + ")",
              life_.is_exiting() ? detail::process_exit::words
                                 : "memory of malloc, of which the operating system sets how much there is; " +
                                       detail::device_state(device_));
  }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes) const {
    report own = report_of(*this);
    own.hint(
        detail::hint_for(bytes, own,
                         "the system, or what this process may have of it (ulimit -v, its container), has no more: "
                         "free something, or ask for less"));
    throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream, device_}, "system", own);
  }

  static constexpr std::size_t most = detail::largest_request - max_alignment;  // so that it can be rounded up

  /// The first pages are for the device, as far as they leave the headroom, the others for the host. Whole pages only:
  /// others may have the rest of the first and the last.
  void keep_headroom(void* p, std::size_t bytes) noexcept {
    detail::device_switch const on_device(device_);
    std::size_t free_bytes = 0, total_bytes = 0;
    if (!on_device.is_current() || !detail::succeeded(cudaMemGetInfo(&free_bytes, &total_bytes))) return;
    std::size_t const room = free_bytes > headroom_bytes_ ? free_bytes - headroom_bytes_ : 0;
    static auto const page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    std::uintptr_t const first = (address + page - 1) & ~(page - 1), last = (address + bytes) & ~(page - 1);
    if (first >= last) return;
    std::uintptr_t const border = first + ((room < last - first ? room : last - first) & ~(page - 1));
    prefer(first, border, device_);
    prefer(border, last, cudaCpuDeviceId);
  }
  static void prefer(std::uintptr_t first, std::uintptr_t last, int device) noexcept {
    if (first == last) return;
    auto* const p = reinterpret_cast<void*>(first);
    detail::succeeded(detail::advise(p, last - first, cudaMemAdviseSetPreferredLocation, device));
  }

  detail::process_exit life_;
  int device_;
  std::size_t headroom_bytes_;
};

template <class>
system_resource weir::system::operator()() const {
  return system_resource(*this);
}

}  // namespace weir
