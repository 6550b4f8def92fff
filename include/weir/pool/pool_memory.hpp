#pragma once
// What a pool holds over an upstream that someone else owns: asked, shown, grown, parked and given back as a whole.

#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_memory.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/pool/block_search.hpp>
#include <weir/pool/lent_blocks.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/pool_refusal.hpp>
#include <weir/pool/pool_tenant.hpp>
#include <weir/pool/release_policy.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_segments.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace weir::detail {

/// What a pool holds from its upstream. For growable upstreams it is in growable_range.hpp, which other programs need
/// not compile: a source that is growable includes that.
template <resource Upstream>
struct held_from {
  static_assert(!growable<Upstream>, "weir: a growable resource has to include <weir/pool/growable_range.hpp>");
  using type = upstream_segments<Upstream>;
};

class content_store;  // in parked_memory.hpp
template <handle To>
class content_store_on;

/// Segments, blocks and streams behind one lock, which is never held while CUDA may block. `caching_allocator` serves
/// requests from it.
template <resource Upstream>
class pool_memory {
 public:
  pool_memory(pool_memory const&) = delete;
  pool_memory& operator=(pool_memory const&) = delete;

  /// Takes a segment of `bytes`, rounded up where the pool may hold so much; false if the upstream is out of memory.
  bool grow(std::size_t bytes) {
    auto const lock = enter();
    if (!lock) return false;
    return segments_.reserve(mutex_, heap_, bytes);
  }

  std::size_t trim(std::size_t keep) noexcept {
    auto const lock = enter();
    if (!lock) return 0;
    heap_.try_to_keep_ages();
    return idle_.release_idle(lesser(keep, options_.release_threshold));
  }

  upstream_calls const& calls() const noexcept { return segments_.calls(); }

  /// For others that share the upstream: what this has of it, and what it can do without.
  tenant_usage usage() const noexcept {
    auto const lock = enter();
    if (!lock) return {};
    std::size_t const coming = segments_.calls().bytes(), held = segments_.held() + coming;
    return {lesser(numbers_.allocated.current, held), held, coming - lesser(coming, tenant_.let_in())};
  }
  std::size_t give_idle(std::size_t bytes) noexcept {
    auto const lock = enter();
    if (!lock) return 0;
    std::size_t const held = segments_.held();
    return idle_.release_idle(held - lesser(held, bytes));
  }

  /// See `pooled::park`; takes `store` over.
  void park(content_store* store) requires growable<Upstream> {
    auto const lock = enter();
    if (!lock) return segments_.forget(store), require_life();
    search_.wait_for_all();
    segments_.park(mutex_, heap_, store, device_);
  }
  /// False if the upstream has not enough memory.
  bool unpark() requires growable<Upstream> {
    auto const lock = enter_to_allocate();
    return segments_.unpark(mutex_, heap_, device_);
  }
  bool is_parked() const noexcept {
    auto const lock = enter();
    return lock && parked();
  }

  void synchronize() noexcept {
    auto const lock = enter();
    if (!lock) return;
    search_.wait_for_all();
    idle_.keep_threshold();
  }

  /// The graph of this capture is gone; 0: of all.
  std::size_t release_captured(std::uint64_t capture) noexcept {
    auto const lock = enter();
    if (!lock) return 0;
    if (parked()) return 0;
    std::size_t const bytes = heap_.release_captured(capture_key{capture});
    segments_.look_again();
    idle_.keep_threshold();
    return bytes;
  }

  /// True while memory that was freed for a capture is kept (0: for any).
  bool holds_captured(std::uint64_t capture) const noexcept {
    auto const lock = enter();
    return lock && captured_bytes(capture_key{capture}) != 0;
  }

  /// Counts a refusal by whoever stands above; returns what the pool has at that instant.
  pool_refused count_refusal() {
    auto const lock = enter_to_allocate();
    return count_refusal_now({});
  }

  pool_numbers numbers() const {
    auto const lock = enter();
    return lock ? numbers_now() : pool_numbers{};
  }
  /// Slow, unlike `numbers`: looks at every stream's largest blocks.
  pool_snapshot snapshot() const {
    auto const lock = enter();
    return lock ? snapshot_now() : pool_snapshot{};
  }

  /// Shows all segments, as they are at one moment. Copies what is known of every block, under the lock.
  void show_memory(memory_visitor& visitor) const {
    grown_array<shown_block> copies;
    std::size_t count = 0;
    for (bool fits = false; !fits; fits = count <= copies.size()) {
      if (count > copies.size()) copies.grow(count + count / 8);  // outside of the lock
      auto const lock = enter();
      if (!lock) return;
      lent_.ask_all_back();
      count = 0;
      segments_.for_each_shown(heap_, [&](shown_block const& piece) {
        if (count < copies.size()) copies[count] = piece;
        ++count;
      });
    }
    for (std::size_t i = 0; i < count; ++i) visitor.see(copies[i]);
  }

  /// Lets the peaks in `numbers` start again from now.
  void reset_peaks() noexcept {
    auto const lock = enter();
    if (!lock) return;
    search_.remember_peak();
    lent_.reset_peaks();
    segments_.reset_peaks();
  }

  /// The live block at `p`. At exit one that is none, since no free does anything then.
  live_block find_block(void const* p) noexcept {
    auto const lock = enter();
    if (!lock) return {1, 1, true};
    lent_.ask_back(p);
    if (lent_.has(p)) return {0, 0, true};  // freed, and in a thread's cache
    live_block const found = heap_.find_block(p);
    return found ? found : live_block{0, 0, segments_.contains(p)};
  }

  /// What is wrong with a deallocation that was refused, in words.
  std::string misuse(void* p, std::size_t bytes, std::size_t alignment) {
    auto const lock = enter();
    lent_.ask_all_back();
    return heap_.misuse(p, bytes, alignment, segments_.contains(p));
  }

 protected:
  using segments = typename held_from<Upstream>::type;

  pool_memory(Upstream& upstream, pool const& options, int device)
      : options_(with_threshold(options)),
        device_(device),
        heap_(device),
        segments_(upstream, options_),
        tenant_(*this, upstream, options_) {
    if (options_.release_threshold != pool{}.release_threshold) heap_.keep_ages();
    if constexpr (growable<Upstream>) segments_.set_tenant(tenant_.get());
    if (options_.release_threshold != pool{}.release_threshold)
      mutex_.ignore_waits();  // threads get no caches where all has to go back at once
    else if (options_.thread_caches)
      mutex_.set_contended();
    tenant_.join();  // last: from now on it is asked
  }
  /// Waits for work on freed blocks, then gives the segments back; what CUDA cannot wait for stays where it is. All of
  /// it counts for those that share the upstream until it is back, and what stays for good.
  ~pool_memory() {
    if (heap_.is_exiting()) return;
    release_captured(0);
    synchronize();
    tenant_.stop_giving();  // `give_all` looks at the heap without the lock
    bool const may_go = !has_lost_blocks_ && !lent_.has_lost_some();
    tenant_.leave(may_go ? segments_.give_all(heap_) : segments_.held());
  }

  /// Every function begins so. Holds nothing once the process exits, and for a parent's pool in a forked child: then
  /// nothing may be touched, and CUDA not called.
  [[gnu::always_inline]] optional_guard<biased_lock> enter() const noexcept { return {mutex_, !heap_.is_exiting()}; }
  [[gnu::always_inline]] biased_guard enter_to_allocate() const {
    require_life();
    return biased_guard(mutex_);
  }
  void require_life() const {
    if (heap_.is_exiting()) [[unlikely]]
      check(process_exit::error, "allocate");
  }

  pool_numbers numbers_now() const {
    pool_numbers now = lent_.count();
    segments_.count(now);
    now.free = heap_.free_bytes() + heap_.free_bytes_in_slabs();
    now.captured = captured_bytes(capture_key::none);
    now.pending = now.reserved.current + now.parked - now.allocated.current - now.free - now.captured;
    if (parked()) now.free += std::exchange(now.pending, 0);  // all work was waited for
    return now;
  }
  pool_snapshot snapshot_now() const {
    lent_.gather_all();
    return {.numbers = numbers_now(),
            .segments = segments_.count(),
            .blocks = heap_.block_count(),
            .largest_free = heap_.largest_free(),
            .lanes = heap_.stream_count(),
            .host_bytes = heap_.host_bytes() + segments_.host_bytes() + lent_.host_bytes(),
            .under_way = segments_.calls().bytes(),
            .range_bytes = segments_.range_bytes(),
            .is_parked = parked()};
  }
  pool_refused count_refusal_now(pool_attempts const& tried) {
    ++numbers_.out_of_memory;
    pool_refused refused{snapshot_now(), tried, occupancy_bar()};
    if (heap_.block_count() > occupancy_bar::most_pieces) return refused;  // others wait for the lock meanwhile
    refused.bar = occupancy_bar(segments_.held());
    segments_.for_each_shown(heap_, [&](shown_block const& piece) { refused.bar.add(piece.bytes, piece.state); });
    return refused;
  }

  std::size_t captured_bytes(capture_key capture) const noexcept {
    if constexpr (growable<Upstream>)
      return segments_.captured_bytes(heap_, capture);
    else
      return heap_.captured_bytes(capture);
  }
  bool parked() const noexcept {
    if constexpr (growable<Upstream>)
      return segments_.is_parked();
    else
      return false;
  }

  pool options_;
  int device_;
  biased_lock mutable mutex_;
  // To look at all that is held, what is at hand is put back, which changes nothing of what is live: hence `mutable`.
  stream_ordered_heap mutable heap_;
  segments segments_;
  pool_tenant<pool_memory, Upstream> tenant_;
  bool has_lost_blocks_ = false;  // that may be in use for ever: which are theirs, their records do not say
  pool_numbers mutable numbers_;  // without what caches count
  lent_blocks mutable lent_{heap_, numbers_};
  atomic<bool> keeps_;  // small blocks at hand for the stream that freed them; read without the lock
  release_policy<segments> idle_{mutex_, heap_, segments_, lent_, options_.release_threshold};
  block_search<Upstream, segments> search_{options_, mutex_, heap_, segments_, lent_, numbers_, keeps_, idle_};

 private:
  static pool with_threshold(pool options) {
    if (options.high_bytes != 0) options.release_threshold = lesser(options.release_threshold, options.high_bytes);
    return options;
  }
};

}  // namespace weir::detail
