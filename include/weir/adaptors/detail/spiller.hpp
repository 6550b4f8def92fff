#pragma once
// All blocks of one `spill` layer: where each of them is, who uses it, and which goes to the host next.

#include <weir/adaptors/detail/spill_copies.hpp>
#include <weir/adaptors/detail/stream_marks.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/thread_id.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {

/// What a `spill` layer knows about its handles at one moment. Bytes, but for the counts.
struct spill_numbers {
  std::size_t handles = 0;        ///< how many there are
  std::size_t pinned = 0;         ///< how many of them are pinned
  std::size_t device_bytes = 0;   ///< of handles whose contents are on the device, or on their way
  std::size_t pinned_bytes = 0;   ///< of those, what is pinned and cannot be spilled
  std::size_t host_bytes = 0;     ///< of handles that are spilled
  std::uint64_t spills = 0;       ///< how many times a handle went to the host
  std::uint64_t returns = 0;      ///< how many times one came back
  std::uint64_t moved_bytes = 0;  ///< by all of these together
  std::uint64_t not_spilled = 0;  ///< how many times one could not go: the host had no room, or CUDA failed
};

namespace detail {

/// Decides which blocks move. Thread-safe. Its lock is held while streams are made to wait for events, never while
/// memory is taken, given back or copied. A thread that wants a block which another one moves just now waits until that
/// one has queued the copy; but not inside of such a move, where a stack may call the program (a reclaimer that drops
/// handles): that might be for itself.
class spiller {
  /// While it lives, this thread brings a block back, of whatever layer: two such threads may want each other's.
  class returning {
   public:
    returning() noexcept { ++depth_; }
    ~returning() { --depth_; }
    returning(returning const&) = delete;
    returning& operator=(returning const&) = delete;

    static bool is_set() noexcept { return depth_ != 0; }

   private:
    [[gnu::visibility("default")]] inline static constinit thread_local unsigned depth_ = 0;
  };

 public:
  using block = std::list<spill_block>::iterator;
  class pin;
  /// What one request knows of moves so far.
  struct progress {
    std::uint64_t made = 0;                   ///< how often there was room, when it last asked the memory
    std::size_t too_large = ~std::size_t{0};  ///< bytes that could not go: it tries no block as large any more
  };

  /// `memory` is the adaptor itself: what is asked of it may spill other blocks.
  spiller(basic_any_ref<false, false> memory, any_host_ref host, int device) noexcept : copies_(memory, host, device) {}
  spiller(spiller const&) = delete;
  spiller& operator=(spiller const&) = delete;

  /// A block with undefined contents. Throws what the memory throws, `cuda_error`, `std::invalid_argument` in host
  /// order and `std::logic_error` where `stream` is being captured.
  block add(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    life_.settle();
    require_stream(stream, "a handle was to be made");
    std::list<spill_block> made;
    made.emplace_back(bytes, alignment);
    copies_.allocate(made.front(), stream);
    std::lock_guard const lock(mutex_);
    block const b = made.begin();
    b->uses.back().number = ++marks_set_;
    others_.splice(others_.end(), made);
    file(b);
    ++numbers_.handles;
    numbers_.device_bytes += bytes;
    return b;
  }

  /// Frees a block in stream order, wherever it is. One that is on its way to the host is freed by who moves it: that
  /// may be this thread, or wait for what this one holds. One that comes back is about to be pinned.
  void drop(block b) noexcept {
    if (life_.is_exiting()) return;
    std::list<spill_block> gone;
    {
      std::lock_guard const lock(mutex_);
      if (is_on_its_way_out(*b)) return void(b->dropped = true);
      if (b->pins == 0 && b->at != place::moving) {
        count_off(*b);
        gone.splice(gone.end(), list_of(b), b);
      }
    }
    if (!gone.empty()) return copies_.free(gone.front());
    report_misuse("weir: spill: a handle to " + format_bytes(b->bytes) +
                  " ended while it was pinned, or about to be; the pin has to end first. Its memory is kept");
  }

  /// Spills idle blocks, the longest unused first, until they make `bytes` together: a memory that has just refused so
  /// much seldom has it after less, and each refusal may let a pool wait on the host. One that cannot go stays, and
  /// smaller ones are tried. False if nothing was spilled since `seen`, by other threads neither: to ask the memory
  /// again is then of no use. Waits while other threads queue copies to the host, but not for the copies, and not
  /// inside of such a copy of this thread's. Spills nothing for a stream that is being captured.
  bool make_room(stream_ref stream, std::size_t bytes, progress& seen) noexcept {
    if (is_for_capture(stream)) return false;
    relaxed_capture calls;
    calls.enter();
    std::unique_lock lock(mutex_);
    spill_oldest(lock, bytes, seen.too_large);
    if (!is_sending_out()) still_.wait(lock, [&] { return spilling_ == 0 || room_made_ != seen.made; });
    bool const changed = room_made_ != seen.made;
    seen.made = room_made_;
    return changed;
  }

  bool is_on_device(block b) const noexcept {
    std::lock_guard const lock(mutex_);
    return b->at == place::device;
  }
  spill_numbers numbers() const noexcept {
    std::lock_guard const lock(mutex_);
    return numbers_;
  }

 private:
  using place = spill_block::place;

  static void require_stream(stream_ref stream, char const* what) {
    if (stream.is_host_order())
      throw std::invalid_argument(std::string("weir: spill: ") + what +
                                  " in host order; contents move in the order of a stream, so name one");
    if (may_be_captured(stream))
      throw std::logic_error(std::string("weir: spill: ") + what +
                             " while its stream is being captured; a graph can neither bring contents back nor keep "
                             "them there: pin before the capture, and hold the pin as long as the graph may run");
  }

  std::list<spill_block>& list_of(block b) noexcept { return b->is_idle ? idle_ : others_; }
  /// Puts a block into the list that it belongs to now, as the one that was used last.
  void file(block b) noexcept {
    auto& from = list_of(b);
    b->is_idle = b->at == place::device && b->pins == 0 && !b->kept;
    list_of(b).splice(list_of(b).end(), from, b);
  }
  static bool is_on_its_way_out(spill_block const& b) noexcept { return b.at == place::moving && b.is_idle; }
  /// Whether the calling thread is inside of a copy to the host, called by the host's stack. With the lock.
  bool is_sending_out() const noexcept {
    if (spilling_ == 0) return false;
    std::size_t sent = 0;
    for (spill_block const& each : idle_) sent += each.at == place::moving && each.mover == thread_id();
    return sent != 0;
  }
  /// A block that is about to go, and is still.
  void count_off(spill_block const& b) noexcept {
    (b.at == place::host ? numbers_.host_bytes : numbers_.device_bytes) -= b.bytes;
    --numbers_.handles;
  }

  /// Spills idle blocks below `too_large` until they make `bytes`; where one cannot go, that is its size from then on.
  /// Called with the lock, which is let go while one is copied. Looks at each block once: one on its way keeps its
  /// place among the idle ones, which those that were refused have still.
  void spill_oldest(std::unique_lock<std::mutex>& lock, std::size_t bytes, std::size_t& too_large) noexcept {
    std::size_t made = 0;
    for (block b = idle_.begin(); made < bytes && b != idle_.end();) {
      if (b->bytes >= too_large || b->at == place::moving) {
        ++b;
        continue;
      }
      bool const spilled = send_out(lock, b);
      block const tried = b++;
      bool const is_room = spilled || (tried->dropped && !tried->kept);
      if (is_room) {
        made += tried->bytes;
        ++room_made_;
      } else {
        too_large = tried->bytes;
      }
      if (tried->dropped)
        end_move_of_dropped(tried, spilled);
      else
        moved(tried, spilled ? place::host : place::device, spilled);
    }
  }
  /// False where it cannot go. Frees it if its handle ended meanwhile. Called with the lock, which is let go.
  bool send_out(std::unique_lock<std::mutex>& lock, block b) noexcept {
    b->at = place::moving;
    b->mover = thread_id();
    ++spilling_;
    lock.unlock();
    bool const spilled = copies_.copy_out(*b);
    lock.lock();
    if (b->dropped) {
      lock.unlock();
      copies_.free(*b);
      lock.lock();
    }
    --spilling_;
    ++(spilled ? numbers_.spills : numbers_.not_spilled);
    return spilled;
  }
  /// It is free, and was on the device for all who asked.
  void end_move_of_dropped(block b, bool spilled) noexcept {
    if (spilled) numbers_.moved_bytes += b->bytes;
    b->at = place::device;
    count_off(*b);
    idle_.erase(b);
    still_.notify_all();
  }

  /// Called with the lock, which is let go meanwhile. Throws as `add`; the contents then stay on the host.
  void bring_back(std::unique_lock<std::mutex>& lock, block b, stream_ref stream) {
    returning const inside;
    b->at = place::moving;
    lock.unlock();
    try {
      copies_.copy_in(*b, stream);
    } catch (...) {
      lock.lock();
      moved(b, place::host, false);
      throw;
    }
    lock.lock();
    moved(b, place::device, true);
    ++numbers_.returns;
  }

  /// A block is still again; `changed`: elsewhere than before.
  void moved(block b, place to, bool changed) noexcept {
    b->at = to;
    if (changed || b->kept) file(b);
    still_.notify_all();
    if (!changed) return;
    b->uses.back().number = ++marks_set_;
    numbers_.moved_bytes += b->bytes;
    (to == place::host ? numbers_.host_bytes : numbers_.device_bytes) += b->bytes;
    (to == place::host ? numbers_.device_bytes : numbers_.host_bytes) -= b->bytes;
  }

  // ---- pins

  /// Throws where that might be for ever.
  void wait_until_still(std::unique_lock<std::mutex>& lock, block b) {
    if (b->at != place::moving) return;
    if (is_sending_out())
      throw std::logic_error(
          "weir: spill: a handle was to be pinned while it moves, inside of a copy to the host, as by a reclaimer of "
          "the host's stack; it may wait for that copy: pin another one, or elsewhere");
    if (!is_on_its_way_out(*b) && returning::is_set())
      throw std::logic_error(
          "weir: spill: a handle was to be pinned while it comes back, inside of a return to the device, as by a "
          "reclaimer below; it may wait for that return: pin another one, or elsewhere");
    still_.wait(lock, [&] { return b->at != place::moving; });
  }

  void* begin_use(block b, stream_ref stream, std::uint64_t& comes_after) {
    require_stream(stream, "a handle was to be pinned");
    std::unique_lock lock(mutex_);
    wait_until_still(lock, b);
    if (b->at == place::host) bring_back(lock, b, stream);
    hold_back(stream, b->uses);
    comes_after = marks_set_;
    if (b->pins++ == 0) {
      ++numbers_.pinned;
      numbers_.pinned_bytes += b->bytes;
    }
    file(b);
    return b->on_device;
  }

  /// Leaves `mark` behind, in place of those that the pin's stream has waited for.
  void end_use(block b, stream_ref stream, std::uint64_t came_after, stream_marks& mark) noexcept {
    if (life_.is_exiting()) return;
    bool const captured = may_be_captured(stream);
    if (captured)
      report_misuse("weir: spill: a pin of " + format_bytes(b->bytes) +
                    " ended while its stream was being captured; it has to be held as long as the graph may run. Its "
                    "memory is kept");
    bool const known = !captured && set_mark(mark.front(), stream, copies_.device());
    std::lock_guard const lock(mutex_);
    stream_marks covered;
    while (known && !b->uses.empty() && b->uses.front().number <= came_after)
      covered.splice(covered.end(), b->uses, b->uses.begin());
    copies_.marks().give_back(covered);
    mark.front().number = ++marks_set_;
    b->uses.splice(b->uses.end(), mark);
    b->kept = b->kept || !known;
    if (--b->pins == 0) {
      --numbers_.pinned;
      numbers_.pinned_bytes -= b->bytes;
    }
    file(b);
  }

  process_exit life_;
  spill_copies copies_;

  mutable std::mutex mutex_;
  std::condition_variable still_;  // a block that moved has arrived, or stays
  std::list<spill_block> idle_;    // can be spilled, or on their way to the host; the longest unused first
  std::list<spill_block> others_;  // pinned, spilled, on their way back or kept
  std::size_t spilling_ = 0;       // how many move to the host just now
  std::uint64_t room_made_ = 0;    // how many times one made room: it went, or ended on its way
  std::uint64_t marks_set_ = 0;    // so far: the number of the latest
  spill_numbers numbers_;
};

/// Keeps a block on the device while it lives: behind all uses that ended before, and before what waits for its own
/// end.
class spiller::pin {
 public:
  /// Of nothing.
  pin() = default;
  /// Throws as `add`, and what comes of bringing contents back.
  pin(spiller& owner, block b, stream_ref stream)
      : owner_(&owner), block_(b), stream_(stream), end_(owner.copies_.marks().take()) {
    data_ = owner.begin_use(b, stream, comes_after_);
  }
  ~pin() {
    if (owner_ != nullptr) owner_->end_use(block_, stream_, comes_after_, end_);
  }
  pin(pin&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        block_(other.block_),
        stream_(other.stream_),
        comes_after_(other.comes_after_),
        end_(std::move(other.end_)),
        data_(std::exchange(other.data_, nullptr)) {}
  pin& operator=(pin&&) = delete;

  void* data() const noexcept { return data_; }

 private:
  spiller* owner_ = nullptr;
  block block_;
  stream_ref stream_;
  std::uint64_t comes_after_ = 0;  // the number of the last mark that its stream has waited for
  stream_marks end_;               // taken at the beginning, so that nothing can be missing at the end
  void* data_ = nullptr;
};

}  // namespace detail
}  // namespace weir
