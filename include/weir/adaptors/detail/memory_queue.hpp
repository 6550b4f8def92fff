#pragma once
// Threads that wait for memory: who asks next after a free, and who may not pass whom.

#include <weir/support/atomic.hpp>
#include <weir/support/thread_id.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace weir::detail {

/// Requests in the order in which they came. A free gives the turn to the one in front, if that is not a request of the
/// thread that frees; who used its turn in vain gives it to the next, and so does who leaves. When the one in front
/// loses patience it keeps the turn to itself, and the queue is closed: who comes queues up without asking.
/// Thread-safe; places are on their threads' stacks, so that nothing here takes host memory.
class memory_queue {
 public:
  using clock = std::chrono::steady_clock;

  /// How many wait. One load.
  std::size_t size() const noexcept { return waiting_.load(); }
  /// Nobody may ask but the one in front. One load.
  bool is_closed() const noexcept { return closed_.load(); }

  /// True if the calling thread is inside of a request that waits: what it asks for meanwhile, as a reclaimer may,
  /// would wait for itself.
  bool has_one_of_this_thread() noexcept {
    if (size() == 0) return false;
    std::lock_guard const lock(mutex_);
    place const* at = first_;
    while (at != nullptr && at->thread_ != thread_id()) at = at->after_;
    return at != nullptr;
  }

  /// After memory was given back: one load, while nobody waits. Whoever begins to wait is counted, and then asks once
  /// more: either that sees the memory, or this sees that one waits. That takes an order between what gave the memory
  /// back and this load, which a lock or an atomic operation below and `load_ordered` make on all processors.
  void on_free() noexcept {
    if (waiting_.load_ordered() != 0) [[unlikely]]
      give_turn_to_first();
  }

  /// One request in the queue, while it lives.
  class place {
   public:
    /// Waits for `most` in all. Once in front it closes the queue if it has waited for `patience`.
    place(memory_queue& queue, clock::duration patience, clock::duration most)
        : queue_(queue), closes_(clock::now() + patience), end_(clock::now() + most) {
      std::lock_guard const lock(queue_.mutex_);
      before_ = queue_.last_;
      (before_ == nullptr ? queue_.first_ : before_->after_) = this;
      queue_.last_ = this;
      queue_.waiting_.add_ordered(1);
      has_turn_ = !queue_.is_closed();  // it is counted only now, and may have missed a free
    }
    ~place() {
      std::lock_guard const lock(queue_.mutex_);
      (before_ == nullptr ? queue_.first_ : before_->after_) = after_;
      (after_ == nullptr ? queue_.last_ : after_->before_) = before_;
      queue_.waiting_.subtract(1);
      if (before_ == nullptr) queue_.closed_.store_release(false);
      pass_turn_on();
    }
    place(place const&) = delete;
    place& operator=(place const&) = delete;

    /// Gives the turn that was used to the next, and waits for another one. False if the time is over: then the caller
    /// asks for the last time.
    bool wait_for_turn() {
      std::unique_lock lock(queue_.mutex_);
      if (has_used_turn_) pass_turn_on();
      has_used_turn_ = true;
      while (!has_turn_) {
        if (may_close() && clock::now() >= closes_) queue_.closed_.store_release(true);
        auto const until = may_close() && closes_ < end_ ? closes_ : end_;
        if (changed_.wait_until(lock, until) == std::cv_status::timeout && clock::now() >= end_) return false;
      }
      has_turn_ = false;
      return clock::now() < end_;
    }

   private:
    friend class memory_queue;

    /// In front, and the queue is open.
    bool may_close() const noexcept { return before_ == nullptr && !queue_.is_closed(); }
    void take_turn() noexcept {
      has_turn_ = true;
      changed_.notify_one();
    }
    void pass_turn_on() noexcept {
      if (after_ != nullptr && !queue_.is_closed()) after_->take_turn();
    }

    memory_queue& queue_;
    std::uint64_t const thread_ = thread_id();
    clock::time_point closes_, end_;
    place* before_ = nullptr;
    place* after_ = nullptr;
    bool has_turn_ = false, has_used_turn_ = false;
    std::condition_variable changed_;
  };

 private:
  [[gnu::noinline, gnu::cold]] void give_turn_to_first() noexcept {
    std::lock_guard const lock(mutex_);
    // A thread that waits and frees meanwhile, as a reclaimer may, has nothing to wait for in its own frees.
    place* next = first_;
    while (next != nullptr && next->thread_ == thread_id()) next = is_closed() ? nullptr : next->after_;
    if (next != nullptr) next->take_turn();
  }

  std::mutex mutex_;
  place* first_ = nullptr;
  place* last_ = nullptr;
  atomic<std::size_t> waiting_;
  atomic<bool> closed_;
};

}  // namespace weir::detail
