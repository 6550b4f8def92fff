#pragma once
// Which freed block a request may have: the pool's blocks and its streams' clock, brought together.

#include <weir/blocks/block_store.hpp>
#include <weir/core/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_clock.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace weir::detail {

/// Finds memory among what a pool holds, from cheapest to dearest: no call, a query, a wait between streams. Never
/// takes more from the upstream and never blocks. Guarded by the pool's lock.
class pool_reuse {
 public:
  using lane_number = stream_clock::lane_number;
  using request = block_store::request;
  static constexpr lane_number shared = block_store::shared;

  pool_reuse(int device, bool streams_last) : clock_(device, streams_last) {}

  block_store& store() noexcept { return store_; }
  block_store const& store() const noexcept { return store_; }
  stream_clock& clock() noexcept { return clock_; }
  stream_clock const& clock() const noexcept { return clock_; }

  /// The lanes that a search looks at: all of them where there are few. Where there are many it looks at some, and the
  /// next search at others, so that what a call costs does not grow with the number of streams.
  class lanes {
   public:
    template <class F>
    void for_each(F f) const {
      for (std::size_t i = 0; i < count_; ++i) f(at(i));
    }
    /// The first result of `f(lane)` that is not 0, or 0.
    template <class F>
    block_id first_of(F f) const {
      block_id found = 0;
      for (std::size_t i = 0; i < count_ && found == 0; ++i) found = f(at(i));
      return found;
    }
    bool are_all() const noexcept { return count_ == of_; }

   private:
    friend pool_reuse;
    lanes(std::size_t first, std::size_t count, std::size_t of) noexcept : first_(first), count_(count), of_(of) {}
    lane_number at(std::size_t i) const noexcept { return static_cast<lane_number>(1 + (first_ + i) % of_); }

    std::size_t first_, count_, of_;
  };
  lanes all_lanes() const noexcept { return {0, clock_.lane_count() - 1, clock_.lane_count() - 1}; }
  lanes next_lanes() noexcept {
    std::size_t const all = clock_.lane_count() - 1;
    if (all <= lanes_a_search) return all_lanes();
    lanes const some(next_lane_ % all, lanes_a_search, all);
    next_lane_ = some.first_ + lanes_a_search;
    return some;
  }

  /// Room for one allocation, and for frees on a few new streams; may throw `std::bad_alloc` and then changed nothing.
  void reserve() {
    if (clock_.is_short_of_lanes()) [[unlikely]]
      add_lanes();
    store_.reserve();
  }
  /// The same where `lane` is about to look at what others freed: from then on block by block.
  void reserve_to_search(lane_number lane) {
    reserve();
    if (clock_.open_count() > (lane == shared ? 0u : 1u)) store_.keep_ages();
  }
  /// From now on streams that are not done with all they freed can be told what they are done with, if there is room.
  void try_to_keep_ages() noexcept try {
    store_.keep_ages();
  } catch (std::bad_alloc const&) {  // then a stream's memory is shared when all of its work is done
  }

  /// A block that `lane` may use without asking anybody: its own, or one whose work is done, whichever fits more
  /// tightly. No CUDA call. Or 0.
  block_id take_ready(lane_number lane, request const& r) noexcept {
    block_id const own = lane == shared ? 0 : store_.find(lane, r);
    if (own != 0 && store_.blocks()[own].size == r.size) [[likely]]
      return store_.take(own, r);
    block_id const done = store_.find(shared, r);
    if (own != 0 && (done == 0 || store_.blocks()[own].size < store_.blocks()[done].size)) return store_.take(own, r);
    return done == 0 ? 0 : store_.take_extending(lane, done, r);
  }

  /// A block that `lane` freed itself, whole: nothing is taken from others. Or 0.
  block_id take_own(lane_number lane, request const& r) noexcept {
    block_id id = store_.find(lane, r);
    if (id == 0) id = store_.find_hidden(lane, r);
    return id == 0 ? 0 : store_.take(id, r);
  }

  /// The same after asking CUDA what is done by now, and what `lane` has already waited for. Never makes anyone wait.
  block_id take_done(lane_number lane, request const& r, lanes const& looked_at) noexcept {
    poll(looked_at, lane);
    if (block_id const id = take_ready(lane, r); id != 0) return id;
    if (block_id const id = store_.find_hidden(shared, r); id != 0) return store_.take(id, r);
    if (lane == shared) return 0;
    block_id const known = looked_at.first_of([&](lane_number giver) {
      block_id const id = may_give(giver, lane) ? store_.find(giver, r) : 0;
      return id != 0 && clock_.available(lane, giver, store_.ticket(id)) ? id : 0;
    });
    if (known != 0) return store_.take(known, r);
    return take_run(lane, r, lane, [&](block_id id) {
      lane_number const whose = store_.blocks()[id].lane;
      return whose == shared || clock_.available(lane, whose, store_.ticket(id));
    });
  }

  /// A block that `lane` may use once its stream waits for others, on the device: the wait is as narrow as the block's
  /// own work allows. First a block of one other stream, then neighbours of several. 0 in host order: a host cannot
  /// queue.
  block_id take_waiting(lane_number lane, stream_ref stream, request const& r, lanes const& looked_at) noexcept {
    if (lane == shared || clock_.is_captured(lane)) return 0;
    block_id const waited_for = looked_at.first_of([&](lane_number giver) {
      block_id const id = may_give(giver, lane) ? store_.find(giver, r) : 0;
      return id != 0 && clock_.join(lane, stream, giver, store_.ticket(id)) ? id : 0;
    });
    if (waited_for != 0) return store_.take(waited_for, r);
    return looked_at.first_of([&](lane_number from) -> block_id {
      if (clock_.is_captured(from)) return 0;
      auto const can_wait_for = [&](block_id id) { return !clock_.is_captured(store_.blocks()[id].lane); };
      block_store::run const found = store_.find_run(from, r, can_wait_for);
      if (found.first == 0) return 0;
      bool joined = true;
      store_.for_each_in(found, [&](block_id id) {
        lane_number const whose = store_.blocks()[id].lane;
        joined = joined && (whose == shared || clock_.join(lane, stream, whose, store_.ticket(id)));
      });
      return joined ? store_.take(store_.merge(found, lane, clock_.on_free(lane)), r) : 0;
    });
  }

  /// True if the segment that `id` is part of is idle once work that is queued now is done.
  bool will_be_idle(block_id id) const noexcept {
    return store_.is_all_free(id, [&](lane_number lane) { return !clock_.is_captured(lane); });
  }

  /// Takes back a block freed on `lane` (`shared`: in host order) and returns the free block it is part of now.
  block_id give(block_id id, lane_number lane) noexcept {
    return store_.give(id, lane, lane == shared ? 0 : clock_.on_free(lane));
  }

  /// Asks CUDA, without waiting, which freed blocks are done, and shares those. Forgets streams that left nothing here,
  /// except `keep`.
  void poll(lanes const& looked_at, lane_number keep = shared) noexcept {
    relaxed_capture calls;
    looked_at.for_each([&](lane_number lane) {
      if (!clock_.is_open(lane)) return;
      if (store_.free_bytes(lane) != 0) store_.complete(lane, clock_.poll(lane, calls));
      if (store_.free_bytes(lane) == 0 && lane != keep) clock_.retire(lane);
    });
  }

  /// Waits for each stream's frees in turn, without the lock.
  template <class Lock>
  void synchronize(Lock& lock) noexcept {
    relaxed_capture calls;
    for (lane_number lane = 1; lane < clock_.lane_count(); ++lane) {
      if (!clock_.is_open(lane) || clock_.is_captured(lane) || store_.free_bytes(lane) == 0) continue;
      calls.enter();
      cudaEvent_t const event = clock_.begin_wait(lane);
      auto const upto = clock_.issued(lane);
      int const device = clock_.device_of(lane);
      if (event != nullptr || clock_.may_wait_for_device()) {
        lock.unlock();
        // A stream that left no event behind can only be waited for together with its device.
        bool const done = (event != nullptr && succeeded(cudaEventSynchronize(event))) || wait_for_device(device);
        lock.lock();
        if (done) clock_.complete(lane, upto);
      }
      clock_.end_wait(lane);
    }
    poll(all_lanes());
  }

  /// The live block that was allocated so, or 0.
  block_id find_live(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    block_id const id = store_.find_live(reinterpret_cast<std::uintptr_t>(p));
    block const& b = store_.blocks()[id];
    return id != 0 && b.requested() == bytes && std::size_t{1} << b.alignment_log() == alignment ? id : 0;
  }

  /// The lane to free into; `shared` in host order, or if there is no room even without the streams that ended.
  lane_number lane_of_free(std::uint64_t key, stream_ref stream) noexcept {
    lane_number const lane = clock_.lane_of(key, stream);
    if (lane != shared || key == 0) [[likely]]
      return lane;
    poll(next_lanes());
    return clock_.lane_of(key, stream);
  }

  /// A capturing stream goes by this key: it has a lane that nobody else takes from. May throw `std::bad_alloc`.
  std::uint64_t key_in_capture(stream_identity const& who) {
    reserve();
    lane_number const lane = clock_.captured_lane(who.capture, who.key);
    if (lane == shared) throw std::bad_alloc();
    return clock_.key(lane);
  }
  /// The capture that a live block is kept for when `who` frees it: the one it was allocated in, else that of `who`.
  std::uint64_t owner(block_id id, stream_identity const& who) const noexcept {
    lane_number const from = store_.blocks()[id].captured;
    return from != 0 ? clock_.capture_in(from) : who.capture;
  }
  /// Takes a live block back that was allocated in a capture, or that `who` frees in one: only the same stream may have
  /// it again, only in the same capture, and only if it is from there. False if there is no room to remember that: the
  /// block stays live for good.
  bool give_captured(block_id id, stream_identity const& who) noexcept {
    lane_number const from = store_.blocks()[id].captured;
    std::uint64_t const of = owner(id, who);
    lane_number const lane = clock_.captured_lane(of, from != 0 && of == who.capture ? who.key : 0);
    if (lane == shared) return false;
    store_.set_captured(id, 0);
    give(id, lane);
    return true;
  }
  /// The graph of a capture is gone (0: of all captures): its memory is everyone's. Returns how many bytes that is.
  std::size_t release_captured(std::uint64_t capture) noexcept {
    std::size_t bytes = 0;
    for_each_captured([&](lane_number lane) {
      if (capture != 0 && clock_.capture_in(lane) != capture) return;
      bytes += store_.free_bytes(lane);
      store_.complete(lane, clock_.end_captured(lane));
    });
    if (!clock_.has_captured()) return 0;
    // What is live is from now on like other blocks. Looks at all.
    store_.forget_captured([&](lane_number lane) { return !clock_.is_captured(lane); });
    return bytes;
  }
  /// What is kept for a capture; 0: for all.
  std::size_t captured_bytes(std::uint64_t capture = 0) const noexcept {
    std::size_t bytes = 0;
    for_each_captured([&](lane_number lane) {
      if (capture == 0 || clock_.capture_in(lane) == capture) bytes += store_.free_bytes(lane);
    });
    return bytes;
  }

  /// What is wrong with a deallocation, in words; `inside`: the pointer lies in a segment.
  std::string misuse(void* p, std::size_t bytes, std::size_t alignment, bool inside) {
    std::string const text = "deallocate of " + hex(p) + " with " + std::to_string(bytes) + " B aligned to " +
                             std::to_string(alignment) + ": ";
    if (block_id const id = store_.find_live(reinterpret_cast<std::uintptr_t>(p)); id != 0)
      return text + "it was allocated with " + std::to_string(store_.blocks()[id].requested()) + " B aligned to " +
             std::to_string(std::size_t{1} << store_.blocks()[id].alignment_log()) + "; give back the same";
    if (inside)
      return text +
             "it lies in this pool's memory but no live block starts there (freed twice, or not the pointer that "
             "allocate returned)";
    return text + "it is not this pool's memory (allocated by another resource, or by CUDA directly)";
  }

 private:
  bool may_give(lane_number giver, lane_number taker) const noexcept {
    return giver != taker && store_.free_bytes(giver) != 0 && !clock_.is_captured(giver);
  }

  template <class F>
  void for_each_captured(F f) const {
    if (!clock_.has_captured()) return;
    for (lane_number lane = 1; lane < clock_.lane_count(); ++lane)
      if (clock_.is_captured(lane)) f(lane);
  }

  void add_lanes() {
    poll(next_lanes());  // streams that ended make room
    if (!clock_.is_short_of_lanes()) return;
    store_.reserve_lanes(clock_.lane_count() + clock_.lanes_to_add());  // first: no lane may be without its blocks
    clock_.add_lanes();
  }

  template <class MayUse>
  block_id take_run(lane_number lane, request const& r, lane_number from, MayUse may_use) noexcept {
    block_store::run const found = store_.find_run(from, r, may_use);
    if (found.first == 0) return 0;
    return store_.take(store_.merge(found, lane, clock_.on_free(lane)), r);
  }

  static constexpr std::size_t lanes_a_search = 64;

  block_store store_;
  stream_clock clock_;
  std::size_t next_lane_ = 0;
};

}  // namespace weir::detail
