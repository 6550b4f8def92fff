#pragma once
// A pool's policy over an upstream that someone else owns: reuse, wait, grow, give back.

#include <weir/adaptors/pool_options.hpp>
#include <weir/adaptors/pool_reuse.hpp>
#include <weir/adaptors/segment_list.hpp>
#include <weir/adaptors/segment_source.hpp>
#include <weir/blocks/spin_lock.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace weir::detail {

/// Segments, blocks and streams behind one lock, which is never held while CUDA may block. `pool` is one of these,
/// `arena` is many. Says no with a null pointer or `false`; errors are for who stands above.
template <resource Upstream>
class segment_pool {
 public:
  segment_pool(Upstream& upstream, pool const& options, int device)
      : source_(upstream),
        options_(options),
        max_split_(max_split_units(options)),
        reuse_(device, options.streams == stream_lifetime::outlives_pool) {
    if (options.release_threshold != pool{}.release_threshold) reuse_.store().keep_ages();
  }

  /// Waits for work on freed blocks, then gives the segments back; what CUDA cannot wait for stays where it is.
  ~segment_pool() {
    if (reuse_.clock().is_over()) return;
    release_captured(0);
    synchronize();
    for (segment const& s : segments_)
      if (!has_lost_blocks_ && !reuse_.store().is_pending(s.first)) source_.give(s.address, s.bytes);
  }
  segment_pool(segment_pool const&) = delete;
  segment_pool& operator=(segment_pool const&) = delete;

  /// Sizes above this are refused: rounding and alignment might wrap.
  static constexpr std::size_t most_bytes = max_block_bytes - max_alignment;

  /// Null if the memory cannot be had. `bytes` from 1 to `most_bytes`, `alignment` a valid one.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment, pool_effort effort,
                                        std::size_t least_block = 0) {
    require_life();
    request const r = request::of(bytes, greater(bytes, least_block), alignment, max_split_);
    std::uint64_t const key = reuse_.clock().known_key(stream);
    if (stream_identity::must_ask(stream, key)) [[unlikely]]
      return allocate_after_asking(stream, r, effort);
    return allocate(key, stream, r, effort);
  }

  /// False, and nothing changed, if no live block of this size and alignment starts at `p`.
  bool deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (reuse_.clock().is_over()) return true;
    std::uint64_t key = reuse_.clock().known_key(stream);
    if (stream_identity::must_ask(stream, key)) [[unlikely]] {
      auto const who = stream_identity::ask(stream, key);
      if (who.capture != 0) return deallocate_in_capture(who, p, bytes, alignment);
      key = succeeded(who.code) ? who.key : 0;
    }
    spin_guard lock(mutex_);
    block_id id = reuse_.find_live(p, bytes, alignment);
    if (id == 0) return false;
    if (blocks()[id].captured != 0) [[unlikely]]
      return keep_for_graph(id, {.key = key}, bytes);
    lane_number const lane = reuse_.lane_of_free(key, stream);
    if (lane == shared && !stream.is_host_order()) [[unlikely]] {
      lock.unlock();  // no room to remember this stream: see its work done, or never hand the block out again
      bool const done = wait_for(stream, reuse_.clock().device());
      lock.lock();
      id = reuse_.find_live(p, bytes, alignment);
      has_lost_blocks_ |= id != 0 && !done;
      if (id == 0 || !done) return id != 0;
    }
    numbers_.count_deallocation(bytes, blocks()[id].bytes());
    block_id const free = reuse_.give(id, lane);
    if (is_above_threshold()) [[unlikely]]
      keep_threshold_after(lock, free);
    return true;
  }

  /// Takes a segment of `bytes`, rounded up where the pool may hold so much; false if the upstream is out of memory.
  bool grow(std::size_t bytes) {
    spin_guard lock(mutex_);
    upstream_calls::attempt const attempt(source_.calls());
    return grow_by(lock, lesser(round_up_or_zero(bytes, unit_bytes), room()));
  }

  std::size_t trim(std::size_t keep) noexcept {
    if (reuse_.clock().is_over()) return 0;
    spin_guard lock(mutex_);
    reuse_.try_to_keep_ages();
    return release_idle(lock, lesser(keep, options_.release_threshold));
  }

  void synchronize() noexcept {
    if (reuse_.clock().is_over()) return;
    spin_guard lock(mutex_);
    ++numbers_.synchronizations;
    reuse_.synchronize(lock);
    give_idle(lock, options_.release_threshold);
  }

  std::size_t release_captured(std::uint64_t capture) noexcept {
    if (reuse_.clock().is_over()) return 0;
    spin_guard lock(mutex_);
    std::size_t const bytes = reuse_.release_captured(capture);
    may_be_idle_ = true;
    give_idle(lock, options_.release_threshold);
    return bytes;
  }

  /// The bytes of the block that serves a request: whole units, and a whole segment where blocks are not split.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    if (bytes > most_bytes || !is_valid_alignment(alignment)) return round_up_or_zero(bytes, unit_bytes);
    request const r = request::of(bytes, bytes, alignment, max_split_);
    if (r.size < max_split_) return r.size * unit_bytes;
    return round_up_or_zero(r.span() * unit_bytes, growth_granularity);
  }
  /// True while memory that was freed for a capture is kept (0: for any).
  bool holds_captured(std::uint64_t capture) const noexcept {
    if (reuse_.clock().is_over()) return false;
    spin_guard const lock(mutex_);
    return reuse_.captured_bytes(capture) != 0;
  }

  /// Counts a refusal by whoever stands above; returns what the pool has at that instant.
  pool_snapshot count_refusal() {
    require_life();
    spin_guard const lock(mutex_);
    ++numbers_.out_of_memory;
    return snapshot_now();
  }

  pool_numbers numbers() const {
    if (reuse_.clock().is_over()) return {};
    spin_guard const lock(mutex_);
    return numbers_now();
  }
  /// Slow, unlike `numbers`: looks at every stream's largest blocks.
  pool_snapshot snapshot() const {
    if (reuse_.clock().is_over()) return {};
    spin_guard const lock(mutex_);
    return snapshot_now();
  }

  /// What is wrong with a deallocation that was refused, in words.
  std::string misuse(void* p, std::size_t bytes, std::size_t alignment) {
    spin_guard lock(mutex_);
    bool inside = false;
    for (segment const& s : segments_)
      inside |= reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(s.address) < s.bytes;
    return reuse_.misuse(p, bytes, alignment, inside);
  }

 private:
  using lane_number = pool_reuse::lane_number;
  using request = pool_reuse::request;
  static constexpr lane_number shared = pool_reuse::shared;

  block_table const& blocks() const noexcept { return reuse_.store().blocks(); }
  void require_life() const {
    if (reuse_.clock().is_over()) check(cuda_life::error, "allocate");
  }

  pool_numbers numbers_now() const {
    pool_numbers now = numbers_;
    now.free = reuse_.store().free_bytes(shared);
    now.captured = reuse_.captured_bytes();
    now.pending = now.reserved.current - now.allocated.current - now.free - now.captured;
    return now;
  }
  pool_snapshot snapshot_now() const {
    return {.numbers = numbers_now(),
            .segments = segments_.size(),
            .blocks = blocks().used(),
            .largest_free = reuse_.store().largest_free(),
            .lanes = reuse_.clock().open_count(),
            .host_bytes = reuse_.store().host_bytes(),
            .under_way = source_.calls().bytes()};
  }

  [[gnu::always_inline]] void* allocate(std::uint64_t key, stream_ref stream, request const& r, pool_effort effort) {
    spin_guard lock(mutex_);
    reuse_.reserve();
    block_id id = reuse_.take_ready(reuse_.clock().lane_of(key, stream), r);
    if (id == 0) [[unlikely]]
      id = search_and_keep_threshold(lock, key, stream, r, effort);
    if (id == 0) return nullptr;
    block const& b = blocks()[id];
    numbers_.count_allocation(r.requested, b.bytes());
    return reinterpret_cast<void*>(b.address());
  }

  /// A stream that is being captured has lanes of its own; what it gets belongs to the capture.
  [[gnu::noinline, gnu::cold]] void* allocate_after_asking(stream_ref stream, request const& r, pool_effort effort) {
    auto const who = reuse_.clock().identify(stream);
    if (who.capture == 0) return allocate(who.key, stream, r, effort);
    spin_guard lock(mutex_);
    std::uint64_t const key = reuse_.key_in_capture(who);
    lane_number const lane = reuse_.clock().lane_of(key, stream);
    bool const own_only = captured_memory_only::is_set();
    block_id id = noting_reuse(lane, [&] { return own_only ? reuse_.take_own(lane, r) : reuse_.take_ready(lane, r); });
    if (id == 0 && !own_only) id = search(lock, key, stream, r, effort);
    if (id == 0) return nullptr;
    reuse_.store().set_captured(id, reuse_.clock().lane_of(key, stream));
    numbers_.count_allocation(r.requested, blocks()[id].bytes());
    return reinterpret_cast<void*>(blocks()[id].address());
  }
  /// Takes a block by `take`, and tells the layers above if it is a capture's, and how much was that capture's before.
  template <class Take>
  block_id noting_reuse(lane_number lane, Take take) {
    if (!reuse_.clock().is_captured(lane)) [[likely]]
      return take();
    std::size_t const before = reuse_.store().free_bytes(lane);
    block_id const id = take();
    if (id != 0)
      last_call = {call_note::captured, reuse_.clock().capture_in(lane), before - reuse_.store().free_bytes(lane)};
    return id;
  }
  [[gnu::noinline, gnu::cold]] bool deallocate_in_capture(stream_identity const& who, void* p, std::size_t bytes,
                                                          std::size_t alignment) noexcept {
    spin_guard lock(mutex_);
    block_id const id = reuse_.find_live(p, bytes, alignment);
    return id != 0 && keep_for_graph(id, who, bytes);
  }
  [[gnu::noinline, gnu::cold]] bool keep_for_graph(block_id id, stream_identity const& who,
                                                   std::size_t bytes) noexcept {
    std::size_t const held = blocks()[id].bytes();
    std::uint64_t const owner = reuse_.owner(id, who);
    if (reuse_.give_captured(id, who)) numbers_.count_deallocation(bytes, held);
    last_call = {call_note::captured, owner, 0};
    return true;
  }

  /// Bytes that may still be taken from the upstream.
  std::size_t room() const noexcept {
    if (options_.max_bytes == 0) return max_block_bytes / unit_bytes * unit_bytes;
    return source_.room(numbers_.reserved.current, options_.max_bytes) / unit_bytes * unit_bytes;
  }

  bool is_above_threshold() const noexcept { return numbers_.reserved.current > options_.release_threshold; }

  /// `freed` may have been the last live block of its segment. That goes back as soon as it is idle: if CUDA does not
  /// yet say so, the frees to come ask again, and what a search learns serves too.
  [[gnu::noinline]] void keep_threshold_after(spin_guard& lock, block_id freed) noexcept {
    may_be_idle_ = may_be_idle_ || reuse_.will_be_idle(freed);
    if (!may_be_idle_) return;
    reuse_.poll(reuse_.next_lanes());
    give_idle(lock, options_.release_threshold);
  }
  [[gnu::noinline]] block_id search_and_keep_threshold(spin_guard& lock, std::uint64_t key, stream_ref stream,
                                                       request const& r, pool_effort effort) {
    block_id const id = search(lock, key, stream, r, effort);
    if (is_above_threshold()) give_idle(lock, options_.release_threshold);
    return id;
  }

  /// The ladder of docs/one-allocation.md, when nothing is ready; 0 at its end. Drops the lock while CUDA may block.
  block_id search(spin_guard& lock, std::uint64_t key, stream_ref stream, request const& r, pool_effort effort) {
    auto const lane = [&] { return reuse_.clock().lane_of(key, stream); };  // may change while the lock is dropped
    auto looked_at = effort == pool_effort::reuse ? reuse_.all_lanes() : reuse_.next_lanes();
    auto const waiting = [&] {
      reuse_.reserve_to_search(lane());
      block_id const id = reuse_.take_waiting(lane(), stream, r, looked_at);
      if (id != 0) ++numbers_.waits;
      return id;
    };
    auto const ready = [&] {
      reuse_.reserve_to_search(lane());
      return noting_reuse(lane(), [&] { return reuse_.take_done(lane(), r, looked_at); });
    };
    block_id id = ready();
    if (id == 0 && options_.pending == when_pending::wait) id = waiting();
    if (id == 0 && effort != pool_effort::reuse) id = take_grown(lock, r, ready);
    if (id == 0 && effort == pool_effort::reuse && source_.calls().wait(lock)) id = ready();
    if (id == 0) id = waiting();
    if (id != 0 || effort != pool_effort::all) return id;
    if (!looked_at.are_all()) {
      looked_at = reuse_.all_lanes();
      id = ready();
      if (id == 0) id = waiting();
      if (id != 0) return id;
    }
    if (options_.synchronize) {
      ++numbers_.synchronizations;
      reuse_.synchronize(lock);
      looked_at = reuse_.all_lanes();
      id = ready();
    }
    if (id == 0 && release_idle(lock, 0) != 0) id = take_grown(lock, r, ready);
    return id;
  }

  /// Grows, then takes what is `ready`; waits for other threads' growth where that is in the way. 0 if all of it fails.
  template <class Ready>
  block_id take_grown(spin_guard& lock, request const& r, Ready ready) {
    growth const first = grow(lock, r);
    if (first == growth::done) return ready();
    block_id id = 0;
    auto const look_again = [&] {
      id = ready();
      growth const outcome = id != 0 ? growth::done : grow(lock, r);
      if (id == 0 && outcome == growth::done) id = ready();
      return outcome;
    };
    if (first == growth::contended) source_.calls().repeat(lock, look_again);
    return id;
  }

  /// Takes a segment that the request fits into; backs off to the least that serves it.
  growth grow(spin_guard& lock, request const& r) {
    upstream_calls::attempt const attempt(source_.calls());
    std::size_t const least = r.span() * unit_bytes;
    std::size_t wanted = growth_for(options_, least, r.max_split, numbers_.reserved.current);
    for (;;) {
      std::size_t const bytes = lesser(wanted, lesser(room(), max_block_bytes));
      if (bytes < least) return attempt.refusal();
      if (grow_by(lock, bytes)) return growth::done;
      if (bytes == least) return attempt.refusal();
      wanted = greater(least, bytes / 2 / unit_bytes * unit_bytes);
    }
  }

  /// Takes `bytes` from the upstream, without the lock; false if it is out of memory.
  bool grow_by(spin_guard& lock, std::size_t bytes) {
    void* const p = source_.take(lock, bytes);
    if (p == nullptr) return false;
    try {
      segments_.reserve();
      reuse_.reserve();
    } catch (...) {
      source_.give(lock, p, bytes);
      throw;
    }
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    segments_.add({p, bytes, reuse_.store().add_segment(address, static_cast<units>(bytes / unit_bytes))});
    numbers_.reserved.add(bytes);
    may_be_idle_ = true;  // others, which it did not matter to give back before
    ++numbers_.growths;
    return true;
  }

  /// Asks CUDA, without waiting, what is done; then gives back idle segments until at most `keep` bytes are held.
  std::size_t release_idle(spin_guard& lock, std::size_t keep) noexcept {
    reuse_.poll(reuse_.all_lanes());
    may_be_idle_ = true;
    return give_idle(lock, keep);
  }
  /// The same without asking.
  std::size_t give_idle(spin_guard& lock, std::size_t keep) noexcept {
    std::size_t released = 0;
    if (!may_be_idle_ || numbers_.reserved.current <= keep || !source_.may_be_asked()) return 0;
    may_be_idle_ = false;
    for (std::size_t i = segments_.size(); i-- > 0 && numbers_.reserved.current > keep;) {
      if (i >= segments_.size()) continue;
      if (!reuse_.store().is_idle(segments_[i].first)) {
        may_be_idle_ = may_be_idle_ || reuse_.will_be_idle(segments_[i].first);
        continue;
      }
      segment const gone = segments_.remove(i);
      reuse_.store().remove_segment(gone.first);
      numbers_.reserved.current -= gone.bytes;
      ++numbers_.releases;
      released += gone.bytes;
      source_.give(lock, gone.address, gone.bytes);
    }
    return released;
  }

  segment_source<Upstream> source_;
  pool options_;
  units max_split_;  // what `options_` say, in units
  spin_lock mutable mutex_;
  pool_reuse reuse_;
  segment_list segments_;
  bool may_be_idle_ = false;      // some segment, now or when its work is done, and nobody has looked since
  bool has_lost_blocks_ = false;  // that may be in use for ever: which are theirs, their records do not say
  pool_numbers numbers_;
};

}  // namespace weir::detail
