#pragma once
// Source: ordinary host memory.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir {

/// Gives host memory by aligned `operator new`. Makes no CUDA call, but for a `deallocate` on a stream, which waits for
/// it. Thread-safe. Alignment: 256 B or as asked, up to 2 MiB.
class host_resource {
 public:
  static constexpr bool device_accessible = false;
  static constexpr bool host_accessible = true;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "host";

  host_resource() = default;
  host_resource(host_resource const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  host_resource& operator=(host_resource const&) = delete;

  /// Throws `out_of_memory`, or `std::invalid_argument` for an alignment beyond 2 MiB.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (detail::wants_captured_memory(stream)) refuse(stream, bytes);
    void* const p = bytes > largest ? nullptr : ::operator new(bytes, real_alignment(alignment), std::nothrow);
    if (p == nullptr) refuse(stream, bytes);
    return p;
  }

  /// Blocks until the work queued on `stream` so far is done; not in `host_order`, where there is none.
  void deallocate(stream_ref stream, void* p, std::size_t, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    // Where the wait fails the memory is kept: a copy that was not seen to end may still write it.
    if (!stream.is_host_order() && (life_.is_exiting() || !detail::wait_for(stream, -1))) return detail::note_kept();
    ::operator delete(p, real_alignment(alignment));
  }

  /// An allocator asks the system for that much where an alignment is large.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }

  void describe(report& out) const {
    out.below("host", "memory of operator new; the operating system sets how much there is");
  }

 private:
  // Beyond this no allocator can answer, and some round such sizes up to a small one.
  static constexpr std::size_t largest = PTRDIFF_MAX;

  // `operator delete` must be told the alignment that `operator new` was.
  static std::align_val_t real_alignment(std::size_t alignment) noexcept {
    return std::align_val_t{alignment < default_alignment ? default_alignment : alignment};
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes) const {
    report own = report_of(*this);
    own.hint(detail::hint_for(bytes, own,
                              "the host, or what this process may have of it (ulimit -v, its container), has no more: "
                              "free something, or ask for less"));
    throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream}, "host", own);
  }

  detail::process_exit life_;
};

/// Ordinary host memory: for stacks on machines without a GPU, and for the host's side of a program.
/// When not to use it: for memory that kernels read or that asynchronous copies use; that is `pinned` or `managed`.
struct host {
  static constexpr char const* layer_name = "host";
  template <class F>
  static constexpr void for_each_option(F) {}

  host_resource operator()() const { return host_resource(); }
};

}  // namespace weir
