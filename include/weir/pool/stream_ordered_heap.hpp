#pragma once
// A heap whose free blocks are handed out in stream order: which of them may this stream have?

#include <weir/pool/ordered_frees.hpp>
#include <weir/pool/question_interval.hpp>
#include <weir/pool/small_blocks.hpp>

#include <cstddef>

namespace weir::detail {

/// Finds memory among what a pool holds, from cheapest to dearest: no call, a query, a wait between streams. Holds the
/// blocks, knows the order of the streams that freed them, and hands out neither. Never takes more from the upstream.
/// How blocks come back is `ordered_frees`.
/// Guarded by the pool's lock.
class stream_ordered_heap : public ordered_frees {
 public:
  explicit stream_ordered_heap(int device) : ordered_frees(device) {}

  /// A block that `who` may use without asking anybody: its own, or one whose work is done, whichever fits more
  /// tightly. No CUDA call, but for the events that are due now and then (`early_events`); in host order none. Or 0.
  /// May throw `std::bad_alloc`, as all that take.
  [[gnu::always_inline]] block_id take_ready(stream_identity const& who, request const& r) {
    reserve();
    list_id const list = list_of(who);
    record_early(list);
    return heap_.take_fitting(list, r);
  }
  /// The same for a small request; the block is counted as one that the stream has.
  [[gnu::always_inline]] block_id take_ready_small(stream_identity const& who, request const& r) {
    reserve();
    list_id const list = list_of(who);
    record_early(list);
    block_id const id = heap_.take_fitting(list, r);
    if (id != 0) heap_.set_taker(id, list);
    return id;
  }

  /// The same as `take_ready` for a stream that may be destroyed, where CUDA need not be asked who it is, since it has
  /// nothing of its own. Or 0.
  block_id take_ready_unasked(stream_ref stream, request const& r) {
    list_id const list = tracker_.list_asked(stream);
    if (list == shared || heap_.has_free(list)) return 0;
    reserve();
    return heap_.take_fitting(shared, r);
  }

  /// A block that `who` freed itself: nothing is taken from others. Or 0.
  block_id take_own(stream_identity const& who, request const& r) {
    reserve();
    list_id const list = list_of(who);
    if (list == shared) return 0;
    block_id id = heap_.find(list, r);
    if (id == 0) id = heap_.find_hidden(list, r);
    return id == 0 ? 0 : heap_.take(id, r);
  }

  /// The same as `take_ready` after asking CUDA what is done by now, and what `who` has already waited for. Never makes
  /// anyone wait.
  block_id take_done(stream_identity const& who, request const& r, lists const& looked_at) {
    list_id const list = reserve_to_search(who);
    poll(looked_at, list);
    if (is_pending_elsewhere(looked_at, list)) early_.saw_pending();
    if (block_id const id = heap_.take_fitting(list, r); id != 0) return id;
    if (block_id const id = heap_.find_hidden(shared, r); id != 0) return heap_.take(id, r);
    if (list == shared) return 0;
    block_id const known = looked_at.first_of(heap_, [&](list_id giver) {
      block_id const id = may_give(giver, list) ? heap_.find(giver, r) : 0;
      return id != 0 && tracker_.available(list, giver, heap_.sequence(id)) ? id : 0;
    });
    if (known != 0) return heap_.take(known, r);
    return take_run(list, r, list, [&](block_id id) {
      list_id const owner = heap_.blocks()[id].list;
      return owner == shared || tracker_.available(list, owner, heap_.sequence(id));
    });
  }

  /// A search has ended, and the pool has so much that is free: see `early_events`. None are planned for very many
  /// streams, of which each search asks some.
  void plan_events(std::size_t free_bytes) noexcept {
    if (!has_few_streams()) return early_.plan_none();
    std::size_t streams = 0;
    for_each_awaited([&](list_id) { ++streams; });
    early_.plan(tracker_.frees(), free_bytes, heap_.free_bytes(shared), streams);
  }

  /// Where there are very many streams: asks more of them what is done, until a block is ready, or some were asked in
  /// vain.
  block_id take_asking_further(stream_identity const& who, request const& r) {
    list_id const own = reserve_to_search(who);
    std::size_t const all = tracker_.list_count() - 1;
    stream_tracker::questions calls(tracker_);
    std::size_t in_vain = 0;
    return lists(next_list_ % all, all, all).first_of(heap_, [&](list_id giver) -> block_id {
      if (in_vain == most_in_vain || tracker_.is_captured(giver)) return 0;
      next_list_ = static_cast<std::size_t>(giver);
      poll(giver, own, calls);
      if (block_id const id = heap_.find(shared, r); id != 0) return heap_.take(id, r);
      in_vain += heap_.has_free(giver);
      return 0;
    });
  }

  /// The same by little: first one block of those that others have at hand, of few streams; then one stream after
  /// another gives all that it has at hand to the heap, until some block is ready. So the others keep theirs, which
  /// they would ask for again.
  block_id take_gathering(stream_identity const& who, request const& r, lists const& looked_at) {
    list_id const own = reserve_to_search(who);
    if (block_id const id = ask_elsewhere(own, r, looked_at); id != 0) return id;
    if (!small_.has_some()) return 0;
    stream_tracker::questions calls(tracker_);
    for (std::size_t i = 0; i < looked_at.count(); ++i) {
      list_id const giver = looked_at[next_gathered_ + i];
      if (!small_.gather(giver)) continue;
      if (giver != own) poll(giver, own, calls);
      if (block_id const id = heap_.take_fitting(own, r); id != 0) {
        next_gathered_ += i + 1;
        return id;
      }
    }
    return 0;
  }

  /// A block that `who` may use once its stream waits for others, on the device: the wait is as narrow as the block's
  /// own work allows. First a block of one other stream, then neighbours of several. 0 in host order and in a capture:
  /// a host cannot queue, and a graph must not wait for what is outside of it.
  block_id take_waiting(stream_identity const& who, request const& r, lists const& looked_at) {
    list_id const list = reserve_to_search(who);
    if (list == shared || tracker_.is_captured(list)) return 0;
    block_id const waited_for = looked_at.first_of(heap_, [&](list_id giver) {
      block_id const id = may_give(giver, list) ? heap_.find(giver, r) : 0;
      return id != 0 && tracker_.join(list, who.stream, giver, heap_.sequence(id)) ? id : 0;
    });
    if (waited_for != 0) return heap_.take(waited_for, r);
    return looked_at.first_of(heap_, [&](list_id from) -> block_id {
      if (tracker_.is_captured(from)) return 0;
      auto const join = [&](block_id id) {
        list_id const owner = heap_.blocks()[id].list;
        return owner == shared || tracker_.join(list, who.stream, owner, heap_.sequence(id));
      };
      auto const can_wait_for = [&](block_id id) { return !tracker_.is_captured(heap_.blocks()[id].list); };
      block_heap::run const found = heap_.find_run(from, r, can_wait_for);
      if (found.first == 0) return 0;
      bool joined = true;
      heap_.for_each_in(found, [&](block_id id) { joined = joined && join(id); });
      return joined ? heap_.take(heap_.merge(found, list, tracker_.on_free(list)), r) : 0;
    });
  }

  /// True if a request fits into one free block, once the work on that is done.
  bool has_room_for(request const& r) const noexcept {
    auto const in = [&](list_id list) { return tracker_.is_captured(list) ? 0 : heap_.find(list, r); };
    return heap_.find(shared, r) != 0 || all_lists().first_of(heap_, in) != 0;
  }

  // ---- What streams have at hand for small requests: see `small_blocks`.

  /// Null for a stream that was not seen of late, too.
  [[gnu::always_inline]] void* take_small(stream_key key, slot_class::sized size_class, std::size_t bytes,
                                          live_mark mark) noexcept {
    return small_.take(heap_, tracker_.list_seen(key), size_class, bytes, mark);
  }
  /// The same after making room. `r` as `take_ready` would serve it, by a block; `held`: bytes that the pool holds.
  /// Null if only that is left. May throw `std::bad_alloc`.
  void* make_small(stream_identity const& who, request const& r, std::size_t held) {
    list_id list = tracker_.list_seen(who.key);
    if (list == shared) [[unlikely]] {
      reserve();
      list = list_of(who);
      slot_class::sized const size_class{slot_class::of(r.size), r.size * unit_bytes};
      if (void* const p = small_.take(heap_, list, size_class, r.requested, r.alignment_log); p != nullptr) return p;
    }
    return list == shared || !tracker_.is_lasting(list) ? nullptr : small_.make(list, r, held);
  }
  /// A small block that another stream has at hand, where its work is known to be done, or waited for by the stream; 0
  /// if none is found. Asks CUDA now and then, and else makes no call.
  [[gnu::always_inline]] block_id take_elsewhere(stream_key key, request const& r) noexcept {
    list_id const list = tracker_.list_seen(key);
    return list != shared && small_.has_elsewhere(list) && has_few_lists() ? look_elsewhere(list, r) : 0;
  }
  /// The block that a stream took where `make_small` gave it none is counted as one that it has.
  void count_small(block_id id, stream_key key) noexcept { heap_.set_taker(id, tracker_.list_seen(key)); }
  using ordered_frees::make_blocks;
  bool make_blocks() noexcept { return small_.make_blocks(); }
  bool adopt() noexcept { return small_.adopt(); }
  bool has_slabs() const noexcept { return small_.has_slabs(); }
  void gather() noexcept { small_.gather(); }
  bool gather(stream_identity const& who) noexcept {
    return small_.gather(who.capture == capture_key::none ? tracker_.list_seen(who.key) : shared);
  }
  void gather_slabs() noexcept { small_.gather_slabs(); }
  bool some_slab_went() noexcept { return small_.some_slab_went(); }

 private:
  /// A small block that another stream has at hand, where its work is known to be done, or waited for by the list's
  /// stream; now and then after asking. 0 if none is found.
  [[gnu::noinline]] block_id look_elsewhere(list_id list, request const& r) noexcept {
    block_id const id = small_.take_elsewhere(list, r);
    return questions_.is_due_after_look(id != 0) ? ask_elsewhere(list, r, next_lists()) : id;
  }
  /// The same after asking CUDA, of one stream that has such a block at hand, what of that is done by now.
  block_id ask_elsewhere(list_id list, request const& r, lists const& looked_at) noexcept {
    if (list == shared || !tracker_.is_lasting(list) || !has_few_lists() || !small_blocks::may_have(r)) return 0;
    for (std::size_t i = 0; i < looked_at.count(); ++i) {
      list_id const giver = looked_at[next_asked_ + i];
      if (giver == list || !small_.has(giver, r)) continue;
      next_asked_ += i + 1;
      small_.mark(giver);
      stream_tracker::questions calls(tracker_);
      heap_.complete(giver, tracker_.poll(giver, calls));
      block_id const id = small_.take_from(giver, list, r);
      questions_.answered(id != 0);
      return id;
    }
    return 0;
  }

  /// For a stream, by its list: the host's order makes no call.
  [[gnu::always_inline]] void record_early(list_id list) noexcept {
    if (early_.may_be_due() && list != shared) [[unlikely]]
      record_if_due();
  }
  [[gnu::noinline]] void record_if_due() noexcept {
    std::size_t const done = heap_.free_bytes(shared);
    if (!early_.are_due(tracker_.frees(), done)) return;
    early_.recorded(tracker_.frees(), done);
    for_each_awaited([&](list_id list) { tracker_.cover(list); });
  }
  /// True if something that another stream freed is not known to be done, and will only be by an event.
  bool is_pending_elsewhere(lists const& looked_at, list_id own) const noexcept {
    return looked_at.first_of(heap_, [&](list_id list) -> block_id {
      return list != own && (tracker_.is_lasting(list) || tracker_.is_joint(list));
    }) != 0;
  }
  /// Calls `f(list)` for the streams that last and freed something which is not known to be done, alone or with others.
  template <class F>
  void for_each_awaited(F f) {
    auto const call = [&](list_id list) {
      if (tracker_.is_lasting(list)) f(list);
    };
    if (tracker_.joint_count() == 0) return all_lists().for_each_with_free(heap_, call);
    all_lists().for_each([&](list_id list) {
      if (heap_.has_free(list) || (tracker_.is_open(list) && tracker_.is_kept_open(list))) call(list);
    });
  }
  bool may_give(list_id giver, list_id taker) const noexcept { return giver != taker && !tracker_.is_captured(giver); }

  template <class MayUse>
  block_id take_run(list_id list, request const& r, list_id from, MayUse may_use) noexcept {
    block_heap::run const found = heap_.find_run(from, r, may_use);
    if (found.first == 0) return 0;
    return heap_.take(heap_.merge(found, list, tracker_.on_free(list)), r);
  }
  static constexpr std::size_t most_in_vain = 16;

  question_interval questions_;  // for what others have at hand
  std::size_t next_gathered_ = 0, next_asked_ = 0;
};

}  // namespace weir::detail
