#pragma once
// Blocks of one size, cut from chunks: for programs that ask for the same size again and again.

#include <weir/adaptors/detail/pooled.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/pool_options.hpp>

#include <cstddef>
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
  bool declared_captures = false;                      ///< as for `pool`

  template <resource Upstream>
  using on = fixed_size_resource<Upstream>;

  static constexpr char const* layer_name = "fixed_size";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::bytes("block", "block_bytes", &fixed_size::block_bytes)
          .first()
          .at_least(1)
          .at_most(detail::max_block_bytes - max_alignment));
    f(option::count("blocks_per_chunk", "blocks_per_chunk", &fixed_size::blocks_per_chunk));
    f(option::bytes("max", "max_bytes", &fixed_size::max_bytes));
    detail::for_each_pooling_option<fixed_size>(f);
  }

  /// What is wrong with these options; empty if nothing is.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    if (std::string what = option::first_problem(*this); !what.empty()) return what;
    std::size_t const block = round_up_or_zero(block_bytes, detail::unit_bytes);
    if (max_bytes != 0 && max_bytes < block)
      return "fixed_size: max_bytes is " + std::to_string(max_bytes) +
             " B; it must be 0 (no limit) or at least a block, " + std::to_string(block) + " B";
    return {};
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// Made by `upstream | fixed_size{...}`. Thread-safe and in stream order as `pool` is, and as fast.
template <resource Upstream>
class fixed_size_resource : public detail::pooled<fixed_size_resource<Upstream>, Upstream> {
  using base = detail::pooled<fixed_size_resource, Upstream>;

 public:
  static constexpr char const* layer_name = fixed_size::layer_name;

  template <recipe F>
  fixed_size_resource(F const& upstream, fixed_size const& options)
      : base(upstream, as_pool(detail::require_valid(options))),
        block_bytes_(round_up_or_zero(options.block_bytes, detail::unit_bytes)) {}

  /// Throws `out_of_memory` for more than `block_bytes()`, and else as `pool_resource::allocate` does. An alignment
  /// above 256 B is honoured, but may need up to a second block's room.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (bytes > block_bytes_) [[unlikely]]
      this->refuse_at_once(stream, bytes,
                           "more than a block: ", "take a larger block_bytes, or a pool for larger requests");
    return this->serve(stream, bytes, alignment, block_bytes_);
  }

  /// The most that one request may ask for, in bytes.
  std::size_t block_bytes() const noexcept { return block_bytes_; }

  /// A whole block, whatever is asked for; more than a block is refused.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return this->passes_through() || bytes > block_bytes_ ? base::taken(bytes, alignment) : block_bytes_;
  }

 private:
  friend base;

  static pool as_pool(fixed_size const& o) {
    std::size_t const block = round_up_or_zero(o.block_bytes, detail::unit_bytes);
    // Beyond this a chunk would no longer be one segment.
    constexpr std::size_t most = detail::max_block_bytes - max_alignment;
    return {.max_bytes = o.max_bytes,
            .growth_bytes = o.blocks_per_chunk <= most / block ? block * o.blocks_per_chunk : most,
            .streams = o.streams,
            .pending = o.pending,
            .synchronize = o.synchronize,
            .declared_captures = o.declared_captures};
  }

  std::string label() const { return "fixed_size(" + format_bytes(block_bytes_) + ")"; }
  std::string state(pool_snapshot const& s) const {
    return "blocks of " + format_bytes(block_bytes_) + "; " + detail::numbers_text(s);
  }

  std::size_t block_bytes_;
};

}  // namespace weir
