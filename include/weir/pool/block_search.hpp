#pragma once
// How a pool serves a request when nothing is ready: the ladder of docs/architecture.md.
//
//   find                        what streams have at hand becomes everyone's to look at, then that in threads' caches
//     make_room                 once in many searches of a pool that holds little more than is live: before all else
//     take_done                 asks CUDA what is done by now
//     take_waiting              the stream waits for another one's block; with `when_pending::wait` before growing
//     take_grown                takes a segment from the upstream, without the lock; waits for other threads' growth
//     last_resort               before a refusal: all streams, the host's waiting, other segments for these

#include <weir/core/call_note.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/lent_blocks.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/pool_refusal.hpp>
#include <weir/pool/release_policy.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>

namespace weir::detail {

/// Looks for a block from cheapest to dearest, and makes memory for one. Guarded by the pool's lock, which it drops
/// while CUDA may block. May throw `std::bad_alloc`, and what the upstream throws but that. The heap
/// (`stream_ordered_heap`) answers which block a stream may have; nothing that is called here calls back.
template <resource Upstream, class Segments>
class block_search {
 public:
  using request = stream_ordered_heap::request;

  /// All of it belongs to the pool, and outlives this.
  block_search(pool const& options, biased_lock& lock, stream_ordered_heap& heap, Segments& segments, lent_blocks& lent,
               pool_numbers& numbers, atomic<bool> const& keeps_small, release_policy<Segments>& idle) noexcept
      : options_(options),
        lock_(lock),
        heap_(heap),
        segments_(segments),
        lent_(lent),
        numbers_(numbers),
        keeps_small_(keeps_small),
        idle_(idle) {}

  /// 0 at the ladder's end, and then `tried` says what was tried.
  [[gnu::noinline]] block_id find(stream_identity const& who, request const& r, pool_effort effort,
                                  pool_attempts& tried) {
    lists const looked_at = effort == pool_effort::reuse ? heap_.all_lists() : heap_.next_lists();
    if (is_search_too_many() && effort != pool_effort::reuse)
      if (block_id const id = make_room(who, r); id != 0) return id;
    if (who.capture == capture_key::none)
      if (block_id const id = heap_.take_gathering(who, r, looked_at); id != 0) return id;
    if (heap_.gather(who))
      if (block_id const id = heap_.take_ready(who, r); id != 0) return id;
    lent_.gather_all();
    tried.searched = true;
    block_id id = find(who, r, effort, looked_at);
    if (id == 0 && heap_.make_blocks()) id = take_freed(who, r, heap_.all_lists());
    if (id == 0 && effort == pool_effort::all) id = last_resort(who, r, looked_at, tried);
    return id;
  }

  /// What is done by now, or new memory, while little lies free in threads' caches: so these keep what they have. 0
  /// where `find` has to look, as it has where streams are to wait before the pool grows.
  block_id grow_first(stream_identity const& who, request const& r) {
    if (options_.pending == when_pending::wait || !lent_.may_grow_first(segments_.held())) return 0;
    heap_.gather();
    lists const looked_at = heap_.next_lists();
    if (block_id const id = take_done(who, r, looked_at); id != 0) return id;
    std::size_t const before = segments_.held();
    block_id id = 0;
    try {
      id = take_grown(who, r, looked_at);
    } catch (std::exception const&) {  // `find` may need no more memory; if it does, it asks again
    }
    if (id == 0)
      lent_.cannot_grow();
    else
      lent_.count_growth(segments_.held() - lesser(segments_.held(), before));
    return id;
  }

  /// For a stream in a capture: what the capture itself freed (`own_only`), or what is ready for it; 0 if that is
  /// nothing.
  block_id take_for_capture(stream_identity const& who, request const& r, bool own_only) {
    return noting_reuse(who, r, [&] { return own_only ? heap_.take_own(who, r) : heap_.take_ready(who, r); });
  }

  /// Lets the host wait until all work on freed blocks is done, which are everyone's then. False if CUDA could not wait
  /// for some of it.
  bool wait_for_all() noexcept {
    ++numbers_.synchronizations;
    lent_.gather_all();
    bool const all_done = heap_.synchronize(lock_);
    lent_.gather_all();
    return all_done;
  }

  /// Before the peaks start again: how much may lie idle goes on by the most that was ever live.
  void remember_peak() noexcept { peak_before_ = most_allocated(); }

 private:
  using lists = stream_ordered_heap::lists;

  block_id find(stream_identity const& who, request const& r, pool_effort effort, lists const& looked_at) {
    if (block_id const id = take_done(who, r, looked_at); id != 0) return id;
    if (options_.pending == when_pending::wait)
      if (block_id const id = take_waiting(who, r, looked_at); id != 0) return id;
    if (heap_.adopt())
      if (block_id const id = take_done(who, r, looked_at); id != 0) return id;
    bool const may_grow = effort != pool_effort::reuse;
    block_id const grown = may_grow ? take_grown(who, r, looked_at) : take_when_grown(who, r, looked_at);
    return grown != 0 ? grown : take_waiting(who, r, looked_at);
  }

  /// Before a request is refused. Other threads go on while the host waits, and may have what is done first: so it
  /// waits for what they freed in its place too.
  block_id last_resort(stream_identity const& who, request const& r, lists const& looked_at, pool_attempts& tried) {
    if (!looked_at.are_all())
      if (block_id const id = take_freed(who, r, heap_.all_lists()); id != 0) return id;
    for (unsigned round = 0;; ++round) {
      std::uint64_t const moved = segments_.calls().successes();
      bool all_done = false;
      if (options_.synchronize) {
        std::size_t const free_before = heap_.free_bytes();
        all_done = wait_for_all();
        tried.waited = true;
        tried.done += heap_.free_bytes() - lesser(heap_.free_bytes(), free_before);
        if (block_id const id = take_freed(who, r, heap_.all_lists()); id != 0) return id;
      }
      std::size_t const given_back = idle_.release_idle(0);
      tried.given_back += given_back;
      if (given_back != 0 || segments_.calls().successes() != moved || segments_.calls().are_under_way())
        if (block_id const id = take_grown(who, r, heap_.all_lists()); id != 0) return id;
      if (!all_done || round == most_rounds || !heap_.has_room_for(r)) return 0;
    }
  }

  /// For a stream in a capture: takes a block by `take`, and tells the layers above how much of it was the capture's.
  template <class Take>
  block_id noting_reuse(stream_identity const& who, request const& r, Take take) {
    std::size_t const before = heap_.free_bytes(who);
    block_id const id = take();
    if (id == 0) return 0;
    std::size_t const reused = before - heap_.free_bytes(who);
    bool const all = reused >= std::size_t{r.size} * unit_bytes;
    last_call = {call_note::captured, static_cast<std::uint64_t>(who.capture), all ? call_note::all : reused};
    return id;
  }
  template <class Take>
  block_id noting_captures(stream_identity const& who, request const& r, Take take) {
    return who.capture == capture_key::none ? take() : noting_reuse(who, r, take);
  }
  block_id take_done(stream_identity const& who, request const& r, lists const& looked_at) {
    return noting_captures(who, r, [&] { return heap_.take_done(who, r, looked_at); });
  }
  block_id take_asking_further(stream_identity const& who, request const& r) {
    return noting_captures(who, r, [&] { return heap_.take_asking_further(who, r); });
  }
  block_id take_waiting(stream_identity const& who, request const& r, lists const& looked_at) {
    block_id const id = heap_.take_waiting(who, r, looked_at);
    if (id != 0) ++numbers_.waits;
    return id;
  }
  /// What was freed, done or not.
  block_id take_freed(stream_identity const& who, request const& r, lists const& looked_at) {
    block_id const id = take_done(who, r, looked_at);
    return id != 0 ? id : take_waiting(who, r, looked_at);
  }

  /// What another thread's growth that is under way leaves, without growing.
  block_id take_when_grown(stream_identity const& who, request const& r, lists const& looked_at) {
    return segments_.calls().wait(lock_) ? take_done(who, r, looked_at) : 0;
  }
  /// Grows, then takes; waits for other threads' growth where that is in the way. 0 if all of it fails.
  block_id take_grown(stream_identity const& who, request const& r, lists const& looked_at) {
    if (!looked_at.are_all() && holds_enough_with(r))
      if (block_id const id = take_asking_further(who, r); id != 0) return id;
    block_id id = 0;
    auto const grow_and_take = [&] {
      growth const outcome = grow(who, r, id);
      if (id == 0 && outcome == growth::done) id = take_done(who, r, looked_at);
      return outcome;
    };
    auto const look_again = [&] {
      id = take_done(who, r, looked_at);
      return id != 0 ? growth::done : grow_and_take();
    };
    if (grow_and_take() == growth::contended) segments_.calls().repeat(lock_, look_again);
    return id;
  }
  /// `taken`: the block that serves the request, where growth decides that.
  growth grow(stream_identity const& who, request const& r, block_id& taken) {
    std::size_t const now = numbers_.allocated.current + lent_.bytes() + std::size_t{r.size} * unit_bytes;
    std::size_t const live = greater(now, most_allocated());
    if constexpr (growable<Upstream>) {
      growth const outcome = segments_.grow(lock_, heap_, who, r, live, taken);
      if (taken != 0 && who.capture != capture_key::none)
        last_call = {call_note::captured, static_cast<std::uint64_t>(who.capture), 0};
      return outcome;
    } else {
      growth const outcome = segments_.grow(lock_, heap_, r, live, keeps_small_.load());
      if (outcome == growth::done) searches_ = 0, room_helps_ = true;
      return outcome;
    }
  }
  /// True once in so many searches since the pool grew.
  bool is_search_too_many() noexcept { return ++searches_ % searches_before_room == 0; }
  /// A pool that holds little more than is live is searched for most requests: what streams have at hand they lose to
  /// each other, and what others freed is asked for. So it takes some MiB more before it looks whether there is enough.
  /// 0 where it holds more than that, or the upstream has no more, which is not asked for room again before the pool
  /// could grow. Only of a source: layers may wait, or turn to other memory, before they refuse. Not above the
  /// threshold from which what is idle goes back at once.
  block_id make_room(stream_identity const& who, request const& r) {
    constexpr bool is_source = !growable<Upstream> && !handle<Upstream> && !requires(Upstream & u) { u.upstream(); };
    if (!is_source || !room_helps_ || who.capture != capture_key::none || options_.pending == when_pending::wait)
      return 0;
    std::size_t const step = growth_for(options_, r.span() * unit_bytes, r.max_split, segments_.held(), true);
    if (segments_.held() + step > lesser(most_live() + room_above_live, options_.release_threshold)) return 0;
    try {
      room_helps_ = segments_.reserve(lock_, heap_, step);
    } catch (std::exception const&) {  // there may be enough without it
      room_helps_ = false;
    }
    return room_helps_ ? heap_.take_ready(who, r) : 0;
  }
  /// True if with as much more the pool would hold more than may be idle: there is enough, then, that nobody looked at.
  bool holds_enough_with(request const& r) noexcept {
    return segments_.held() + r.span() * unit_bytes > most_held(options_, most_live(), 8 * growth_granularity);
  }
  std::size_t most_live() noexcept { return greater(numbers_.allocated.current + lent_.bytes(), most_allocated()); }
  std::size_t most_allocated() noexcept { return greater(peak_before_, lent_.count().allocated.peak); }

  static constexpr unsigned searches_before_room = 64, most_rounds = 64;
  static constexpr std::size_t room_above_live = std::size_t{8} << 20;

  pool const& options_;
  biased_lock& lock_;
  stream_ordered_heap& heap_;
  Segments& segments_;
  lent_blocks& lent_;
  pool_numbers& numbers_;
  atomic<bool> const& keeps_small_;
  release_policy<Segments>& idle_;
  unsigned searches_ = 0;        // since the pool grew
  bool room_helps_ = true;       // the upstream had memory when it was asked last
  std::size_t peak_before_ = 0;  // the most that was ever allocated, up to the last `remember_peak`
};

}  // namespace weir::detail
