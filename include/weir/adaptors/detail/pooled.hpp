#pragma once
// The front of `pool` and `fixed_size`: both serve requests from segments that one `caching_allocator` keeps.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/passed_blocks.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/pool/limits_between.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/pool_refusal.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace weir {

/// For `park`: nobody needs the contents.
struct drop_contents_t {};
inline constexpr drop_contents_t drop_contents{};

}  // namespace weir

namespace weir::detail {

/// The base of `Derived`, which has a `layer_name`, and a `label()` and a `state(pool_snapshot)` for reports; it may
/// have an `allocate` of its own, which ends in `serve`. Thread-safe. With `WEIR_NO_CACHING=1` every request goes to
/// the upstream.
template <class Derived, resource Upstream>
class pooled : public adaptor_base<Derived, Upstream> {
  using base = adaptor_base<Derived, Upstream>;

 public:
  static constexpr bool host_ordered = true;
  static constexpr bool knows_blocks = true;

  /// Throws `out_of_memory` when neither reuse nor growth nor waiting helps, `std::invalid_argument` for an alignment
  /// that is no power of two or exceeds 2 MiB, `cuda_error` if the stream is not one.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = default_alignment) {
    if (!segments_.may_be_at_hand(bytes, alignment)) [[unlikely]]
      return allocate_unkept(stream, bytes, alignment);
    void* const taken = segments_.take_as_owner(stream, bytes, alignment);
    if (segments_.is_memory(taken)) [[likely]]
      return taken;
    return taken == nullptr ? allocate_otherwise(stream, bytes, alignment) : serve_more(stream, bytes, alignment, 0);
  }

  /// The memory may be reused at once on `stream`, elsewhere after the work now queued on it. Allocates no host memory.
  /// A pointer, size or alignment that `allocate` did not give or take goes to the misuse handler.
  [[gnu::always_inline]] void deallocate(stream_ref stream, void* p, std::size_t bytes,
                                         std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (!segments_.may_be_at_hand(bytes, alignment)) [[unlikely]]
      return deallocate_unkept(stream, p, bytes, alignment);
    given const what = segments_.give_as_owner(stream, p, bytes, alignment);
    if (what == given::yes) [[likely]]
      return;
    if (what == given::for_the_heap) return deallocate_unkept(stream, p, bytes, alignment);
    deallocate_otherwise(stream, p, bytes, alignment);
  }

  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (pass_through_) {
      if (passed_.take(p, bytes, alignment, Derived::layer_name))
        weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
      return;
    }
    if (!segments_.deallocate_after(stream, others, p, bytes, alignment)) report_wrong_free(p, bytes, alignment);
  }

  /// See `weir::find_block`.
  live_block find_block(void const* p) noexcept { return pass_through_ ? passed_.find(p) : segments_.find_block(p); }

  /// Gives idle segments back to the upstream until at most `keep` bytes are held, then lets the layers below do the
  /// same, so that others can have the memory (`weir::trim`); returns how many bytes the upstream got. Does not wait:
  /// memory whose work is not done stays. Call `synchronize` first to give back all that can be.
  std::size_t trim(std::size_t keep = 0) noexcept {
    std::size_t const released = trim_layer(keep);
    weir::trim(upstream_, keep);
    return released;
  }
  /// The same without the layers below, which keep what they get.
  std::size_t trim_layer(std::size_t keep = 0) noexcept { return segments_.trim(keep); }

  /// Lets the host wait until all work on freed blocks is done.
  void synchronize() noexcept { segments_.synchronize(); }

  /// Gives all memory back to the upstream and further down, though blocks are live: their addresses stay, and
  /// `unpark` puts memory behind them again. Waits for the work on freed blocks; for the work that uses live ones the
  /// caller has waited (`cudaDeviceSynchronize`), and none may come before `unpark`.
  /// `to`: a handle to memory of the host, pinned at best, where the contents are kept meanwhile. Parked, the pool
  /// refuses requests, but takes frees. What a graph uses stays too, but only what is live keeps its contents. Only on
  /// a growable upstream; does nothing to a pool that is parked, and with `WEIR_NO_CACHING=1`. Throws what `to` throws;
  /// `cuda_error`, which is `cudaErrorNotReady` where the work on freed blocks cannot be waited for, as it may be while
  /// a capture is declared; or `std::logic_error`: always on memory that was made not `movable`, and from inside of
  /// what a pool calls while its memory comes or goes, as a reclaimer or an `on_soft` below it. Then nothing has
  /// changed, but that idle memory may have gone. When not to use it: for room for a moment. It copies all that is
  /// live, twice.
  template <handle To>
  void park(To const& to) requires growable<Upstream> && weir::host_accessible<To> {
    require_movable();
    if (!pass_through_) segments_.park(new content_store_on<To>(to));
    weir::trim(upstream_);
  }
  /// The same, but the contents are lost: what is behind the addresses after `unpark` is undefined.
  void park(drop_contents_t) requires growable<Upstream> {
    require_movable();
    if (!pass_through_) segments_.park(nullptr);
    weir::trim(upstream_);
  }
  /// Puts memory behind the addresses again, with the contents if those were kept, and returns when they are there.
  /// Throws `out_of_memory` or `cuda_error`, or `std::logic_error` as `park`, and then the pool stays parked, and this
  /// can be tried again.
  void unpark() requires growable<Upstream> {
    if (segments_.unpark()) return;
    std::size_t const parked = segments_.numbers().parked;
    refuse_at_once(host_order, parked, "cannot be unparked: ", hint_to_unpark(parked));
  }
  bool is_parked() const noexcept { return segments_.is_parked(); }

  /// Makes the memory of a stream capture everyone's again (`capture`: its id, see `weir::capture_id`; 0: of all): what
  /// was allocated or freed in it and is free now. Call it when no launch of the graph, no executable graph of it and
  /// no work on that memory is left or to come. Returns how many bytes that is. Slow: looks at every block.
  std::size_t release_captured(std::uint64_t capture = 0) noexcept { return segments_.release_captured(capture); }
  bool holds_captured(std::uint64_t capture) const noexcept {
    return pass_through_ ? base::holds_captured(capture) : segments_.holds_captured(capture);
  }

  /// See `upstream_calls`.
  upstream_calls const* shared_upstream_calls() const noexcept { return &segments_.calls(); }

  /// The block that serves a request. One that is kept whole (`max_split_bytes`) counts as the segment made for it.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    if (cuts_to_size_) [[likely]]
      return caching_allocator<Upstream>::block_bytes(bytes, alignment);
    return pass_through_ ? base::taken(bytes, alignment) : segments_.taken(bytes, alignment);
  }

  /// The most bytes that are held at any time; 0: no limit but the upstream's.
  std::size_t max_bytes() const noexcept { return max_bytes_; }
  /// Cheap: one lock. `allocated` counts whole blocks.
  pool_numbers numbers() const { return segments_.numbers(); }
  /// Slow: looks at every stream's largest blocks.
  pool_snapshot snapshot() const { return segments_.snapshot(); }
  /// Bytes of the largest free block, whoever freed it. As slow.
  std::size_t largest_free() const { return snapshot().largest_free; }
  /// For `weir::snapshot`: all segments, at one moment. Slow: copies what is known of every block, under the lock.
  void show_memory(memory_visitor& visitor) const { segments_.show_memory(visitor); }
  /// Lets the peaks in `numbers` start again from what is so now. How much may lie idle (`max_waste`) goes on by the
  /// most that was ever live.
  void reset_peaks() noexcept { segments_.reset_peaks(); }

  void describe_layer(report& out) const { describe_layer(out, "", snapshot()); }

 protected:
  /// Throws what the upstream throws when it is made.
  template <recipe F>
  pooled(F const& upstream, pool const& options)
      : base(upstream),
        pass_through_(caching_disabled()),
        cuts_to_size_(!pass_through_ && options.max_split_bytes == 0),
        max_bytes_(options.max_bytes),
        segments_(upstream_, options, device_for(upstream_)) {}

  /// A block of at least `bytes` and `least_block`. Throws `out_of_memory`, and what `caching_allocator::allocate`
  /// throws.
  [[gnu::always_inline]] void* serve(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                     std::size_t least_block = 0) {
    if (pass_through_ || !segments_.may_be_at_hand(greater(bytes, least_block), alignment)) [[unlikely]]
      return serve_more(stream, bytes, alignment, least_block);
    if (void* const p = segments_.allocate_at_hand(stream, bytes, alignment, least_block); p != nullptr) [[likely]]
      return p;
    return serve_by_search(stream, bytes, alignment, least_block);
  }

  /// Takes a first segment. Throws `out_of_memory` if it cannot be had.
  void reserve(std::size_t bytes) {
    if (!pass_through_ && !segments_.grow(bytes)) refuse_at_once(host_order, bytes, "", nullptr);
  }

  /// `reason` begins this layer's line in the report, `hint` is the last line; null: by what the pool has.
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_at_once(stream_ref stream, std::size_t bytes, char const* reason,
                                                             char const* hint) {
    refuse(stream, bytes, bytes, unit_bytes, reason, segments_.count_refusal(), hint);
  }

  bool passes_through() const noexcept { return pass_through_; }

 private:
  using base::upstream_;

  // Out of line of `allocate` and `deallocate`, which are short without.

  /// What is not kept at hand, or is no valid request.
  [[gnu::noinline]] void* allocate_unkept(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) [[unlikely]]
      return nullptr;
    require_alignment(alignment);
    return serve_more(stream, bytes, alignment, 0);
  }
  [[gnu::noinline]] void* allocate_otherwise(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return serve(stream, bytes, alignment);
  }
  [[gnu::noinline]] void deallocate_otherwise(stream_ref stream, void* p, std::size_t bytes,
                                              std::size_t alignment) noexcept {
    if (pass_through_) [[unlikely]]
      return pass_back(stream, p, bytes, alignment);
    if (!segments_.deallocate_otherwise(stream, p, bytes, alignment)) [[unlikely]]
      report_wrong_free(p, bytes, alignment);
  }
  [[gnu::noinline]] void* serve_more(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                     std::size_t least_block) {
    if (pass_through_) [[unlikely]]
      return pass_through(stream, bytes, alignment);
    if (bytes <= segments_.most_bytes) [[likely]]
      if (void* const p = segments_.allocate_ready(stream, bytes, alignment, least_block); p != nullptr) [[likely]]
        return p;
    return serve_by_search(stream, bytes, alignment, least_block);
  }
  [[gnu::noinline]] void* serve_by_search(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                          std::size_t least_block) {
    if (bytes > segments_.most_bytes) [[unlikely]]
      refuse_at_once(stream, bytes, "", "no pool serves a request of that size");
    pool_refusal refusal;
    void* const p = segments_.allocate_more(stream, bytes, alignment, pool_effort::all, least_block, &refusal);
    if (p == nullptr) [[unlikely]]
      refuse(stream, bytes, greater(bytes, least_block), alignment, capture_reason(stream), refusal.is());
    return p;
  }
  [[gnu::noinline, gnu::cold]] void* pass_through(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    void* const p = this->pass(stream, bytes, alignment, [] {});
    return passed_.insert_or(p, bytes, alignment, [&] { share(upstream_).deallocate(stream, p, bytes, alignment); });
  }
  /// What is not at hand, and everything while caching is off.
  [[gnu::noinline]] void deallocate_unkept(stream_ref stream, void* p, std::size_t bytes,
                                           std::size_t alignment) noexcept {
    if (pass_through_) [[unlikely]]
      return pass_back(stream, p, bytes, alignment);
    if (!segments_.deallocate_unkept(stream, p, bytes, alignment)) [[unlikely]]
      report_wrong_free(p, bytes, alignment);
  }
  [[gnu::noinline, gnu::cold]] void pass_back(stream_ref stream, void* p, std::size_t bytes,
                                              std::size_t alignment) noexcept {
    if (!passed_.take(p, bytes, alignment, Derived::layer_name)) return;
    share(upstream_).deallocate(stream, p, bytes, alignment);
  }
  /// `least_bytes`: how large the block would have to be.
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes, std::size_t least_bytes,
                                                     std::size_t alignment, char const* reason,
                                                     pool_refused const& refused, char const* hint = nullptr) {
    report own;
    std::size_t const rounded = caching_allocator<Upstream>::block_bytes(least_bytes, unit_bytes);
    describe_layer(own, reason, refused.at);
    own.note("", refused.bar.text());
    own.note("tried", tried_text(refused.tried));
    std::size_t const needed = padded_or_zero(rounded, alignment), most = most_of(upstream_, max_bytes_);
    base::refuse({bytes, rounded, stream}, Derived::layer_name, own,
                 hint != nullptr ? hint
                                 : refusal_hint(refused.at, needed, most, capture_in(stream) != 0, captures_declared(),
                                                growable<Upstream>));
  }
  [[gnu::noinline, gnu::cold]] void report_wrong_free(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    report_misuse(std::string("weir: ") + Derived::layer_name + ": " + segments_.misuse(p, bytes, alignment));
  }

  void require_movable() const {
    if (!chunks_may_move(upstream_))
      throw std::logic_error(
          "weir: pool: park on memory that was promised to stay where it is (virtual_memory{.movable = false}): other "
          "chunks would come back; make the source movable, or do not park");
  }
  char const* hint_to_unpark(std::size_t parked) {
    bool is_too_small = false;  // a whole budget, so that nothing that others free helps
    for_each_short_limit(upstream_, parked, [&](limit_ref const& limit, std::size_t) {
      is_too_small = is_too_small || limit.max_bytes() < parked;
    });
    return is_too_small ? "a budget below is less than what this pool had: raise it (set_max_bytes), then call unpark()"
                        : "others use what this pool gave back, or are promised it (min_bytes): free some there, then "
                          "call unpark() again";
  }
  void describe_layer(report& out, char const* reason, pool_snapshot const& s) const {
    auto const& layer = static_cast<Derived const&>(*this);
    out.below(layer.label(), reason + layer.state(s));
  }

  bool pass_through_;
  bool cuts_to_size_;  // every block has the size of its request, in whole units
  std::size_t max_bytes_;
  passed_blocks passed_;  // while caching is off
  caching_allocator<Upstream> segments_;
};

/// What a pool has, for its line in a report.
inline std::string numbers_text(pool_snapshot const& s) {
  pool_numbers const& n = s.numbers;
  return format_bytes(n.reserved.current) + " reserved" + under_way_text(s) + " = " +
         format_bytes(n.allocated.current) + " allocated (" + format_bytes(n.requested.current) + " requested) + " +
         format_bytes(n.free) + " free + " + format_bytes(n.pending) + " pending" + captured_text(n) + parked_text(s);
}

}  // namespace weir::detail
