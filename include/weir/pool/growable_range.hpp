#pragma once
// What a pool holds from a growable upstream: one range of addresses, with memory where it is needed.

#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/note_event.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/pool/caching_allocator.hpp>
#include <weir/pool/idle_chunks.hpp>
#include <weir/pool/limits_between.hpp>
#include <weir/pool/parked_memory.hpp>
#include <weir/pool/pending_move.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
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
  ~growable_range() {
    delete parked_;
    while (moved_before_done_.get() != nullptr) moved_before_done_ = std::move(moved_before_done_->next);
  }
  growable_range(growable_range const&) = delete;
  growable_range& operator=(growable_range const&) = delete;
  /// Who asks, among several pools on the upstream.
  void set_tenant(tenant* me) noexcept { me_ = me; }

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
    numbers.parked = without_memory_;
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
      tenants::giving const others_wait(tenancy());
      without(lock, idle.bytes(), [&] { return idle.unmap(upstream_); });
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
    auto* const parked = new (std::nothrow) parked_memory(store);
    if (parked == nullptr) {
      delete store;
      throw std::bad_alloc();
    }
    bool is_needed = false;
    try {
      is_needed = prepare(lock, heap, *parked);
    } catch (...) {
      delete parked;
      throw;
    }
    if (!is_needed) {
      delete parked;
      return;
    }
    upstream_calls::attempt const attempt(calls_);
    parked_ = parked;
    is_changing_ = true;
    heap.park(first_);
    try {
      without(lock, 0, [&] { return parked->save(device), parked->unmap(upstream_); });
    } catch (...) {
      heap.unpark(first_);
      forget_parked(lock);
      throw;
    }
    is_changing_ = false;
    without_memory_ = parked->bytes();
    reserved_.current -= without_memory_;
  }
  /// Puts memory behind all that was parked, and the contents into it. False if there is not as much; throws what CUDA
  /// throws. Then it stays parked. Throws `std::logic_error` from inside of a change.
  template <class Lock>
  bool unpark(Lock& lock, stream_ordered_heap& heap, int device) {
    wait_for_change(lock);
    if (parked_ == nullptr) return true;
    upstream_calls::attempt const attempt(calls_);
    parked_->keep_live([&](void* p) { return bool{heap.find_block(p)}; });
    is_changing_ = true;
    bool done = false;
    try {
      done = without(lock, parked_->bytes(), [&] {
        auto const map = [&] { return take([&] { return parked_->map(upstream_); }); };
        relieve_limits(parked_->bytes());
        bool is_mapped = map();
        for (std::size_t const bytes : {std::size_t{0}, parked_->bytes()}) {
          if (is_mapped) break;
          reclaim(bytes, parked_->bytes());
          is_mapped = map();
        }
        if (!is_mapped) return false;
        parked_->load(upstream_, device);
        return true;
      });
    } catch (...) {
      is_changing_ = false;
      throw;
    }
    is_changing_ = false;
    if (!done) return false;
    reserved_.add(std::exchange(without_memory_, 0));
    heap.unpark(first_);
    forget_parked(lock);
    return true;
  }
  bool is_parked() const noexcept { return parked_ != nullptr; }
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
      if (parked_ != nullptr)
        left = parked_->unmap(upstream_) || parked_->unmap(upstream_) ? 0 : parked_->mapped_bytes();
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
  /// Waits for what other threads change, and notes what has memory then. False if it is parked already.
  template <class Lock>
  bool prepare(Lock& lock, stream_ordered_heap& heap, parked_memory& parked) {
    wait_for_change(lock);
    if (parked_ != nullptr) return false;
    wait_for_calls(lock);
    give_idle(lock, heap, 0);
    do {
      wait_for_moved(lock);
      wait_for_calls(lock);
    } while (moved_before_done_.get() != nullptr || waited_for_frees(lock, heap));
    if (parked_ != nullptr) return false;  // another thread was quicker
    note(heap, parked);
    return true;
  }
  /// While another thread parks or unparks it. Throws from inside of that.
  template <class Lock>
  void wait_for_change(Lock& lock) {
    while (is_changing_ && calls_.wait(lock)) {
    }
    if (is_changing_) refuse_inside();
  }
  /// Until nothing comes or goes: then no window is held. Throws from inside of what is under way.
  template <class Lock>
  void wait_for_calls(Lock& lock) {
    while (calls_.wait(lock)) {
    }
    if (calls_.are_under_way()) refuse_inside();
  }
  [[noreturn, gnu::noinline, gnu::cold]] static void refuse_inside() {
    throw std::logic_error(
        "weir: pool: park or unpark from inside of what a pool calls while its memory comes or goes, such as a "
        "reclaimer or an on_soft below it: this pool's memory is just changing; call it when that has returned");
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
  void note(stream_ordered_heap const& heap, parked_memory& parked) const {
    std::size_t spans = 0, blocks = 0;
    heap.for_each_with_memory(first_, [&](std::uintptr_t, std::size_t) { ++spans; });
    heap.for_each_live(first_, [&](std::uintptr_t, std::size_t) { ++blocks; });
    parked.reserve(spans, blocks);
    heap.for_each_with_memory(first_, [&](std::uintptr_t address, std::size_t bytes) {
      parked.add(reinterpret_cast<void*>(address), bytes);
    });
    heap.for_each_live(first_, [&](std::uintptr_t address, std::size_t bytes) {
      parked.add_block(reinterpret_cast<void*>(address), bytes);
    });
  }
  /// Without the lock: the store may have to wait for the device, as `cudaFreeHost` does.
  template <class Lock>
  void forget_parked(Lock& lock) noexcept {
    parked_memory* const gone = std::exchange(parked_, nullptr);
    is_changing_ = false;
    without(lock, 0, [&] { return delete gone, true; });
  }

  /// How much of `bytes` may come from chunks that are idle.
  std::size_t may_move(std::size_t bytes) const noexcept { return chunks_may_move(upstream_) ? bytes : 0; }
  /// Bytes that may still be taken from the upstream.
  std::size_t room() const noexcept {
    std::size_t const most = options_.max_bytes == 0 ? ~std::size_t{0} : options_.max_bytes;
    return most - lesser(most, held() + calls_.bytes());
  }

  /// Calls `f()` without the lock; `bytes` are being taken from the upstream or given back by it.
  template <class Lock, class F>
  bool without(Lock& lock, std::size_t bytes, F f) {
    upstream_calls::call<Lock> const under_way(calls_, lock, bytes);
    return relaxed(f);
  }

  /// The addresses are taken when they are first needed, all at once. False if there are none.
  template <class Lock>
  bool has_range(Lock& lock, stream_ordered_heap& heap) {
    if (range_.bytes != 0) return true;
    address_range fresh;
    bool const found = without(lock, 0, [&] {
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
    std::uint64_t const seen = tenancy() == nullptr ? 0 : tenancy()->given();
    fresh = lesser(fresh, room_below(lock, held.missing));
    return fill_moving(lock, heap, holes, held, who, held.missing - lesser(held.missing, lesser(room(), fresh))) ||
           fill_moving(lock, heap, holes, held, who, held.missing) ||
           (others_gave(lock, seen) && fill_moving(lock, heap, holes, held, who, held.missing));
  }
  tenants* tenancy() noexcept {
    if constexpr (has_tenants<Upstream>)
      return &upstream_.tenancy();
    else
      return nullptr;
  }
  /// Waits for what other pools are giving back just now; true if there was such since `seen`. From inside of some
  /// pool's call it does not wait: that may be what gives it back.
  template <class Lock>
  bool others_gave(Lock& lock, std::uint64_t seen) {
    tenants const* const all = tenancy();
    if (all == nullptr || !all->is_shared()) return false;
    bool const may_wait = !upstream_calls::is_thread_in_call();
    return without(lock, 0, [&] { return all->gave_since(seen, may_wait); });
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
    bool const is_filled = without(lock, held.missing, [&] {
      if (!idle.unmap(upstream_)) return false;
      from_others -= lesser(from_others, relieve_limits(held.missing));
      reclaim(from_others, held.missing);
      if (shown != 0) pending->done.record(who.stream);
      return take([&] { return map(shown == 0 ? holes : with_views); });
    });
    if (!is_filled) return false;
    if (shown != 0) {
      held.is_in_order = true;
      pending->chunks.set_shown();
      keep_until_done(std::move(pending));
    }
    reserved_.add(held.missing);
    std::size_t const all_moved = idle.bytes() + shown;
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
  /// Behind those that were moved before.
  void keep_until_done(shared_owner<pending_move> move) noexcept {
    auto* end = &moved_before_done_;
    while (end->get() != nullptr) end = &(*end)->next;
    *end = std::move(move);
  }
  /// Takes chunks that were moved before their work was done away from where they were, as far as it is done now. Of a
  /// stream's it asks for the oldest, and for the next once that is done.
  template <class Lock>
  void drop_moved(Lock& lock) noexcept {
    if (moved_before_done_.get() == nullptr) return;
    upstream_calls::attempt const attempt(calls_);
    shared_owner<pending_move> kept;
    auto* end = &kept;
    list_id not_done = shared;
    for (auto all = std::move(moved_before_done_); all.get() != nullptr;) {
      auto move = std::move(all);
      all = std::move(move->next);
      auto const drop = [&] { return succeeded(cudaEventQuery(move->done.get())) && move->chunks.unmap(upstream_); };
      if (move->chunks.list() != not_done && without(lock, 0, drop)) {
        calls_.count_success();  // a budget below may have room again
      } else {
        move->chunks.settle();  // some of it may have gone
        not_done = move->chunks.list();
        *end = std::move(move);
        end = &(*end)->next;
      }
    }
    *end = std::move(moved_before_done_);  // by other threads, meanwhile
    moved_before_done_ = std::move(kept);
  }
  /// The same for all of them. Throws `cuda_error`, also where the driver takes some not away though its work is done:
  /// it is asked twice, since it may have reported an error of earlier work.
  template <class Lock>
  void wait_for_moved(Lock& lock) {
    for (shared_owner<pending_move> move; (move = moved_before_done_).get() != nullptr;) {
      without(lock, 0, [&] { return move->done.synchronize(), true; });
      for (int asked = 0; asked < 2 && moved_before_done_.get() == move.get(); ++asked) drop_moved(lock);
      if (moved_before_done_.get() == move.get()) check(cudaErrorUnknown, "unmapping moved chunks where they were");
    }
  }
  /// Lets others give back what they do not use, `bytes` in all, or what is lacking if that is more; nobody where a
  /// limit has no room for `missing` anyway.
  void reclaim(std::size_t bytes, std::size_t missing) noexcept {
    if constexpr (has_tenants<Upstream>) {
      tenants& all = upstream_.tenancy();
      if (!all.is_shared() || most_short(upstream_, missing) != 0) return;
      std::size_t const wanted = greater(bytes, all.lacking(*me_));
      if (wanted != 0) all.reclaim(*me_, wanted);
    }
  }
  /// Lets others under the same limits give back what these lack to map `missing`. Returns how many bytes that was.
  std::size_t relieve_limits(std::size_t missing) noexcept {
    std::size_t got = 0;
    bool is_refused = false;  // by one that stays short, whatever others give further down
    if constexpr (has_tenants<Upstream>)
      for_each_short_limit(upstream_, missing, [&](limit_ref const& limit, std::size_t by) {
        std::size_t const gave = is_refused ? 0 : upstream_.tenancy().reclaim(*me_, by, &limit);
        is_refused = gave < by;
        got += gave;
      });
    return got;
  }
  /// How much of `missing` the limits below let through.
  template <class Lock>
  std::size_t room_below(Lock& lock, std::size_t missing) {
    std::size_t most = 0;
    without(lock, 0, [&] { return most = most_short(upstream_, missing), true; });
    return missing - lesser(missing, most);
  }
  template <class F>
  bool take(F map) {
    if constexpr (has_tenants<Upstream>)
      return upstream_.tenancy().take(*me_, map);
    else
      return map();
  }
  /// Bytes that may be taken before idle chunks are moved: over what is live together where pools share the upstream.
  /// What was moved may be taken once instead, up to two fifths of what `max_waste` allows: moves that repeat end so.
  template <class Lock>
  std::size_t may_take(Lock& lock, std::size_t live, std::size_t request_bytes) {
    tenant_usage all{live, held()};
    if constexpr (has_tenants<Upstream>)
      if (upstream_.tenancy().is_shared())
        without(lock, 0, [&] { return all = upstream_.tenancy().joint(live, request_bytes), true; });
    std::size_t const most = most_held(options_, all.live, 8 * chunk_);
    std::size_t const instead = lesser(moved_, (most - all.live) / 5 * 2);
    return most - lesser(most, all.held - lesser(all.held, instead));
  }
  /// All or nothing. An undo that is refused is tried again, as in `give_all`.
  bool map(piece_list& holes) {
    auto* done = holes.begin();
    auto const undo = [&] {
      while (done-- != holes.begin())
        if (!upstream_.unmap(done->begin(), done->bytes)) upstream_.unmap(done->begin(), done->bytes);
    };
    try {
      for (; done != holes.end(); ++done)
        if (!fill(*done)) return undo(), false;
    } catch (...) {
      undo();
      throw;
    }
    return true;
  }

  bool fill(piece_list::piece const& hole) {
    return hole.from == 0 ? upstream_.map(hole.begin(), hole.bytes)
                          : upstream_.alias(hole.begin(), reinterpret_cast<void*>(hole.from), hole.bytes);
  }

  Upstream& upstream_;
  pool const& options_;
  tenant* me_ = nullptr;
  std::size_t chunk_;
  address_range range_;
  block_id first_ = 0;
  upstream_calls calls_{calls_shared_below(upstream_)};
  parked_memory* parked_ = nullptr;
  shared_owner<pending_move> moved_before_done_;  // the first of a list
  bool is_changing_ = false;                      // it is being parked, or unparked, just now
  pool_level reserved_;
  std::size_t without_memory_ = 0;  // of what is parked: all of it, from when it went until it is back
  std::uint64_t growths_ = 0, releases_ = 0, moved_ = 0;
};

template <growable Upstream>
struct held_from<Upstream> {
  using type = growable_range<Upstream>;
};

}  // namespace weir::detail
