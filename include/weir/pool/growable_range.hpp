#pragma once
// What a pool holds from a growable upstream: one range of addresses, with memory where it is needed.

#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/note_event.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/pool/chunk_sharing.hpp>
#include <weir/pool/idle_chunks.hpp>
#include <weir/pool/limits_between.hpp>
#include <weir/pool/parking.hpp>
#include <weir/pool/pending_move.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace weir::detail {

/// Grows in place: puts memory behind the addresses where a request needs the least of it. What may be held is bounded
/// by the most that was live (`pool::max_waste`): above that, chunks that are idle elsewhere are moved to where memory
/// is missing, before more is taken from the upstream. Guarded by the pool's lock, which it drops while the upstream is
/// asked; what is being changed is held meanwhile, so that no other thread meets it.
template <growable Upstream>
class growable_range {
 public:
  using request = stream_ordered_heap::request;

  /// `options` has to outlive it.
  growable_range(Upstream& upstream, pool const& options)
      : upstream_(upstream), options_(options), chunk_(upstream.chunk_bytes()) {}
  growable_range(growable_range const&) = delete;
  growable_range& operator=(growable_range const&) = delete;
  /// Who asks, among several pools on the upstream.
  void set_tenant(tenant* me) noexcept { sharing_.set_tenant(me); }

  /// Bytes that have memory.
  std::size_t held() const noexcept { return reserved_.current; }
  std::size_t count() const noexcept { return range_.bytes != 0 ? 1 : 0; }
  std::size_t range_bytes() const noexcept { return range_.bytes; }
  std::size_t host_bytes() const noexcept { return 0; }  // beside what is parked
  void count(pool_numbers& numbers) const noexcept {
    numbers.reserved = reserved_;
    numbers.growths = growths_;
    numbers.releases = releases_;
    numbers.moved = moved_;
    numbers.parked = parking_.bytes();
  }
  void reset_peaks() noexcept { reserved_.reset_peak(); }
  /// As `upstream_segments` does; the range is one segment.
  template <class F>
  void for_each_shown(stream_ordered_heap const& heap, F f) const {
    if (range_.bytes == 0) return;
    heap.for_each_shown(first_, [&](shown_block piece) {
      piece.in_range = true;
      f(piece);
    });
  }
  upstream_calls const& calls() const noexcept { return calls_; }
  upstream_calls& calls() noexcept { return calls_; }
  bool contains(void const* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(range_.begin) < range_.bytes;
  }

  /// Serves a request at the place where the least memory is missing: `taken` is its block. `live`: the most bytes that
  /// were live, this request included.
  template <class Lock>
  growth grow(Lock& lock, stream_ordered_heap& heap, stream_identity const& who, request const& r, std::size_t live,
              block_id& taken) {
    drop_moved(lock);
    upstream_calls::attempt const attempt(calls_);
    // It may have been parked since this request was let in: that waits for attempts, but not for who awaits a turn.
    if (is_parked()) return growth::refused;
    if (!has_range(lock, heap)) return attempt.refusal();
    std::size_t const fresh = may_take(lock, live, std::size_t{r.size} * unit_bytes);
    heap.reserve();
    auto const window = heap.find_window(who, r, chunk_);
    if (window.first == 0) return attempt.refusal();
    auto const held = fill(lock, heap, window, who, fresh);
    if (held.held == 0) return attempt.refusal();
    taken = heap.take(held, r);
    return growth::done;
  }

  /// Puts memory behind `bytes`, rounded up where the pool may hold so much, for everyone; false if there is not as
  /// much.
  template <class Lock>
  bool reserve(Lock& lock, stream_ordered_heap& heap, std::size_t bytes) {
    upstream_calls::attempt const attempt(calls_);
    bytes = lesser(bytes, room() / chunk_ * chunk_);
    if (bytes == 0 || !has_range(lock, heap)) return false;
    heap.reserve();
    stream_identity const nobody{.stream = host_order};
    auto const window = heap.find_window(nobody, request::of(bytes, bytes, unit_bytes, ~units{0}), chunk_);
    if (window.first == 0) return false;
    auto const held = fill(lock, heap, window, nobody, ~std::size_t{0});
    if (held.held != 0) heap.put_back(held, true);
    return held.held != 0;
  }

  /// Idle chunks are found when somebody looks for them: nothing has to be remembered.
  void look_again() noexcept {}
  bool may_be_idle() const noexcept { return true; }
  bool may_be_idle_after(stream_ordered_heap const&, block_id) const noexcept { return true; }

  /// Takes idle chunks away until at most `keep` bytes are held, also between live blocks; returns how many bytes.
  template <class Lock>
  std::size_t give_idle(Lock& lock, stream_ordered_heap& heap, std::size_t keep) noexcept try {
    std::size_t released = 0;
    drop_moved(lock);
    while (held() > keep) {
      idle_chunks idle(heap, reserved_, chunk_, may_move(held() - keep));
      if (idle.bytes() == 0) break;
      upstream_calls::attempt const attempt(calls_);
      tenants::giving const others_wait = sharing_.giving();
      tenants::claim const until_gone = sharing_.claim(idle.bytes());
      calls_.without(lock, idle.bytes(), [&] { return idle.unmap(upstream_); });
      calls_.count_success();
      ++releases_;
      released += idle.emptied();
      if (idle.emptied() != idle.bytes()) break;
    }
    return released;
  } catch (std::bad_alloc const&) {  // no room to note what goes
    return 0;
  }

  /// Takes all memory away but keeps the addresses, live blocks and their contents: those go to `store`, or are dropped
  /// where that is null. Idle chunks are given back first. All work on free blocks has to be done. Throws what the
  /// store or CUDA throws, and `std::logic_error` from inside of what is under way, and then nothing has changed.
  template <class Lock>
  void park(Lock& lock, stream_ordered_heap& heap, content_store* store, int device) {
    parking_.park(lock, heap, first_, store, device, [&] { settle(lock, heap); });
  }
  /// Puts memory behind all that was parked, and the contents into it. False if there is not as much; throws what CUDA
  /// throws. Then it stays parked. Throws `std::logic_error` from inside of a change.
  template <class Lock>
  bool unpark(Lock& lock, stream_ordered_heap& heap, int device) {
    return parking_.unpark(lock, heap, first_, device);
  }
  bool is_parked() const noexcept { return parking_.is_parked(); }
  /// What a capture keeps, parked or not.
  std::size_t captured_bytes(stream_ordered_heap const& heap, capture_key capture) const noexcept {
    return is_parked() ? heap.captured_bytes_parked(first_, capture) : heap.captured_bytes(capture);
  }
  /// What was meant for `park`, which cannot be called any more.
  static void forget(content_store* store) noexcept { delete store; }

  /// Takes all memory away, when the heap is about to go. Where some of it is pending still, for which CUDA could not
  /// wait, all stays where it is. What the driver refuses is tried again: it may have reported an error of earlier
  /// work. Returns how many bytes stay.
  std::size_t give_all(stream_ordered_heap const& heap) noexcept {
    if (range_.bytes == 0 || heap.is_pending(first_)) return held();
    std::size_t left = 0;
    relaxed([&] {
      if (is_parked())
        left = parking_.give_all();
      else
        heap.for_each_with_memory(first_, [&](std::uintptr_t address, std::size_t bytes) {
          void* const p = reinterpret_cast<void*>(address);
          if (!upstream_.unmap(p, bytes) && !upstream_.unmap(p, bytes)) left += bytes;
        });
      if (left == 0) upstream_.release_range(range_);
    });
    return left;
  }

 private:
  /// For `park`: gives idle memory back, and waits until nothing comes, goes or is pending.
  template <class Lock>
  void settle(Lock& lock, stream_ordered_heap& heap) {
    parking_.wait_for_calls(lock);
    give_idle(lock, heap, 0);
    do {
      wait_for_moved(lock);
      parking_.wait_for_calls(lock);
    } while (moves_.first().get() != nullptr || waited_for_frees(lock, heap));
  }
  /// Other threads free while the lock is dropped. True if it waited for that, without the lock, so that there may be
  /// more by now; throws `cuda_error` where CUDA cannot wait.
  template <class Lock>
  bool waited_for_frees(Lock& lock, stream_ordered_heap& heap) {
    auto const is_pending = [&] { return heap.is_pending_outside_captures(first_); };
    heap.poll(heap.all_lists());
    if (!is_pending()) return false;
    if (!heap.synchronize(lock) && is_pending()) check(cudaErrorNotReady, "waiting for work on freed blocks");
    return true;
  }
  /// How much of `bytes` may come from chunks that are idle.
  std::size_t may_move(std::size_t bytes) const noexcept { return chunks_may_move(upstream_) ? bytes : 0; }
  /// Bytes that may still be taken from the upstream.
  std::size_t room() const noexcept {
    std::size_t const most = options_.max_bytes == 0 ? ~std::size_t{0} : options_.max_bytes;
    return most - lesser(most, held() + calls_.bytes());
  }

  /// The addresses are taken when they are first needed, all at once. False if there are none.
  template <class Lock>
  bool has_range(Lock& lock, stream_ordered_heap& heap) {
    if (range_.bytes != 0) return true;
    address_range fresh;
    bool const found = calls_.without(lock, 0, [&] {
      try {
        fresh = upstream_.reserve_range(max_block_bytes / chunk_ * chunk_);
      } catch (std::bad_alloc const&) {
      }
      return fresh.bytes != 0;
    });
    bool const is_mine = found && range_.bytes == 0;  // else another thread was quicker
    try {
      if (is_mine) first_ = heap.add_range(reinterpret_cast<std::uintptr_t>(fresh.begin), units_of(fresh.bytes));
    } catch (...) {
      upstream_.release_range(fresh);
      throw;
    }
    if (is_mine) range_ = fresh;
    if (found && !is_mine) upstream_.release_range(fresh);
    return range_.bytes != 0;
  }
  static units units_of(std::size_t bytes) noexcept { return static_cast<units>(bytes / unit_bytes); }

  /// Puts memory behind a window, at most `fresh` bytes of it not from idle chunks if there are any. Then it is held;
  /// else nothing has changed, but that idle chunks may have lost theirs.
  template <class Lock>
  stream_ordered_heap::held_window fill(Lock& lock, stream_ordered_heap& heap,
                                        stream_ordered_heap::window const& window, stream_identity const& who,
                                        std::size_t fresh) {
    piece_list holes(window.holes);
    auto held =
        heap.hold(window, who, [&](std::uintptr_t address, std::size_t bytes) { holes.append(address, bytes); });
    bool is_filled = false;
    try {
      is_filled = fill(lock, heap, holes, held, who, fresh);
      heap.reserve();
    } catch (...) {
      heap.put_back(held, is_filled);
      throw;
    }
    if (is_filled) return held;
    heap.put_back(held, false);
    return {};
  }
  /// First with as much fresh memory as may be, then with none; once more where other pools gave some back meanwhile.
  template <class Lock>
  bool fill(Lock& lock, stream_ordered_heap& heap, piece_list& holes, stream_ordered_heap::held_window& held,
            stream_identity const& who, std::size_t fresh) {
    std::uint64_t const seen = sharing_.given();
    fresh = lesser(fresh, room_below(lock, held.missing));
    return fill_moving(lock, heap, holes, held, who, held.missing - lesser(held.missing, lesser(room(), fresh))) ||
           fill_moving(lock, heap, holes, held, who, held.missing) ||
           (others_gave(lock, seen) && fill_moving(lock, heap, holes, held, who, held.missing));
  }
  /// Waits for what other pools are giving back just now; true if there was such since `seen`. From inside of some
  /// pool's call it does not wait: that may be what gives it back.
  template <class Lock>
  bool others_gave(Lock& lock, std::uint64_t seen) {
    if (!sharing_.is_shared()) return false;
    bool const may_wait = !upstream_calls::is_thread_in_call();
    return calls_.without(lock, 0, [&] { return sharing_.gave_since(seen, may_wait); });
  }
  /// `moved` of what is missing comes from idle chunks: this pool's, where asked for those of the stream that are
  /// pending, then those of others on the same memory.
  template <class Lock>
  bool fill_moving(Lock& lock, stream_ordered_heap& heap, piece_list& holes, stream_ordered_heap::held_window& held,
                   stream_identity const& who, std::size_t moved) {
    idle_chunks idle(heap, reserved_, chunk_, may_move(moved));
    std::size_t from_others = moved - lesser(moved, idle.bytes());
    auto pending = find_pending(heap, held, who, from_others);
    std::size_t const shown = pending.get() == nullptr ? 0 : pending->chunks.bytes();
    from_others -= lesser(from_others, shown);
    if (room() < held.missing) return false;
    piece_list with_views(0);
    if (shown != 0) with_views.show(holes, pending->chunks.pieces());
    std::size_t const all_moved = idle.bytes() + shown;
    tenants::claim claim = sharing_.claim(lesser(all_moved, held.missing));
    bool const is_filled = calls_.without(lock, held.missing, [&] {
      if (!idle.unmap(upstream_)) return false;
      from_others -= lesser(from_others, sharing_.relieve_limits(held.missing));
      sharing_.reclaim(from_others, held.missing);
      if (shown != 0) pending->done.record(who.stream);
      return sharing_.take(claim, held.missing - lesser(all_moved, held.missing),
                           [&] { return (shown == 0 ? holes : with_views).map(upstream_); });
    });
    if (!is_filled) return false;
    if (shown != 0) {
      held.is_in_order = true;
      pending->chunks.set_shown();
      moves_.add(std::move(pending));
    }
    reserved_.add(held.missing);
    moved_ += all_moved;
    if (all_moved != 0) note_event(upstream_, trace_action::move, holes.begin()->begin(), all_moved, host_order);
    ++growths_;
    calls_.count_success();
    return true;
  }
  /// At most `bytes` of what `who` freed, whose work is not done; none where that may not move.
  shared_owner<pending_move> find_pending(stream_ordered_heap& heap, stream_ordered_heap::held_window const& held,
                                          stream_identity const& who, std::size_t bytes) {
    bool const may = options_.move_pending && held.own != shared && !may_break_capture(who.stream.get());
    if (!may || may_move(bytes) == 0) return {};
    device_guard const on_device(heap.device_of(held.own));  // an event can only be recorded where it was made
    auto found = shared_owner<pending_move>::make(heap, reserved_, chunk_, bytes, held.own);
    return found->chunks.bytes() == 0 ? shared_owner<pending_move>() : std::move(found);
  }
  /// Takes chunks that were moved before their work was done away from where they were, as far as it is done now.
  template <class Lock>
  void drop_moved(Lock& lock) noexcept {
    if (moves_.first().get() == nullptr) return;
    upstream_calls::attempt const attempt(calls_);
    moves_.drop_done([&](pending_move& move) {
      auto const drop = [&] { return succeeded(cudaEventQuery(move.done.get())) && move.chunks.unmap(upstream_); };
      if (!calls_.without(lock, 0, drop)) return false;
      calls_.count_success();  // a budget below may have room again
      return true;
    });
  }
  /// The same for all of them. Throws `cuda_error`, also where the driver takes some not away though its work is done:
  /// it is asked twice, since it may have reported an error of earlier work.
  template <class Lock>
  void wait_for_moved(Lock& lock) {
    for (shared_owner<pending_move> move; (move = moves_.first()).get() != nullptr;) {
      calls_.without(lock, 0, [&] { return move->done.synchronize(), true; });
      for (int asked = 0; asked < 2 && moves_.first() == move; ++asked) drop_moved(lock);
      if (moves_.first() == move) check(cudaErrorUnknown, "unmapping moved chunks where they were");
    }
  }
  /// How much of `missing` the limits below let through.
  template <class Lock>
  std::size_t room_below(Lock& lock, std::size_t missing) {
    std::size_t most = 0;
    calls_.without(lock, 0, [&] { return most = most_short(upstream_, missing), true; });
    return missing - lesser(missing, most);
  }
  /// Bytes that may be taken before idle chunks are moved: over what is live together where pools share the upstream.
  /// What was moved may be taken once instead, up to two fifths of what `max_waste` allows: moves that repeat end so.
  template <class Lock>
  std::size_t may_take(Lock& lock, std::size_t live, std::size_t request_bytes) {
    tenant_usage all{live, held()};
    if (sharing_.is_shared()) calls_.without(lock, 0, [&] { return all = sharing_.joint(live, request_bytes), true; });
    std::size_t const most = most_held(options_, all.live, 8 * chunk_);
    std::size_t const instead = lesser(moved_, (most - all.live) / 5 * 2);
    return most - lesser(most, all.held - lesser(all.held, instead));
  }

  Upstream& upstream_;
  pool const& options_;
  std::size_t chunk_;
  address_range range_;
  block_id first_ = 0;
  upstream_calls calls_{calls_shared_below(upstream_)};
  chunk_sharing<Upstream> sharing_{upstream_};
  pool_level reserved_;
  parking<Upstream> parking_{upstream_, calls_, sharing_, reserved_};
  pending_moves moves_;  // whose work is not done
  std::uint64_t growths_ = 0, releases_ = 0, moved_ = 0;
};

template <growable Upstream>
struct held_from<Upstream> {
  using type = growable_range<Upstream>;
};

}  // namespace weir::detail
