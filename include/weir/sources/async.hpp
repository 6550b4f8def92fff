#pragma once
// Source: CUDA's own stream-ordered allocator, on a memory pool.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sources/rejected_free.hpp>
#include <weir/sources/shifted_blocks.hpp>
#include <weir/sources/source_device.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

class async_resource;

/// Device memory in stream order by `cudaMallocFromPoolAsync`: the usual bottom of a stack. No call blocks the host.
/// When not to use it: on devices without memory pools, or where other processes must open single allocations
/// (`device`).
struct async {
  int device = -1;  ///< which device; -1: the one current at `make`
  /// Bytes that the pool keeps when a stream, event or device is synchronised; what it holds above goes back to the
  /// system then. The default keeps everything, so that a synchronise costs no allocations; `trim` gives it back.
  std::size_t release_threshold = SIZE_MAX;
  std::size_t max_bytes = 0;      ///< most that the pool may hold, rounded up by CUDA; 0: as much as the device has
  std::size_t initial_bytes = 0;  ///< taken from the device at `make` and kept by the pool

  /// By what other processes may open the pool, which `export_pool` exports. Unless it is `none`, CUDA gives the pool's
  /// memory back only at its end, whatever `trim` and `release_threshold` say.
  memory_handle handle_type = memory_handle::none;

  bool peers = false;  ///< every device that can reach this one's memory may use what this gives as well

  bool reuse_follow_event_dependencies = true;    ///< reuse what another stream freed where events order it
  bool reuse_allow_opportunistic = true;          ///< reuse what another stream freed once that is seen to be done
  bool reuse_allow_internal_dependencies = true;  ///< let CUDA insert a wait for another stream rather than fail

  /// Allocate from the device's default pool, as plain `cudaMallocAsync` does, and share it with the whole process. Its
  /// settings belong to no one resource: they are left alone, and the options above but `device` must have their
  /// defaults.
  bool use_default_pool = false;

  /// Allocate from this pool of the device, which someone else made and keeps until the resource is gone: the current
  /// one (`cudaDeviceGetMemPool`), say; not one that was imported from another process, since CUDA allocates nothing
  /// from such. Its settings are left alone as well. A text cannot say it.
  cudaMemPool_t pool = nullptr;

  static constexpr char const* layer_name = "async";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<async>());
    f(option::bytes("release_threshold", "release_threshold", &async::release_threshold));
    f(option::bytes("max", "max_bytes", &async::max_bytes));
    f(option::bytes("initial", "initial_bytes", &async::initial_bytes));
    f(option::one_of("handle_type", "handle_type", &async::handle_type, "none", memory_handle::none, "posix_fd",
                     memory_handle::posix_fd));
    f(option::flag("peers", "peers", &async::peers));
    f(option::flag("reuse_follow_event_dependencies", "reuse_follow_event_dependencies",
                   &async::reuse_follow_event_dependencies));
    f(option::flag("reuse_allow_opportunistic", "reuse_allow_opportunistic", &async::reuse_allow_opportunistic));
    f(option::flag("reuse_allow_internal_dependencies", "reuse_allow_internal_dependencies",
                   &async::reuse_allow_internal_dependencies));
    f(option::flag("default_pool", "use_default_pool", &async::use_default_pool));
  }

  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const;
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
  template <class = void>
  async_resource operator()() const;
};

/// What CUDA's memory pool says of itself, in bytes. With `use_default_pool` or `pool` that is everyone's together.
struct async_numbers {
  struct level {
    std::size_t current = 0;
    std::size_t peak = 0;
  };
  level allocated;  ///< in use
  level reserved;   ///< held from the system
};

/// Gives device memory in stream order. In `host_order` it allocates on a stream of its own and waits for that.
/// Thread-safe. Alignment: 256 B or as asked, up to 2 MiB.
class async_resource {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = false;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "async";

  /// Throws `std::invalid_argument` for wrong options or a device without memory pools, `out_of_memory` if the initial
  /// bytes are not to be had.
  template <class = void>  // so that only those pay for compiling it who use it
  explicit async_resource(async const& options)
      : async_resource(options, layer_name, options.max_bytes,
                       options.pool == nullptr ? detail::device_is_full : detail::given_pool_is_full) {}
  async_resource(async_resource const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  async_resource& operator=(async_resource const&) = delete;

  /// Throws `out_of_memory`, `cuda_error`, or `std::invalid_argument` for an alignment beyond 2 MiB.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (detail::wants_captured_memory(stream)) refuse(stream, bytes);
    if (life_.is_exiting()) detail::check(detail::process_exit::error, name_);
    life_.settle();
    return take(stream, bytes, alignment);
  }

  /// Frees after the work queued on `stream` so far. The stream must not have been destroyed. On a stream that is being
  /// captured, only what was allocated in the same capture is freed, by each launch; other memory is kept for good.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr || life_.is_exiting()) return;
    void* const base = shifted_.base_of(p, alignment);
    cudaStream_t const order = order_of(stream);
    cudaError_t code = cudaFreeAsync(base, order);
    // A capture frees what it allocated, and nothing else: other memory is kept, since the graph may use it.
    if (code != cudaSuccess && !stream.is_host_order() && detail::may_break_capture(order)) {
      detail::succeeded(code);
      return detail::note_kept();
    }
    if (!detail::succeeded(code) && code != cudaErrorInvalidValue && !detail::cuda_is_absent(code)) {
      // CUDA does not take the free on that stream, which may be another device's. The memory is still good: wait for
      // its work, free it on our own.
      if (!detail::wait_for(order, device_)) return detail::note_kept();
      code = cudaFreeAsync(base, own_stream_.get());
    }
    detail::freed(code, name_, "cudaFreeAsync", p, bytes);
  }

  /// Gives memory that no allocation uses back to the system until the pool holds `keep_bytes`; returns how many bytes
  /// went, and 0 where CUDA refuses. Frees whose stream was not synchronised since count as use, but for those in
  /// `host_order`, such as a pool's. With `use_default_pool` or `pool`, what others keep in that pool goes too.
  std::size_t trim(std::size_t keep_bytes = 0) noexcept try {
    if (life_.is_exiting()) return 0;
    std::size_t const before = pool_.get(cudaMemPoolAttrReservedMemCurrent);
    // CUDA counts a free as done once the host has seen it so. Nothing is queued here but frees, so this is no wait.
    detail::check(detail::relaxed([&] { return cudaStreamSynchronize(own_stream_.get()); }), "cudaStreamSynchronize");
    pool_.trim(keep_bytes);
    std::size_t const after = pool_.get(cudaMemPoolAttrReservedMemCurrent);
    return before - (after < before ? after : before);  // another thread may have taken more meanwhile
  } catch (...) {
    return 0;
  }

  /// What CUDA's pool holds from the system, and what of it is in use. Up to four CUDA calls. Throws `cuda_error`.
  async_numbers numbers() const {
    if (life_.is_exiting()) detail::check(detail::process_exit::error, name_);
    return {{pool_.get(cudaMemPoolAttrUsedMemCurrent), pool_.get(cudaMemPoolAttrUsedMemHigh)},
            {pool_.get(cudaMemPoolAttrReservedMemCurrent), pool_.get(cudaMemPoolAttrReservedMemHigh)}};
  }
  /// Lets the peaks start again from now. Two CUDA calls; nothing where they fail, or the pool is someone else's.
  void reset_peaks() noexcept try {
    if (life_.is_exiting() || !pool_.is_owned()) return;
    pool_.set(cudaMemPoolAttrUsedMemHigh, 0);
    pool_.set(cudaMemPoolAttrReservedMemHigh, 0);
  } catch (cuda_error const&) {
  }
  /// The most that CUDA's pool may hold; 0: as much as the device has.
  std::size_t max_bytes() const noexcept { return max_bytes_; }

  cudaMemPool_t pool() const noexcept { return pool_.get(); }
  int device() const noexcept { return device_; }

  /// What CUDA is asked for: an alignment above 256 B takes room to move in.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }

  void describe(report& out) const {
    out.below(std::string(name_) + "(" + std::to_string(device_) + ")",
              life_.is_exiting()
                  ? detail::process_exit::words
                  : pool_state() + "; " + detail::device_state(device_, is_of_device_alone_ ? held() : 0));
    if (is_of_device_alone_ && !life_.is_exiting()) detail::note_device_memory(out, device_);
  }

 protected:
  /// For sources on pools of other memory, which `options` names: `name` and `hint`, what to do when there is no more,
  /// are theirs; `max_bytes`: the pool's.
  template <class = void>
  async_resource(async const& options, char const* name, std::size_t max_bytes, char const* hint)
      : name_(name),
        hint_(hint),
        device_(usable_device(name, detail::require_valid(options))),
        max_bytes_(max_bytes),
        is_of_device_alone_(options.pool == nullptr),
        lets_cuda_wait_(options.reuse_allow_internal_dependencies),
        own_stream_(device_),
        pool_(options.pool != nullptr ? detail::memory_pool::view_of(options.pool)
              : options.use_default_pool
                  ? detail::memory_pool::default_of(device_)
                  : detail::memory_pool::create(device_, options.max_bytes, options.handle_type)) {
    if (options.use_default_pool || options.pool != nullptr) return;
    pool_.set(cudaMemPoolAttrReleaseThreshold, options.release_threshold);
    pool_.allow(cudaMemPoolReuseFollowEventDependencies, options.reuse_follow_event_dependencies);
    pool_.allow(cudaMemPoolReuseAllowOpportunistic, options.reuse_allow_opportunistic);
    pool_.allow(cudaMemPoolReuseAllowInternalDependencies, options.reuse_allow_internal_dependencies);
    if (options.peers) detail::for_each_peer(device_, [this](int peer) { pool_.let_in(peer); });
    if (options.initial_bytes != 0)
      deallocate(host_order, take(host_order, options.initial_bytes, default_alignment), options.initial_bytes);
  }

 private:
  static int usable_device(char const* name, async const& options) {
    int const device = detail::chosen_device(name, options.device);
    detail::require_ability(name, device, cudaDevAttrMemoryPoolsSupported,
                            "has no memory pools (cudaDevAttrMemoryPoolsSupported is 0); use device with a pool on it");
    if (options.handle_type != memory_handle::none)
      detail::require_ability(name, device, cudaDevAttrMemoryPoolSupportedHandleTypes,
                              "has no memory pools for other processes (cudaDevAttrMemoryPoolSupportedHandleTypes is "
                              "0); share memory of device by cudaIpcGetMemHandle");
    return device;
  }

  void* take(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    cudaStream_t const order = order_of(stream);
    void* const p = shifted_.allocate(
        bytes, alignment, [&](std::size_t n) { return take_from_pool(n, order); },
        [&](void* base) { detail::succeeded(cudaFreeAsync(base, order)); });
    if (p == nullptr) refuse(stream, bytes, alignment);
    if (stream.is_host_order()) {
      cudaError_t const code = detail::relaxed([order] { return cudaStreamSynchronize(order); });
      if (code != cudaSuccess) deallocate(stream, p, bytes, alignment);
      detail::check(code, "cudaStreamSynchronize");
    }
    return p;
  }

  void* take_from_pool(std::size_t bytes, cudaStream_t order) {
    void* const p = detail::try_malloc_from_pool(pool_.get(), bytes, order);
    if (p != nullptr || lets_cuda_wait_) return p;
    // CUDA may not look for memory whose free is still queued. In host order all work on that is done: nothing is
    // queued here but frees, so this is no wait.
    if (!detail::succeeded(detail::relaxed([&] { return cudaStreamSynchronize(own_stream_.get()); }))) return nullptr;
    return detail::try_malloc_from_pool(pool_.get(), bytes, order);
  }

  cudaStream_t order_of(stream_ref stream) const noexcept {
    return stream.is_host_order() ? own_stream_.get() : stream.get();
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes,
                                                     std::size_t alignment = default_alignment) const {
    report own = report_of(*this);
    std::size_t const room = detail::counted_room(bytes, alignment);
    own.hint(detail::hint_for(room, own, detail::full_source_hint(held(), room, max_bytes_, hint_)));
    throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream, device_}, name_, own);
  }
  std::size_t held() const noexcept try {
    return pool_.get(cudaMemPoolAttrReservedMemCurrent);
  } catch (cuda_error const&) {
    return 0;
  }
  std::string pool_state() const try {
    return "CUDA's pool holds " + format_bytes(pool_.get(cudaMemPoolAttrReservedMemCurrent)) + ", " +
           format_bytes(pool_.get(cudaMemPoolAttrUsedMemCurrent)) + " of it in use" +
           (max_bytes_ == 0 ? std::string() : ", at most " + format_bytes(max_bytes_));
  } catch (cuda_error const&) {
    return "CUDA's pool could not be asked";
  }

  char const* name_;
  char const* hint_;  // what to do when there is no more
  detail::process_exit life_;
  int device_;
  std::size_t max_bytes_;
  bool is_of_device_alone_;  // a pool that was given may have its memory anywhere
  bool lets_cuda_wait_;      // reuse_allow_internal_dependencies
  detail::internal_stream own_stream_;
  detail::memory_pool pool_;
  detail::shifted_blocks shifted_;
};

template <class>
std::string async::problem() const {
  if (std::string what = option::first_problem(*this); !what.empty()) return what;
  if (use_default_pool && pool != nullptr) return "async: use_default_pool is set, and so is pool; it has one of them";
  if (use_default_pool || pool != nullptr) {
    async const defaults;
    if (release_threshold != defaults.release_threshold || max_bytes != 0 || initial_bytes != 0 || peers ||
        handle_type != defaults.handle_type || !reuse_follow_event_dependencies || !reuse_allow_opportunistic ||
        !reuse_allow_internal_dependencies)
      return std::string("async: ") + (use_default_pool ? "use_default_pool" : "pool") +
             " is set, and so is an option for a pool of its own; the " +
             (use_default_pool ? "default pool is everyone's" : "pool is whose it was") +
             ", change it by cudaMemPoolSetAttribute";
    return {};
  }
  if (max_bytes != 0 && initial_bytes > max_bytes)
    return "async: initial_bytes is " + std::to_string(initial_bytes) + "; it must not exceed max_bytes, which is " +
           std::to_string(max_bytes);
  if (initial_bytes > release_threshold)
    return "async: initial_bytes is " + std::to_string(initial_bytes) +
           "; it must not exceed release_threshold, which is " + std::to_string(release_threshold) +
           " (the pool would give it back at the first synchronise)";
  return {};
}

template <class>
async_resource async::operator()() const {
  return async_resource(*this);
}

}  // namespace weir
