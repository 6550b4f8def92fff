#pragma once
// What a pool holds from its upstream, in segments: grows by one, gives idle ones back.

#include <weir/core/call_note.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/segment_list.hpp>
#include <weir/pool/segment_source.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_calls.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Puts what it takes from the upstream into a pool's heap, and takes out of that what it gives back. Guarded by the
/// pool's lock, which it drops while the upstream is asked.
template <resource Upstream>
class upstream_segments {
 public:
  using request = stream_ordered_heap::request;

  /// `options` has to outlive it.
  upstream_segments(Upstream& upstream, pool const& options) : source_(upstream), options_(options) {}

  /// Bytes held.
  std::size_t held() const noexcept { return reserved_.current; }
  /// Segments held.
  std::size_t count() const noexcept { return segments_.size(); }
  /// Bytes of host memory in use for bookkeeping.
  std::size_t host_bytes() const noexcept { return segments_.host_bytes(); }
  /// Of addresses without memory; segments have none.
  static constexpr std::size_t range_bytes() noexcept { return 0; }
  /// Adds what it knows to a pool's numbers.
  void count(pool_numbers& numbers) const noexcept {
    numbers.reserved = reserved_;
    numbers.growths = growths_;
    numbers.releases = releases_;
  }
  void reset_peaks() noexcept { reserved_.reset_peak(); }
  /// Calls `f(shown_block)` for each piece of each segment.
  template <class F>
  void for_each_shown(stream_ordered_heap const& heap, F f) const {
    for (segment const& s : segments_) heap.for_each_shown(s.first, f);
  }
  upstream_calls const& calls() const noexcept { return source_.calls(); }
  upstream_calls& calls() noexcept { return source_.calls(); }
  /// True if `p` lies in a segment.
  bool contains(void const* p) const noexcept {
    bool inside = false;
    for (segment const& s : segments_)
      inside |= reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(s.address) < s.bytes;
    return inside;
  }

  /// Takes a segment that the request fits into. Where too much would be held, or as much is not to be had, gives idle
  /// segments back first; then backs off to the least that serves it. `live`: the most bytes that were live, this
  /// request included; `has_small` as for `growth_for`.
  template <class Lock>
  growth grow(Lock& lock, stream_ordered_heap& heap, request const& r, std::size_t live, bool has_small = false) {
    upstream_calls::attempt const attempt(source_.calls());
    std::size_t const least = r.span() * unit_bytes;
    std::size_t const most = most_held(options_, greater(live, options_.initial_bytes), 8 * growth_granularity);
    std::size_t wanted = growth_for(options_, least, r.max_split, held(), has_small);
    give_idle_of(lock, heap, excess(wanted, most));
    if (options_.growth_bytes == 0) wanted = whole_requests(lesser(wanted, greatest_step(least, most)), least);
    for (std::size_t least_held = ~std::size_t{0};;) {
      std::size_t const bytes = lesser(wanted, lesser(room(), max_block_bytes));
      if (bytes >= least && grow_by(lock, heap, bytes, bytes > least)) return growth::done;
      // As long as less is held each time: an upstream that uses the pool itself may make new what goes back here.
      if (give_idle_of(lock, heap, wanted) != 0 && held() < least_held) {
        least_held = held();
        continue;
      }
      if (bytes <= least) return attempt.refusal();
      wanted = greater(least, bytes / 2 / least * least);  // what is over would be of no use to the next one
    }
  }

  /// Takes a segment of `bytes`, rounded up where the pool may hold so much; false if the upstream is out of memory.
  template <class Lock>
  bool reserve(Lock& lock, stream_ordered_heap& heap, std::size_t bytes) {
    upstream_calls::attempt const attempt(source_.calls());
    return grow_by(lock, heap, lesser(round_up_or_zero(bytes, unit_bytes), room()), false);
  }

  /// Some segment may be idle that was not when `give_idle` last looked.
  void look_again() noexcept { may_be_idle_ = true; }
  /// True if a segment may be idle by now.
  bool may_be_idle() const noexcept { return may_be_idle_; }
  /// True if some segment may be idle, now or when its work is done, and nobody has looked since: `freed` may have been
  /// the last live block of one.
  bool may_be_idle_after(stream_ordered_heap const& heap, block_id freed) noexcept {
    return may_be_idle_ = may_be_idle_ || heap.will_be_idle(freed);
  }

  /// Gives back idle segments until at most `keep` bytes are held; returns how many bytes that is.
  template <class Lock>
  std::size_t give_idle(Lock& lock, stream_ordered_heap& heap, std::size_t keep) noexcept {
    std::size_t released = 0;
    if (!may_be_idle_ || held() <= keep || !source_.may_be_asked()) return 0;
    may_be_idle_ = false;
    for (std::size_t i = segments_.size(); i-- > 0 && held() > keep;) {
      if (i >= segments_.size()) continue;
      if (!heap.is_idle(segments_[i].first)) {
        may_be_idle_ = may_be_idle_ || heap.will_be_idle(segments_[i].first);
        continue;
      }
      upstream_calls::attempt const attempt(source_.calls());
      released += give(lock, heap, i);
    }
    return released;
  }

  /// Gives back all but what is pending still, when the heap is about to go: what CUDA cannot wait for stays where it
  /// is. Returns how many bytes that is.
  std::size_t give_all(stream_ordered_heap const& heap) noexcept {
    std::size_t left = 0;
    for (segment const& s : segments_) {
      bool const stays = heap.is_pending(s.first);
      left += stays ? s.bytes : 0;
      if (!stays) source_.give(s.address, s.bytes);
    }
    return left;
  }

 private:
  /// Bytes that may still be taken from the upstream.
  std::size_t room() const noexcept {
    if (options_.max_bytes == 0) return max_block_bytes / unit_bytes * unit_bytes;
    return source_.room(held(), options_.max_bytes) / unit_bytes * unit_bytes;
  }

  /// How many bytes have to go so that with `wanted` more at most `most` are held.
  std::size_t excess(std::size_t wanted, std::size_t most) const noexcept {
    return held() + wanted - lesser(held() + wanted, most);
  }
  /// The most to grow by for a request of `least` bytes where `most` may be held: its own size in any case.
  std::size_t greatest_step(std::size_t least, std::size_t most) const noexcept {
    std::size_t const left = (most - lesser(most, held())) / growth_granularity * growth_granularity;
    std::size_t const shared_step = least <= least_shared_step / 3 ? least_shared_step : 0;
    return greater(round_up_or_zero(least, growth_granularity), greater(shared_step, left));
  }

  /// The part of `bytes` that so many requests of `least` bytes fill. What is over would be too small for the next one
  /// and lie beside blocks that stay.
  static std::size_t whole_requests(std::size_t bytes, std::size_t least) noexcept {
    return lesser(bytes, round_up_or_zero(bytes / least * least, growth_granularity));
  }

  /// Gives back idle segments of `bytes` together, or all that are idle if those are less, the smallest first: they are
  /// the least likely to serve what comes. Returns how many bytes that is.
  template <class Lock>
  std::size_t give_idle_of(Lock& lock, stream_ordered_heap& heap, std::size_t bytes) noexcept {
    std::size_t released = 0;
    while (released < bytes && source_.may_be_asked()) {
      std::size_t const i = smallest_idle(heap);
      if (i == segments_.size()) break;
      released += give(lock, heap, i);
    }
    return released;
  }
  /// `size()` if none is idle. Looks at every segment: first at what says at once that it is not the one.
  std::size_t smallest_idle(stream_ordered_heap const& heap) const noexcept {
    std::size_t found = segments_.size(), most = heap.free_bytes() + 1;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      segment const& s = segments_[i];
      if (s.bytes >= most || heap[s.first].bytes() != s.bytes || !heap.is_idle(s.first)) continue;
      found = i;
      most = s.bytes;
    }
    return found;
  }
  /// Gives back a segment that is idle, without the lock; returns its size.
  template <class Lock>
  std::size_t give(Lock& lock, stream_ordered_heap& heap, std::size_t i) noexcept {
    segment const gone = segments_.remove(i);
    heap.remove_segment(gone.first);
    reserved_.current -= gone.bytes;
    ++releases_;
    source_.give(lock, gone.address, gone.bytes);
    return gone.bytes;
  }

  /// Takes `bytes` from the upstream, without the lock; false if it is out of memory. `can_be_less`: then less is asked
  /// for next, so that nobody need wait, or give anything back, for so much.
  template <class Lock>
  bool grow_by(Lock& lock, stream_ordered_heap& heap, std::size_t bytes, bool can_be_less) {
    can_do_with_less const hint(can_be_less);
    void* const p = source_.take(lock, bytes);
    if (p == nullptr) return false;
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    try {
      segments_.reserve();
      heap.reserve();
      segments_.add({p, bytes, heap.add_segment(address, static_cast<units>(bytes / unit_bytes))});
    } catch (...) {
      source_.give(lock, p, bytes);
      throw;
    }
    reserved_.add(bytes);
    may_be_idle_ = true;  // others, which it did not matter to give back before
    ++growths_;
    return true;
  }

  segment_source<Upstream> source_;
  pool const& options_;
  segment_list segments_;
  bool may_be_idle_ = false;
  pool_level reserved_;
  std::uint64_t growths_ = 0;
  std::uint64_t releases_ = 0;
};

}  // namespace weir::detail
