#pragma once
// The latest events of a layer, in a ring.

#include <weir/core/shown_events.hpp>
#include <weir/support/biased_lock.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/sampled_clock.hpp>
#include <weir/support/thread_id.hpp>
#include <weir/support/tick_clock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Thread-safe, under one lock that is held for some nanoseconds. Events are in the order of their ticks, as are those
/// of all rings that one thread adds to. Takes host memory when it is made, and none later.
class trace_ring {
 public:
  /// Keeps so many events, 1 or more; with `exact_times` looks at the processor's clock for each, else as often as
  /// `sampled_clock` says. May throw `std::bad_alloc`.
  explicit trace_ring(std::size_t events, bool exact_times = false) : exact_times_(exact_times), slots_(events) {}

  /// Of the calling thread, now.
  [[gnu::always_inline]] void add(trace_action action, void const* p, std::size_t bytes, stream_ref stream,
                                  std::uint32_t call_stack, std::uint32_t report = 0) noexcept {
    if (exact_times_) [[unlikely]]
      thread_clock.look();
    else
      thread_clock.look_if_due();
    tag_name const tag = current_tag();
    auto const thread = static_cast<std::uint32_t>(thread_id());
    biased_section const lock(lock_);
    // Member by member: a whole event that is copied from elsewhere waits for its parts to be stored there.
    shown_event& event = *next_;
    __builtin_prefetch(reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(&event) + ahead), 1);
    event.ticks = latest_ = thread_clock.next(latest_);
    event.address = reinterpret_cast<std::uintptr_t>(p);
    event.bytes = bytes;
    event.stream = stream_number(stream);
    event.tag = tag;
    event.thread = thread;
    event.call_stack = call_stack;
    event.report = report;
    event.action = action;
    if (++next_ == end_) [[unlikely]]
      next_ = slots_.data(), ++rounds_;
  }

  /// How many events there were, those that are forgotten included.
  std::uint64_t count() const noexcept {
    biased_section const lock(lock_);
    return count_now();
  }
  std::size_t capacity() const noexcept { return slots_.size(); }

  /// Forgets all events.
  void clear() noexcept {
    biased_section const lock(lock_);
    cleared_ = count_now();
  }

  /// Shows the events that are kept, oldest first, up to those that come while it does. Some at a time: nobody waits
  /// for long.
  void show(event_visitor& visitor) const {
    std::uint64_t const capacity = slots_.size();
    std::uint64_t end = 0, at = 0, forgotten = 0;
    {
      biased_section const lock(lock_);
      end = count_now();
      at = end > capacity && end - capacity > cleared_ ? end - capacity : cleared_;
      forgotten = at - cleared_;
    }
    visitor.see_begin(made_, forgotten);
    while (at < end) {
      shown_event some[64];
      std::size_t got = 0;
      {
        biased_section const lock(lock_);
        std::uint64_t const now = count_now();
        if (now > capacity && at < now - capacity) at = now - capacity;  // others came meanwhile
        for (; at < end && got < 64; ++at) some[got++] = slots_[at % capacity];
      }
      for (std::size_t i = 0; i < got; ++i) visitor.see(some[i]);
    }
  }

 private:
  /// How far before events are written their memory is brought near: a ring is larger than a core's cache.
  static constexpr std::uintptr_t ahead = 8 * sizeof(shown_event);

  std::uint64_t count_now() const noexcept {
    return rounds_ * slots_.size() + static_cast<std::uint64_t>(next_ - slots_.data());
  }

  tick_moment made_ = tick_moment::now();
  bool exact_times_;
  mutable biased_lock lock_;
  grown_array<shown_event> slots_;
  std::uint64_t latest_ = made_.ticks;  // the latest event's
  shown_event* next_ = slots_.data();   // where the next event goes
  shown_event* const end_ = slots_.data() + slots_.size();
  std::uint64_t rounds_ = 0;   // through all slots
  std::uint64_t cleared_ = 0;  // events before this one are forgotten
};

}  // namespace weir::detail
