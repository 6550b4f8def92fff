#pragma once
// Runs a trace on a stack: on the trace's streams and threads, in the trace's order.

#include "../peers/subject.hpp"
#include "../support/clock.hpp"
#include "../support/null_runtime.hpp"
#include "torch_model.hpp"
#include "trace.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace bench {

/// More streams than peers have, and more threads than this, share those.
inline constexpr std::size_t most_threads = 64;

/// What became of a trace on a stack.
struct outcome {
  bool whole = false;
  std::size_t events = 0;              ///< that ran
  std::size_t reserved = 0;            ///< the most bytes held of the device
  std::uint64_t taken = 0;             ///< calls that took memory from the device
  std::uint64_t cuda_calls = 0;        ///< all, but those that make the streams
  std::uint64_t moved = 0;             ///< chunks that were unmapped to be mapped elsewhere
  std::uint64_t moved_late = 0;        ///< in the second half of the events
  double mapping_us = 0;               ///< modelled: what creating, mapping, granting and unmapping chunks takes
  std::vector<std::uint32_t> times{};  ///< of each call, ns
};

/// Runs `step(event)` for every event in order, each on the thread that the trace had it on, until one returns false or
/// throws; what it throws comes out here. Returns how many were done. One thread runs at a time, as the order demands.
template <class Step>
class replay_in_turn {
 public:
  replay_in_turn(trace const& t, Step step) : trace_(t), step_(step), batons_(std::min(t.threads, most_threads)) {}

  std::size_t run() {
    if (batons_.size() == 1) {
      while (done_ < trace_.events.size() && step_(trace_.events[done_])) ++done_;
      return done_;
    }
    pass_to_next();
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < batons_.size(); ++i) threads.emplace_back([this, i] { work(i); });
    }
    if (failure_) std::rethrow_exception(failure_);
    return done_;
  }

 private:
  enum class turn { wait, go, end };
  struct alignas(64) baton {
    std::atomic<turn> whose{turn::wait};
  };

  std::size_t thread_of(std::size_t event) const { return trace_.events[event].thread % batons_.size(); }

  void work(std::size_t me) {
    for (;;) {
      batons_[me].whose.wait(turn::wait);
      if (batons_[me].whose == turn::end) return;
      batons_[me].whose = turn::wait;
      try {
        while (done_ < trace_.events.size() && thread_of(done_) == me) {
          if (!step_(trace_.events[done_])) return end();
          ++done_;
        }
      } catch (...) {
        failure_ = std::current_exception();
        return end();
      }
      pass_to_next();
    }
  }
  void pass_to_next() {
    if (done_ == trace_.events.size()) return end();
    hand(batons_[thread_of(done_)], turn::go);
  }
  void end() {
    for (baton& b : batons_) hand(b, turn::end);
  }
  static void hand(baton& b, turn to) {
    b.whose = to;
    b.whose.notify_one();
  }

  trace const& trace_;
  Step step_;
  std::vector<baton> batons_;
  std::size_t done_ = 0;  // whoever has the baton counts
  std::exception_ptr failure_;
};

/// Gives a trace to anything with `allocate` and `deallocate` of handles, and then frees what the trace leaves. An
/// `allocate` that throws `std::bad_alloc` ends it. Returns how many events ran.
template <class Handle, class Allocate, class Deallocate>
std::size_t replay(trace const& t, Allocate allocate, Deallocate deallocate) {
  std::vector<Handle> live(t.sizes.size());
  std::vector<std::uint8_t> is_live(t.sizes.size());
  auto const step = [&](trace::event const& e) {
    std::size_t const stream = e.stream % most_streams;
    try {
      if (e.allocates)
        live[e.block] = allocate(stream, t.sizes[e.block]);
      else
        deallocate(stream, live[e.block], t.sizes[e.block]);
    } catch (std::bad_alloc const&) {
      return false;
    }
    is_live[e.block] = e.allocates;
    return true;
  };
  std::size_t const done = replay_in_turn(t, step).run();
  for (std::size_t block = 0; block < live.size(); ++block)
    if (is_live[block] != 0) deallocate(0, live[block], t.sizes[block]);
  return done;
}

/// What calls for chunks take on an A100, in microseconds for one of 2 MiB (docs/virtual-memory.md has the source).
inline double mapping_time(call_counts const& made) {
  auto const calls = [&](call_kind kind) { return static_cast<double>(made.by_kind[static_cast<std::size_t>(kind)]); };
  return 193 * calls(call_kind::create) + 1.5 * calls(call_kind::map) + 36 * calls(call_kind::access) +
         26 * calls(call_kind::unmap);
}

/// On a new stack, made by `offered`, over a device of `capacity` bytes.
inline outcome replay_once(trace const& t, offered_subject const& offered, std::size_t capacity, bool timed) {
  static std::uint32_t const overhead = clock_cost();
  set_device_capacity(capacity);
  call_counts const before = cuda_calls();
  outcome o;
  if (timed) o.times.reserve(t.events.size() + t.sizes.size());
  auto const clocked = [&](auto call) {
    if (!timed) return call();
    auto const begin = std::chrono::steady_clock::now();
    call();
    auto const ns = (std::chrono::steady_clock::now() - begin).count();
    o.times.push_back(static_cast<std::uint32_t>(std::clamp<long>(ns - overhead, 0, 0x7fff'ffff)));
  };
  auto const unmapped = [&] { return cuda_calls().by_kind[static_cast<std::size_t>(call_kind::unmap)]; };
  std::uint64_t unmapped_early = 0;
  std::size_t seen = 0;
  auto const at_half = [&] {
    if (++seen == t.events.size() / 2) unmapped_early = unmapped();
  };
  try {
    auto const subject = offered.make();
    o.events = replay<void*>(
        t,
        [&](std::size_t stream, std::size_t bytes) {
          void* p = nullptr;
          at_half();
          clocked([&] { p = subject->allocate(stream, bytes); });
          if (p == nullptr) throw std::bad_alloc();
          return p;
        },
        [&](std::size_t stream, void* p, std::size_t bytes) {
          at_half();
          clocked([&] { subject->deallocate(stream, p, bytes); });
        });
    call_counts const made = cuda_calls() - before;
    o.moved = made.by_kind[static_cast<std::size_t>(call_kind::unmap)];
    o.moved_late = unmapped() - unmapped_early;
    o.mapping_us = mapping_time(made);
    for (auto const kind : {call_kind::allocate, call_kind::allocate_async, call_kind::create})
      o.taken += made.by_kind[static_cast<std::size_t>(kind)];
    o.cuda_calls = made.total() - made.by_kind[static_cast<std::size_t>(call_kind::stream)];
  } catch (std::bad_alloc const&) {
    // not even its first memory was to be had
  }
  o.whole = o.events == t.events.size();
  o.reserved = device_bytes_peak();
  return o;
}

/// On the model of PyTorch's placement, which has no times.
inline outcome replay_model(trace const& t, bool expandable, std::size_t capacity) {
  torch_model model(expandable, capacity);
  outcome o;
  o.events = replay<std::uint64_t>(
      t, [&](std::size_t stream, std::size_t bytes) { return model.allocate(stream, bytes); },
      [&](std::size_t, std::uint64_t p, std::size_t) { model.deallocate(p); });
  o.whole = o.events == t.events.size();
  o.reserved = model.peak_reserved();
  o.taken = o.cuda_calls = model.device_calls();
  return o;
}

/// The least capacity at which `runs(capacity)`, to 1 part in 1,000. On a device of `device` bytes it held `held`.
template <class Runs>
std::size_t smallest_device(std::size_t too_small, std::size_t held, std::size_t device, Runs runs) {
  std::size_t enough = std::min(held, device);
  while (enough < device && !runs(enough)) {  // a limit of 60% leaves 40% of whatever is there
    too_small = std::max(too_small, enough);
    enough = enough < device / 2 ? std::max<std::size_t>(2 * enough, 1) : device;
  }
  while (enough > too_small && enough - too_small > std::max<std::size_t>(enough / 1000, 1)) {
    std::size_t const middle = too_small + (enough - too_small) / 2;
    (runs(middle) ? enough : too_small) = middle;
  }
  return enough;
}

}  // namespace bench
