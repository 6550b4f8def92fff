#pragma once
// The blocks of a pool, and the streams that freed them: whose each free one is, and what is done by now.

#include <weir/core/shown_memory.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_list.hpp>
#include <weir/pool/heap/growable_heap.hpp>
#include <weir/pool/order/joint_lists.hpp>
#include <weir/pool/order/stream_tracker.hpp>
#include <weir/pool/private_pool.hpp>
#include <weir/pool/searched_lists.hpp>
#include <weir/pool/small_blocks.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace weir::detail {

/// What a pool holds, and a free list for each stream that freed some of it, for each capture, and for what is done.
/// Asks CUDA what is done, and forgets streams that left nothing here. Who has which block next is for
/// `stream_ordered_heap`, of which this is the part that takes nothing and, but for captures, gives nothing. Blocks
/// only in `synchronize`, without the lock. Guarded by the pool's lock.
class ordered_blocks {
 public:
  using request = block_heap::request;

  /// Adds a segment, free for everyone; returns its first block, which names the segment from now on. May throw
  /// `std::bad_alloc`.
  block_id add_segment(std::uintptr_t address, units size) { return heap_.add_segment(address, size); }
  /// Forgets an idle segment.
  void remove_segment(block_id segment) noexcept { heap_.remove_segment(segment); }
  /// True if all of a segment is free and its work done.
  bool is_idle(block_id segment) const noexcept { return heap_.is_idle(segment); }
  /// True if some of a segment is free, but not known to be done.
  bool is_pending(block_id segment) const noexcept { return heap_.is_pending(segment); }
  /// The same, but what was freed in a capture does not count: its work is not there to be waited for.
  bool is_pending_outside_captures(block_id segment) const noexcept {
    return heap_.is_pending(segment, [&](list_id list) { return !tracker_.is_captured(list); });
  }
  /// True if the segment that `id` is part of is idle once work that is queued now is done.
  bool will_be_idle(block_id id) const noexcept {
    return heap_.is_all_free(id, [&](list_id list) { return !tracker_.is_captured(list); });
  }

  /// A block that was taken or found.
  block const& operator[](block_id id) const noexcept { return heap_.blocks()[id]; }

  /// The free lists that a search looks at: all of them where there are few streams. Where there are many it looks at
  /// some, and the next search at others, so that what a call costs does not grow with the number of streams.
  using lists = searched_lists;
  lists all_lists() const noexcept { return lists(tracker_.list_count() - 1); }
  lists next_lists() noexcept {
    std::size_t const all = tracker_.list_count() - 1;
    if (has_few_streams()) return all_lists();
    std::size_t const first = next_list_ % all;
    next_list_ = first + lists_a_search;
    return {first, lists_a_search, all};
  }

  /// Room for one allocation, and for frees on a few new streams; may throw `std::bad_alloc` and then changed nothing.
  [[gnu::always_inline]] void reserve() {
    if (tracker_.is_short_of_lists()) [[unlikely]]
      add_lists();
    small_.reserve_blocks();
  }
  /// Room for the lists of so many streams, and of what they use together, where there is some.
  void try_to_reserve_lists(std::size_t streams) noexcept try {
    std::size_t const wanted = 1 + joint_lists::lists_for(streams);  // the last one is for the trailing stream
    if (!tracker_.has_spare(wanted) && !has_few_lists()) poll(next_lists());
    while (!tracker_.has_spare(wanted) && tracker_.lists_to_add() != 0) add_room_for_lists();
  } catch (std::bad_alloc const&) {  // then frees on streams not seen before wait for their work
  }
  /// The list of what is freed after the work so far of all these, where `common_list` had no room; `shared` if CUDA
  /// fails, or one of them is being captured.
  list_id list_behind(stream_ref stream, stream_list others) noexcept {
    list_id list = shared;
    bool follows = true;
    auto const add = [&](stream_ref user) {
      if (!follows || user.is_host_order()) return;
      list = tracker_.list_behind(user);
      follows = list != shared;
    };
    add(stream);
    for (stream_ref const other : others) add(other);
    return list;
  }
  /// From now on streams that are not done with all they freed can be told what they are done with.
  void keep_ages() { heap_.keep_ages(); }
  /// The same if there is room.
  void try_to_keep_ages() noexcept try {
    heap_.keep_ages();
  } catch (std::bad_alloc const&) {  // then a stream's memory is shared when all of its work is done
  }

  /// Before `who`, which takes part in a capture, takes: may throw `std::bad_alloc`.
  void enter_capture(stream_identity const& who) {
    reserve();
    private_.enter(who);
  }
  /// Afterwards: the block belongs to the capture.
  void keep_for_capture(block_id id, stream_identity const& who) noexcept { private_.keep(id, list_of(who)); }
  /// As `private_pool` does.
  capture_key owner(block_id id, stream_identity const& who) const noexcept { return private_.owner(id, who); }
  bool give_captured(block_id id, stream_identity const& who) noexcept { return private_.give(id, who); }
  std::size_t release_captured(capture_key capture) noexcept { return private_.release(capture); }

  /// Asks CUDA, without waiting, which freed blocks are done, and shares those. Forgets streams that left nothing here.
  void poll(lists const& looked_at) noexcept { poll(looked_at, shared); }

  /// Waits for each stream's frees in turn, without the lock. False if CUDA could not wait for some of them.
  template <class Lock>
  bool synchronize(Lock& lock) noexcept {
    bool all_done = true;
    relaxed_capture calls;
    all_lists().for_each([&](list_id list) {
      if (!tracker_.is_open(list) || tracker_.is_captured(list) || tracker_.is_joint(list)) return;
      bool const is_needed = heap_.free_bytes(list) != 0 || tracker_.is_kept_open(list) || small_.needs(list);
      if (tracker_.is_done(list) || !is_needed) return;
      calls.enter();
      auto const upto = tracker_.issued(list);
      bool done = true;
      while (done && !tracker_.is_done(list, upto)) {
        auto const behind = tracker_.begin_wait(list, upto);
        done = behind.event != nullptr && lock.unlocked([&] { return succeeded(cudaEventSynchronize(behind.event)); });
        if (!done && tracker_.may_wait_for_device(list, behind)) {
          int const device = tracker_.device_of(list);
          done = lock.unlocked([&] { return wait_for_device(device); });
        }
        if (done) tracker_.complete(list, behind.upto);
        tracker_.end_wait(list);
      }
      all_done = all_done && done;
    });
    poll(all_lists());
    return all_done;
  }

  /// Calls `f(shown_block)` for each piece of a segment, from its first to its last.
  template <class F>
  void for_each_shown(block_id segment, F f) const {
    for (block_id id = segment; id != 0; id = heap_.blocks()[id].right) {
      bool begins = id == segment;
      auto const show = [&](shown_block piece) {
        piece.begins_segment = std::exchange(begins, false);
        f(piece);
      };
      if (!small_.for_each_shown(id, show)) show(shown(heap_.blocks()[id]));
    }
  }

  /// Free bytes that everyone may have.
  std::size_t free_bytes() const noexcept { return heap_.free_bytes(shared); }
  /// Free bytes in slabs that everyone may have when these go back to the heap. Looks at every slab.
  std::size_t free_bytes_in_slabs() const noexcept { return small_.free_bytes_in_slabs(); }
  /// Free bytes that a stream left behind.
  std::size_t free_bytes(stream_identity const& who) noexcept { return heap_.free_bytes(list_of(who)); }
  /// Free bytes that a capture keeps; `none`: all captures.
  std::size_t captured_bytes(capture_key capture = capture_key::none) const noexcept {
    return private_.free_bytes(capture);
  }
  /// The largest free block, whoever freed it. Looks at every stream.
  std::size_t largest_free() const noexcept { return heap_.largest_free(); }
  std::size_t block_count() const noexcept { return heap_.blocks().used(); }
  /// Streams that are remembered.
  std::size_t stream_count() const noexcept { return tracker_.open_count() - (holes_ == shared ? 0 : 1); }
  std::size_t host_bytes() const noexcept {
    return heap_.host_bytes() + tracker_.host_bytes() + private_.host_bytes() + small_.host_bytes();
  }
  bool is_exiting() const noexcept { return tracker_.is_exiting(); }
  bool is_exiting_or(unsigned count) const noexcept { return tracker_.is_exiting_or(count); }
  /// Checks everything; slow, for tests.
  bool valid() const { return heap_.valid(); }

 protected:
  explicit ordered_blocks(int device) : tracker_(device), private_(heap_, tracker_), small_(heap_, tracker_) {}
  ~ordered_blocks() = default;

  /// The stream's own free list; `shared` in host order, or if there is no room for it.
  [[gnu::always_inline]] list_id list_of(stream_identity const& who) noexcept {
    if (who.capture != capture_key::none) [[unlikely]]
      return private_.find(who);
    return tracker_.list_of(who.key, who.stream);
  }
  /// `list_of`, but `shared` for a stream in a capture.
  list_id own_list(stream_identity const& who) noexcept {
    return who.capture != capture_key::none ? shared : list_of(who);
  }
  /// `list_of` for a free: makes room for a stream by forgetting some that ended.
  [[gnu::always_inline]] list_id list_of_free(stream_identity const& who) noexcept {
    list_id const list = tracker_.list_seen(who.key);
    return list != shared ? list : find_list_of_free(who.stream, who.key);
  }
  [[gnu::noinline]] list_id find_list_of_free(stream_ref stream, stream_key key) noexcept {
    list_id const list = tracker_.list_of(key, stream);
    if (list != shared || key == stream_key::none) [[likely]]
      return list;
    poll(next_lists());
    return tracker_.list_of(key, stream);
  }
  /// The same, but where there is no room for the stream, the list of one that comes after it.
  [[gnu::always_inline]] list_id list_to_give(stream_identity const& who) noexcept {
    list_id const list = list_of_free(who);
    return list != shared || who.key == stream_key::none ? list : miss_list(who.stream, who.key);
  }
  [[gnu::noinline, gnu::cold]] list_id miss_list(stream_ref stream, stream_key key) noexcept {
    list_id const list = tracker_.list_behind(stream);
    tracker_.missed_list(key);
    return list;
  }
  /// `reserve`, and `list_of`, for who is about to look at what others freed: from then on block by block.
  list_id reserve_to_search(stream_identity const& who) {
    reserve();
    list_id const list = list_of(who);
    if (stream_count() > (list == shared ? 0u : 1u)) heap_.keep_ages();
    return list;
  }

  /// As `poll`, but does not forget `keep`.
  void poll(lists const& looked_at, list_id keep) noexcept {
    stream_tracker::questions calls(tracker_);
    looked_at.for_each([&](list_id list) { poll(list, keep, calls); });
  }
  void poll(list_id list, list_id keep, stream_tracker::questions& calls) noexcept {
    if (!tracker_.is_open(list) || tracker_.is_captured(list)) return;
    if (heap_.has_free(list) || small_.awaits(list)) heap_.complete(list, tracker_.poll(list, calls));
    if (heap_.has_free(list) || list == keep || !tracker_.may_retire(list) || small_.needs(list)) return;
    tracker_.retire(list);
    small_.close(list);  // the list may stand for a stream that can end, next time
  }

  /// True if no more lists are open than a search looks at. What others have at hand is looked at only then: where
  /// there are many, most have little, and each look is a cache miss. Those of captures do not count, from which nobody
  /// takes.
  bool has_few_lists() const noexcept { return has_few(tracker_.open_count() - private_.list_count()); }
  /// The same of streams: those that freed blocks together have a list more, but no event of their own. A search looks
  /// at all lists then too.
  bool has_few_streams() const noexcept {
    return has_few(tracker_.open_count() - private_.list_count() - tracker_.joint_count());
  }
  bool has_few(std::size_t open) const noexcept {
    return open <= lists_a_search && tracker_.list_count() <= most_lists;
  }

  static constexpr std::size_t lists_a_search = 64, most_lists = 1024;
  growable_heap heap_;
  stream_tracker tracker_;
  private_pool private_;
  small_blocks small_;
  list_id holes_ = shared;  // of addresses without memory: none until there is a range
  std::size_t next_list_ = 0;

 private:
  void add_lists() {
    // Streams that ended make room, but where most come again there is too little of it.
    if (!tracker_.has_few_lists() && !tracker_.most_come_again()) poll(next_lists());
    if (tracker_.is_short_of_lists()) try {
        add_room_for_lists();
      } catch (std::bad_alloc const&) {
        if (tracker_.lacks_lists()) throw;  // else there is enough for now
      }
  }
  void add_room_for_lists() {
    std::size_t const count = tracker_.list_count() + tracker_.lists_to_add();
    heap_.reserve_lists(count);  // first: no free list may be without its blocks
    private_.reserve(count);
    small_.reserve(count);
    tracker_.add_lists();
  }

  shown_block shown(block const& b) const noexcept {
    shown_block piece{.address = b.address(), .bytes = b.bytes()};
    if (b.is_cached()) {
      piece.state = memory_state::pending;
      piece.stream = tracker_.stream_number(b.list);
    } else if (b.state() == block_state::live) {
      piece.state = memory_state::live;
      piece.requested = b.requested();
    } else if (b.state() == block_state::held || (b.list == holes_ && holes_ != shared)) {
      piece.state = memory_state::unmapped;
    } else if (b.list != shared) {
      piece.state = tracker_.is_captured(b.list) ? memory_state::captured : memory_state::pending;
      piece.stream = tracker_.stream_number(b.list);
    }
    return piece;
  }
};

}  // namespace weir::detail
