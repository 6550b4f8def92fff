#pragma once
// Blocks of one size, cut from chunks: for programs that ask for the same size again and again.

#include <weir/adaptors/pool_options.hpp>
#include <weir/adaptors/segment_pool.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/device.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

template <resource Upstream>
class fixed_size_resource;

/// Hands out blocks of one size, cut from chunks of many. A request takes a whole block; more than a block is refused.
/// Since all blocks are alike, every free one serves every request: nothing fragments. Sizes are bytes.
/// When not to use it: where sizes vary; take `pool`, or this as a bin of `binning`.
struct fixed_size {
  /// The size of a block, rounded up to a multiple of 256 B. Has to be given.
  std::size_t block_bytes = 0;
  /// Blocks in a chunk, which is taken from the upstream when the first of them is needed. A chunk is rounded up to
  /// whole 2 MiB, and smaller where there is no room for more. 0: a chunk is what a pool would grow by.
  std::size_t blocks_per_chunk = 128;
  /// The most that all chunks together hold; 0: no limit but the upstream's.
  std::size_t max_bytes = 0;
  stream_lifetime streams = stream_lifetime::may_end;  ///< as for `pool`
  when_pending pending = when_pending::grow;           ///< as for `pool`
  bool synchronize = true;                             ///< as for `pool`

  template <resource Upstream>
  using on = fixed_size_resource<Upstream>;

  /// What is wrong with these options; empty if nothing is.
  std::string problem() const {
    constexpr std::size_t most = detail::max_block_bytes - max_alignment;
    if (block_bytes < 1 || block_bytes > most)
      return "fixed_size: block_bytes is " + std::to_string(block_bytes) + "; it must be 1 to " + std::to_string(most);
    std::size_t const block = round_up_or_zero(block_bytes, detail::unit_bytes);
    if (max_bytes != 0 && max_bytes < block)
      return "fixed_size: max_bytes is " + std::to_string(max_bytes) +
             " B; it must be 0 (no limit) or at least a block, " + std::to_string(block) + " B";
    return detail::pooling_problem("fixed_size", streams, pending);
  }
  bool valid() const { return problem().empty(); }
};

/// Made by `upstream | fixed_size{...}`. Thread-safe and in stream order as `pool` is, and as fast.
template <resource Upstream>
class fixed_size_resource {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = true;

  template <recipe F>
  fixed_size_resource(F const& upstream, fixed_size const& options)
      : upstream_(upstream()),
        block_bytes_(round_up_or_zero(detail::require_valid(options).block_bytes, detail::unit_bytes)),
        pass_through_(detail::caching_disabled()),
        blocks_(upstream_, as_pool(options), device_accessible ? current_device() : 0) {}
  fixed_size_resource(fixed_size_resource const&) = delete;
  fixed_size_resource& operator=(fixed_size_resource const&) = delete;

  /// Throws `out_of_memory` for more than `block_bytes()`, and else as `pool_resource::allocate` does. An alignment
  /// above 256 B is honoured, but may need up to a second block's room.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (bytes > block_bytes_) [[unlikely]]
      refuse(stream, bytes, "more than a block: ", blocks_.count_refusal());
    if (pass_through_) [[unlikely]]
      return share(upstream_).allocate(stream, bytes, alignment);
    detail::pool_refusal refusal;
    void* const p = blocks_.allocate(stream, bytes, alignment, detail::pool_effort::all, block_bytes_, &refusal);
    if (p == nullptr) [[unlikely]]
      refuse(stream, bytes, detail::capture_reason(stream), refusal.at());
    return p;
  }

  /// As `pool_resource::deallocate`: the same size and alignment as `allocate` was given, or the misuse handler hears
  /// it.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (pass_through_) [[unlikely]]
      return share(upstream_).deallocate(stream, p, bytes, alignment);
    if (!blocks_.deallocate(stream, p, bytes, alignment)) [[unlikely]]
      report_wrong_free(p, bytes, alignment);
  }

  /// The most that one request may ask for, in bytes.
  std::size_t block_bytes() const noexcept { return block_bytes_; }

  /// As `pool_resource::trim`: gives back idle chunks until at most `keep` bytes are held; returns how many bytes went.
  std::size_t trim(std::size_t keep = 0) noexcept { return blocks_.trim(keep); }
  /// Lets the host wait until all work on freed blocks is done.
  void synchronize() noexcept { blocks_.synchronize(); }

  /// As `pool_resource::release_captured`.
  std::size_t release_captured(std::uint64_t capture = 0) noexcept { return blocks_.release_captured(capture); }

  /// Cheap: one lock. `allocated` counts whole blocks.
  pool_numbers numbers() const { return blocks_.numbers(); }
  /// Slow: looks at every stream's blocks.
  pool_snapshot snapshot() const { return blocks_.snapshot(); }

  Upstream& upstream() noexcept { return upstream_; }
  Upstream const& upstream() const noexcept { return upstream_; }

  void describe(report& out) const {
    describe_layer(out);
    weir::describe(upstream_, out);
  }
  void describe_layer(report& out) const { describe_layer(out, "", snapshot()); }

 private:
  static pool as_pool(fixed_size const& o) {
    std::size_t const block = round_up_or_zero(o.block_bytes, detail::unit_bytes);
    // Beyond this a chunk would no longer be one segment.
    constexpr std::size_t most = detail::max_block_bytes - max_alignment;
    return {.max_bytes = o.max_bytes,
            .growth_bytes = o.blocks_per_chunk <= most / block ? block * o.blocks_per_chunk : most,
            .streams = o.streams,
            .pending = o.pending,
            .synchronize = o.synchronize};
  }

  void describe_layer(report& out, std::string const& reason, pool_snapshot const& s) const {
    pool_numbers const& n = s.numbers;
    out.below("fixed_size(" + format_bytes(block_bytes_) + ")",
              reason + "blocks of " + format_bytes(block_bytes_) + "; " + format_bytes(n.reserved.current) +
                  " reserved" + detail::under_way_text(s) + " = " + format_bytes(n.allocated.current) + " allocated (" +
                  format_bytes(n.requested.current) + " requested) + " + format_bytes(n.free) + " free + " +
                  format_bytes(n.pending) + " pending" + detail::captured_text(n));
  }

  // Out of line of `allocate` and `deallocate`, which are short without.
  [[gnu::noinline, gnu::cold]] void report_wrong_free(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    detail::report_misuse("weir: fixed_size: " + blocks_.misuse(p, bytes, alignment));
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes, char const* reason,
                                                     pool_snapshot const& at_refusal) {
    report state;
    describe_layer(state, reason, at_refusal);
    weir::describe(upstream_, state);
    throw out_of_memory({bytes, round_up_or_zero(bytes, detail::unit_bytes), stream}, "fixed_size", state);
  }

  Upstream upstream_;
  std::size_t block_bytes_;
  bool pass_through_;
  detail::segment_pool<Upstream> blocks_;
};

}  // namespace weir
