#pragma once
// The pool: memory kept in segments, cut into blocks and reused in stream order.

#include <weir/adaptors/pool_options.hpp>
#include <weir/adaptors/segment_pool.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/device.hpp>

#include <cstdint>
#include <string>

namespace weir {

/// Made by `upstream | pool{...}`; what it does is said there. Thread-safe: one lock, never held while CUDA may block.
/// Segments are taken and given back in host order, so every upstream serves, stream-ordered or not. The destructor
/// waits for work on freed blocks, then gives every segment back; nobody may use the pool any more.
template <resource Upstream>
class pool_resource {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = true;

  template <recipe F>
  pool_resource(F const& upstream, pool const& options)
      : upstream_(upstream()),
        options_(detail::require_valid(options)),
        pass_through_(detail::caching_disabled()),
        segments_(upstream_, options_, device_accessible ? current_device() : 0) {
    if (options_.initial_bytes != 0 && !pass_through_ && !segments_.grow(options_.initial_bytes))
      refuse_at_once(host_order, options_.initial_bytes);
  }
  pool_resource(pool_resource const&) = delete;
  pool_resource& operator=(pool_resource const&) = delete;

  /// Throws `out_of_memory` when neither reuse nor growth nor waiting helps, `std::invalid_argument` for an alignment
  /// that is no power of two or exceeds 2 MiB, `cuda_error` if the stream is not one.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (pass_through_) [[unlikely]]
      return pass(stream, bytes, alignment);
    if (bytes > segments_.most_bytes) [[unlikely]]
      refuse_at_once(stream, bytes);
    detail::pool_refusal refusal;
    void* const p = segments_.allocate(stream, bytes, alignment, detail::pool_effort::all, 0, &refusal);
    if (p == nullptr) [[unlikely]]
      refuse(stream, bytes, refusal.at());
    return p;
  }

  /// The memory may be reused at once on `stream`, elsewhere after the work now queued on it. Allocates no host memory.
  /// A pointer, size or alignment that `allocate` did not give or take goes to the misuse handler.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (pass_through_) [[unlikely]]
      return share(upstream_).deallocate(stream, p, bytes, alignment);
    if (!segments_.deallocate(stream, p, bytes, alignment)) [[unlikely]]
      report_wrong_free(p, bytes, alignment);
  }

  /// Gives idle segments back to the upstream until at most `keep` bytes are held; returns how many went. Does not
  /// wait: memory whose work is not done stays. Call `synchronize` first to give back all that can be.
  std::size_t trim(std::size_t keep = 0) noexcept { return segments_.trim(keep); }

  /// Lets the host wait until all work on freed blocks is done.
  void synchronize() noexcept { segments_.synchronize(); }

  /// Makes the memory of a stream capture everyone's again (`capture`: its id, see `weir::capture_id`; 0: of all): what
  /// was allocated or freed in it and is free now. Call it when no launch of the graph, no executable graph of it and
  /// no work on that memory is left or to come. Returns how many bytes that is. Slow: looks at every block.
  std::size_t release_captured(std::uint64_t capture = 0) noexcept { return segments_.release_captured(capture); }

  /// Cheap: one lock.
  pool_numbers numbers() const { return segments_.numbers(); }
  /// Slow: looks at every stream's largest blocks.
  pool_snapshot snapshot() const { return segments_.snapshot(); }

  Upstream& upstream() noexcept { return upstream_; }
  Upstream const& upstream() const noexcept { return upstream_; }

  void describe(report& out) const {
    describe_layer(out);
    weir::describe(upstream_, out);
  }
  void describe_layer(report& out) const { describe_layer(out, "", snapshot()); }

 private:
  void describe_layer(report& out, char const* reason, pool_snapshot const& s) const {
    pool_numbers const& n = s.numbers;
    std::string text = reason + format_bytes(n.reserved.current) + " reserved" + detail::under_way_text(s) + " = " +
                       format_bytes(n.allocated.current) + " allocated (" + format_bytes(n.requested.current) +
                       " requested) + " + format_bytes(n.free) + " free + " + format_bytes(n.pending) + " pending" +
                       detail::captured_text(n) + "; largest free piece " + format_bytes(s.largest_free);
    out.below(options_.max_bytes == 0 ? "pool" : "pool(" + format_bytes(options_.max_bytes) + ")", text);
  }

  // Out of line of `allocate` and `deallocate`, which are short without.
  [[gnu::noinline, gnu::cold]] void report_wrong_free(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    detail::report_misuse("weir: pool: " + segments_.misuse(p, bytes, alignment));
  }

  [[gnu::noinline, gnu::cold]] void* pass(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    return share(upstream_).allocate(stream, bytes, alignment);
  } catch (out_of_memory& failure) {
    failure.passed_through(*this);
    throw;
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse_at_once(stream_ref stream, std::size_t bytes) {
    refuse(stream, bytes, segments_.count_refusal());
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes,
                                                     pool_snapshot const& at_refusal) {
    report state;
    describe_layer(state, detail::capture_reason(stream), at_refusal);
    weir::describe(upstream_, state);
    throw out_of_memory({bytes, round_up_or_zero(bytes, detail::unit_bytes), stream}, "pool", state);
  }

  Upstream upstream_;
  pool options_;
  bool pass_through_;
  detail::segment_pool<Upstream> segments_;
};

}  // namespace weir
