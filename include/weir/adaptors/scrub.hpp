#pragma once
// Zeroes memory when it changes hands.

#include <weir/adaptors/detail/chunk_views.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/adaptors/detail/scrubbed_blocks.hpp>
#include <weir/adaptors/detail/zeroing.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace weir {

template <resource Upstream>
class scrub_resource;

/// Overwrites memory with zeros before the upstream has it back, or before the caller gets it, so that nobody sees what
/// another left there: CUDA clears nothing that is reused in a process, and a pool reuses within microseconds.
/// When not to use it: against other processes, whose memory the driver clears by itself.
struct scrub {
  bool on_free = true;         ///< zero what is freed, behind the work of its stream
  bool on_allocation = false;  ///< zero what is handed out, for users of memory that was not scrubbed when it was freed

  template <resource Upstream>
  using on = scrub_resource<Upstream>;

  static constexpr char const* layer_name = "scrub";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::flag("on_free", "on_free", &scrub::on_free));
    f(option::flag("on_allocation", "on_allocation", &scrub::on_allocation));
  }

  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const {
    return on_free || on_allocation ? "" : "scrub: on_free and on_allocation are false; at least one must be true";
  }
  bool valid() const { return problem().empty(); }
};

/// What `scrub` stands as on an upstream. All functions may be called from any thread.
///
/// It asks the upstream for whole 256 B, and zeroes all of that: what a kernel may write past the end of a vector is
/// part of it. A block that cannot be zeroed is never handed on: where CUDA refuses even after the host has waited for
/// the stream, it is kept for good. A free that is wrong is reported here, and touches nothing.
///
/// On growable memory it is growable: `map` zeroes what it maps where allocations are zeroed, `unmap` what it unmaps
/// where frees are, unless that is shown at another address too. Both wait for the device.
template <resource Upstream>
class scrub_resource : public detail::passing_adaptor<scrub_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<scrub_resource, Upstream>;
  static_assert(device_accessible<Upstream> || host_accessible<Upstream>,
                "weir: scrub stands on memory that the device or the host can reach, and this upstream says neither");

 public:
  static constexpr bool knows_blocks = true;
  static constexpr bool changes_requests = true;  // to whole 256 B; and what a capture freed arrives later
  static constexpr char const* layer_name = scrub::layer_name;

  /// Memory that the device reaches is zeroed on the device of the stack: throws `cuda_error` without one.
  template <recipe F>
  scrub_resource(F const& upstream, scrub const& options)
      : base(upstream),
        on_free_(detail::require_valid(options).on_free),
        on_allocation_(options.on_allocation),
        zeroing_(device_zeroes ? detail::device_for(upstream_) : -1) {}

  /// Frees what was held for captures: nothing of this stack is in use any more.
  ~scrub_resource() { release_captured(); }

  /// Throws what the upstream throws, `cuda_error` if the memory cannot be zeroed, and `std::bad_alloc`.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    life_.settle();
    void* p = take(stream, bytes, alignment);
    try {
      if (on_allocation_) zero_for_use(stream, p, whole(bytes));
      blocks_.insert(p, {bytes, alignment, capture_of(stream)});
    } catch (...) {
      if (p != nullptr) share(upstream_).deallocate(stream, p, whole(bytes), alignment);
      throw;
    }
    return p;
  }

  /// Does not block where the device reaches the memory, but in `host_order`, and for what was allocated in a capture
  /// and is freed outside of it: there it waits for the device to have zeroed it. Else it waits for the stream.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (device_zeroes && life_.is_exiting())  // the upstream gives it to nobody any more
      return share(upstream_).deallocate(stream, p, whole(bytes), alignment);
    auto const live = blocks_.find_live(p);
    bool const is_right = live && live->bytes == bytes && live->alignment == alignment;
    std::uint64_t const capture = is_right ? capture_of(stream) : 0;
    bool const has_to_wait = capture != 0 && !is_zeroed_by_graph(capture, *live);
    // It may be gone by now: another thread frees it too.
    if (!is_right || !(has_to_wait ? blocks_.hold(p, capture, stream) : blocks_.take(p))) [[unlikely]]
      return report_wrong(p, bytes, alignment);
    if (has_to_wait) [[unlikely]] {
      // What another capture allocated is that one's when it goes back to the pool.
      detail::last_call = {detail::call_note::captured, live->allocated_in != 0 ? live->allocated_in : capture, 0};
      return;
    }
    bool zeroed = !on_free_ || zero_for_free(stream, p, whole(bytes));
    // Also for a capture that is over: the graph that has it next is in the order of no stream.
    if (on_free_ && live->allocated_in != 0 && !(capture != 0 && is_in_graph(stream))) [[unlikely]]
      zeroed = zeroed && wait_for_zeroing(stream);
    if (zeroed) [[likely]]
      return share(upstream_).deallocate(stream, p, whole(bytes), alignment);
    kept_.add(whole(bytes));
    detail::note_kept();
  }

  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return base::taken(whole(bytes), alignment);
  }

  /// As `growable` says; zeroes nothing, since work may use what is shown.
  bool alias(void* to, void* from, std::size_t bytes) requires growable<Upstream> {
    if (!on_free_) return upstream_.alias(to, from, bytes);
    std::size_t known = 0;
    auto const undo = [&] {
      this->for_each_chunk(to, known, [&](void* chunk) { views_.leave(chunk), views_.forget(chunk); });
    };
    try {
      for (; known < bytes; known += this->chunk_bytes()) views_.add(moved_by(to, known), moved_by(from, known));
      if (upstream_.alias(to, from, bytes)) return true;
    } catch (...) {
      undo();
      throw;
    }
    undo();
    return false;
  }

  /// Zeroes and frees what was held for a capture (`weir::capture_id`; 0: for any, also a broken one, which has no id);
  /// returns how many bytes. Call it when no launch of the graph and no work on that memory is left or to come.
  std::size_t release_captured(std::uint64_t capture = 0) noexcept {
    std::size_t released = 0;
    if (life_.is_exiting() || !blocks_.holds(0)) return released;
    detail::device_switch const on_device(zeroing_.device());  // whose legacy stream it is
    auto const may_go = [capture](detail::scrubbed_block const& b) {
      // No capture's is what was freed on the legacy stream: it may go as soon as that breaks none.
      if (b.freed_on.get() == cudaStreamLegacy) return !detail::may_break_capture(cudaStreamLegacy);
      return capture == 0 || b.held_for == capture;
    };
    for (auto held = blocks_.take_held(may_go); held; held = blocks_.take_held(may_go)) {
      auto const& [p, block] = *held;
      // The graph's work is done. What was freed on the legacy stream still has its place in that.
      stream_ref const order = block.freed_on.get() == cudaStreamLegacy ? block.freed_on : host_order;
      bool const goes_to_capture = block.allocated_in != 0;
      bool const zeroed = zero_for_free(order, p, whole(block.bytes));
      if (zeroed && (!goes_to_capture || wait_for_zeroing(order))) {
        stream_ref const behind = goes_to_capture ? host_order : order;
        share(upstream_).deallocate(behind, p, whole(block.bytes), block.alignment);
        released += whole(block.bytes);
      } else {
        kept_.add(whole(block.bytes));
      }
    }
    return released;
  }
  bool holds_captured(std::uint64_t capture) const noexcept {
    return blocks_.holds(capture) || base::holds_captured(capture);
  }

  /// Bytes that were freed and could not be zeroed: nobody gets them any more.
  std::size_t kept_bytes() const noexcept { return kept_.load(); }

  /// See `weir::find_block`.
  live_block find_block(void const* p) const noexcept {
    auto const live = blocks_.find_live(const_cast<void*>(p));
    return live ? live_block{live->bytes, live->alignment, true} : live_block{};
  }

  void describe_layer(report& out) const {
    out.below("scrub", std::string("zeroes ") +
                           (!on_free_         ? "what is allocated"
                            : !on_allocation_ ? "what is freed"
                                              : "what is allocated and what is freed") +
                           "; " + format_bytes(blocks_.held_bytes()) + " held for captures, " +
                           format_bytes(kept_bytes()) + " kept that could not be zeroed");
  }

 private:
  using base::upstream_;
  friend base;
  static constexpr bool device_zeroes = device_accessible<Upstream>;

  /// What the upstream is asked for. Sizes that cannot be rounded up are for it to refuse.
  static std::size_t whole(std::size_t bytes) noexcept {
    std::size_t const rounded = round_up_or_zero(bytes, default_alignment);
    return rounded == 0 ? bytes : rounded;
  }

  void* take(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    return this->pass(stream, whole(bytes), alignment, [] {});
  } catch (out_of_memory& failure) {
    failure.asked_for(bytes);
    throw;
  }

  /// The capture that a call takes part in. For the legacy stream: whether its work would break one. One CUDA call.
  std::uint64_t capture_of(stream_ref stream) const noexcept {
    if (!on_free_ || stream.is_host_order()) return 0;
    if (stream.get() != cudaStreamLegacy) return detail::capture_in(stream);
    return detail::may_break_capture(cudaStreamLegacy) ? detail::invalidated_capture : 0;
  }
  /// A graph zeroes what it allocates itself, each time it is launched. Other blocks it may use as well, and if it is
  /// never launched, nobody zeroes them.
  static bool is_zeroed_by_graph(std::uint64_t capture, detail::scrubbed_block const& block) noexcept {
    return device_zeroes && capture == block.allocated_in && capture != detail::invalidated_capture;
  }
  /// False where the call only counts as one of a capture (`acting_in_capture`). One CUDA call.
  static bool is_in_graph(stream_ref stream) noexcept { return detail::may_break_capture(stream.get()); }

  /// Throws `cuda_error`. Sets `p` to null where it must not be given back: a write that the host could not wait for
  /// may still come.
  void zero_for_use(stream_ref stream, void*& p, std::size_t bytes) {
    char const* const what = "scrub: zeroing what was allocated";
    if (!stream.is_host_order()) return detail::check(zeroing_.behind(stream, p, bytes), what);
    cudaError_t const code = zero_at_once(p, bytes);
    if (code == cudaSuccess) return;
    kept_.add(bytes);
    p = nullptr;
    detail::check(code, what);
  }
  /// Where the stream does not take it, the host waits for its work first.
  bool zero_for_free(stream_ref stream, void* p, std::size_t bytes) noexcept {
    if (!stream.is_host_order()) {
      if (detail::succeeded(zeroing_.behind(stream, p, bytes))) return true;
      if (!detail::wait_for(stream, zeroing_.device())) return false;
    }
    return zero_at_once(p, bytes) == cudaSuccess;
  }
  /// What a capture allocated goes back to it in the order of no stream: nobody else waits for the zeroing.
  bool wait_for_zeroing(stream_ref stream) const noexcept {
    return stream.is_host_order() || detail::wait_for(stream, zeroing_.device());
  }
  cudaError_t zero_at_once(void* p, std::size_t bytes) noexcept {
    if (detail::succeeded(zeroing_.at_once(p, bytes))) return cudaSuccess;
    cudaError_t const code = zeroing_.at_once(p, bytes);  // once more
    detail::succeeded(code);
    return code;
  }

  /// Throws `cuda_error` for what cannot be zeroed. That is unmapped again, unless it may still be written.
  template <class Map>
  bool map_by(void* p, std::size_t bytes, Map map) {
    life_.settle();
    if (!map()) return false;
    cudaError_t const code = on_allocation_ ? zero_at_once(p, bytes) : cudaSuccess;
    if (code == cudaSuccess) return true;
    if (!detail::wait_for_device(zeroing_.device()) || !upstream_.unmap(p, bytes)) kept_.add(bytes);
    detail::check(code, "scrub: zeroing what was mapped");
    return false;
  }
  /// False, and all of it stays, where some of it cannot be zeroed.
  template <class Unmap>
  bool unmap_by(void* p, std::size_t bytes, Unmap unmap) noexcept {
    if (!on_free_ || (device_zeroes && life_.is_exiting())) return unmap();
    bool const done = zero_last_views(p, bytes) && unmap();
    this->for_each_chunk(p, bytes, [&](void* chunk) { done ? views_.forget(chunk) : views_.stay(chunk); });
    return done;
  }
  /// Leaves all chunks of [p, p + bytes), and zeroes those that no other address shows, as many as possible at once.
  bool zero_last_views(void* p, std::size_t bytes) noexcept {
    bool all_zeroed = true;
    std::size_t begin = 0, end = 0;
    auto const zero = [&] {
      if (begin != end) all_zeroed = zero_at_once(moved_by(p, begin), end - begin) == cudaSuccess && all_zeroed;
    };
    for (; end < bytes; end += this->chunk_bytes()) {
      if (views_.leave(moved_by(p, end))) continue;
      zero();
      begin = end + this->chunk_bytes();
    }
    zero();
    return all_zeroed;
  }
  static void* moved_by(void* p, std::size_t bytes) noexcept { return static_cast<std::byte*>(p) + bytes; }

  [[gnu::noinline, gnu::cold]] void report_wrong(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
    auto const live = blocks_.find_live(p);
    detail::report_misuse("weir: scrub: deallocate of " + detail::hex(p) + " with " + std::to_string(bytes) +
                          " B aligned to " + std::to_string(alignment) + ": " +
                          (live ? std::to_string(live->bytes) + " B aligned to " + std::to_string(live->alignment) +
                                      " were allocated there"
                                : "this layer did not give it, or it was freed before"));
  }

  bool on_free_;
  bool on_allocation_;
  detail::process_exit life_;
  std::conditional_t<device_zeroes, detail::device_zeroing, detail::host_zeroing> zeroing_;
  detail::scrubbed_blocks blocks_;
  detail::chunk_views views_;
  detail::atomic<std::size_t> kept_;
};

}  // namespace weir
