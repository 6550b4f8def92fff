#pragma once
// Makes managed memory resident on a device when it is allocated.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/stream_marks.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/managed.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace weir {

template <resource Upstream>
class prefetch_resource;

/// Moves managed memory to a device when it is allocated (`cudaMemPrefetchAsync`), so that kernels do not wait page by
/// page, and advises CUDA how it will be used. Hints: what CUDA refuses is counted and changes nothing, as on memory
/// that is not managed. Memory that devices do not reach passes without a call.
/// When not to use it: for memory that the host writes first, which the prefetch would move away from it.
struct prefetch {
  int device = -1;                  ///< where to; -1: the stack's device
  bool preferred_location = false;  ///< advise that the memory stays there rather than where it is touched
  bool accessed_by = false;         ///< advise that the device maps the memory wherever it is, rather than faults
  bool read_mostly = false;         ///< advise that copies are made where it is read, since it is seldom written

  template <resource Upstream>
  using on = prefetch_resource<Upstream>;

  static constexpr char const* layer_name = "prefetch";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::count("device", "device", &prefetch::device).at_least(-1, "which is the stack's device"));
    f(option::flag("preferred_location", "preferred_location", &prefetch::preferred_location));
    f(option::flag("accessed_by", "accessed_by", &prefetch::accessed_by));
    f(option::flag("read_mostly", "read_mostly", &prefetch::read_mostly));
  }

  /// Empty if these options are valid, else what is wrong with them.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    return option::first_problem(*this);
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// How many hints a `prefetch` gave, and how many of them CUDA refused.
struct prefetch_numbers {
  std::uint64_t hints = 0;
  std::uint64_t refused = 0;
};

/// What `prefetch` stands as on an upstream. All functions may be called from any thread.
///
/// The prefetch takes its place in the stream that memory is allocated on; in `host_order` in a stream of this layer's,
/// which nobody waits for: to use memory that is on its way is allowed. On a stream that is being captured there is
/// neither prefetch nor advice, since a graph has no node for it.
template <resource Upstream>
class prefetch_resource : public detail::adaptor_base<prefetch_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<prefetch_resource, Upstream>;

 public:
  static constexpr char const* layer_name = prefetch::layer_name;

  /// Throws `std::invalid_argument` for wrong options or a device that is not there, `cuda_error` if CUDA makes no
  /// stream.
  template <recipe F>
  prefetch_resource(F const& upstream, prefetch const& options)
      : base(upstream), options_(detail::require_valid(options)) {
    if constexpr (does_something) {
      if (options_.device < 0) options_.device = detail::device_for(upstream_);
      if (int const count = device_count(); options_.device >= count)
        throw std::invalid_argument("weir: prefetch: there is no device " + std::to_string(options_.device) +
                                    "; this process sees " + std::to_string(count) + ", numbered from 0");
      own_stream_.emplace(options_.device);
    }
  }

  /// Throws what the upstream throws, and nothing of its own.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    void* const p = this->pass(stream, bytes, alignment, [] {});
    if constexpr (does_something) give_hints(stream, p, bytes);
    return p;
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p != nullptr) share(upstream_).deallocate(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
  }

  prefetch_numbers hints() const noexcept { return {hints_.load(), refused_.load()}; }

  void describe_layer(report& out) const {
    prefetch_numbers const n = hints();
    out.below("prefetch", !does_something
                              ? std::string("nothing: no device reaches this memory")
                              : std::to_string(n.hints) + " hints for device " + std::to_string(options_.device) +
                                    ", of which CUDA refused " + std::to_string(n.refused));
  }

 private:
  using base::upstream_;
  static constexpr bool does_something = device_accessible<Upstream>;

  void give_hints(stream_ref stream, void* p, std::size_t bytes) noexcept {
    if (life_.is_exiting() || (!stream.is_host_order() && detail::may_be_captured(stream))) return;
    if (options_.preferred_location) advise(p, bytes, cudaMemAdviseSetPreferredLocation);
    if (options_.accessed_by) advise(p, bytes, cudaMemAdviseSetAccessedBy);
    if (options_.read_mostly) advise(p, bytes, cudaMemAdviseSetReadMostly);
    cudaStream_t const order = stream.is_host_order() ? own_stream_->get() : stream.get();
    count(detail::prefetch_to(p, bytes, options_.device, order));
  }
  void advise(void* p, std::size_t bytes, cudaMemoryAdvise advice) noexcept {
    count(detail::advise(p, bytes, advice, options_.device));
  }
  void count(cudaError_t code) noexcept {
    hints_.add(1);
    if (!detail::succeeded(code)) refused_.add(1);
  }

  prefetch options_;
  detail::process_exit life_;
  std::optional<detail::internal_stream> own_stream_;
  detail::atomic<std::uint64_t> hints_, refused_;
};

}  // namespace weir
