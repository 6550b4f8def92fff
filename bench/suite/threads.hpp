#pragma once
// The workloads of several threads, each on a stream of its own or all on one.

#include "../support/clock.hpp"
#include "../support/random_numbers.hpp"
#include "measured.hpp"
#include "workloads.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace bench {

/// The time of some calls, for their 99th percentile: of every 64th step, so that the clock does not show in the rest.
class sampled_calls {
 public:
  sampled_calls() { times_.reserve(std::size_t{1} << 20); }

  /// Whether the next step is one of those.
  bool is_due() { return ++steps_ % 64 == 0 && times_.size() + 2 <= times_.capacity(); }
  template <class Call>
  void time(Call call) {
    using clock = std::chrono::steady_clock;
    auto const begin = clock::now();
    call();
    auto const ns = (clock::now() - begin).count() - overhead_;
    times_.push_back(static_cast<double>(std::max<long>(ns, 0)));
  }
  /// Mean over the threads.
  void report(benchmark::State& state) {
    if (times_.empty()) return;
    auto const at = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() * 99 / 100);
    std::nth_element(times_.begin(), at, times_.end());
    state.counters["p99"] = benchmark::Counter(*at, benchmark::Counter::kAvgThreads);
  }

 private:
  static inline long const overhead_ = clock_cost();
  std::vector<double> times_;
  std::size_t steps_ = 0;
};

template <class Peer>
void threaded_pair(benchmark::State& state, Peer& peer, std::size_t stream) {
  sampled_calls sampled;
  void* p = nullptr;
  auto const allocate = [&] { p = peer.allocate(stream, 4096); };
  auto const free = [&] { peer.deallocate(stream, p, 4096); };
  {
    measured const m(state, 2);
    for (auto _ : state) {
      if (sampled.is_due()) [[unlikely]] {
        sampled.time(allocate);
        sampled.time(free);
      } else {
        allocate();
        benchmark::DoNotOptimize(p);
        free();
      }
    }
  }
  sampled.report(state);
}

template <class Peer>
void threaded_churn(benchmark::State& state, Peer& peer, std::size_t stream) {
  sampled_calls sampled;
  std::vector<live_block> blocks(1000);
  random_numbers random(static_cast<std::uint64_t>(state.thread_index()) + 100);
  live_block* b = nullptr;
  auto const free = [&] {
    if (b->address != nullptr) peer.deallocate(stream, b->address, b->bytes);
  };
  auto const allocate = [&] { b->address = peer.allocate(stream, b->bytes); };
  {
    measured const m(state, 2);
    for (auto _ : state) {
      std::uint64_t const r = random.next();
      b = &blocks[random_numbers::high(r, blocks.size())];
      std::size_t const bytes = random_numbers::low(r, 64 << 10) + 1;
      bool const is_timed = sampled.is_due() && b->address != nullptr;
      is_timed ? sampled.time(free) : free();
      b->bytes = bytes;
      is_timed ? sampled.time(allocate) : allocate();
    }
  }
  for (live_block& left : blocks)
    if (left.address != nullptr) peer.deallocate(stream, left.address, left.bytes);
  sampled.report(state);
}

/// Blocks on their way from one thread to another.
class handover {
 public:
  void put(live_block const& b) {
    while (put_ - taken_.load(std::memory_order_acquire) == ring_.size()) std::this_thread::yield();
    ring_[put_ % ring_.size()] = b;
    put_.store(put_ + 1, std::memory_order_release);
  }
  live_block take() {
    while (put_.load(std::memory_order_acquire) == taken_) std::this_thread::yield();
    live_block const b = ring_[taken_ % ring_.size()];
    taken_.store(taken_ + 1, std::memory_order_release);
    return b;
  }

 private:
  std::array<live_block, 1024> ring_;
  alignas(64) std::atomic<std::size_t> put_{0};
  alignas(64) std::atomic<std::size_t> taken_{0};
};

/// What one thread allocates the next one frees.
template <class Peer>
void threaded_hand_over(benchmark::State& state, Peer& peer, handover& way, std::size_t stream) {
  sampled_calls sampled;
  bool const allocates = state.thread_index() % 2 == 0;
  random_numbers random(static_cast<std::uint64_t>(state.thread_index()) + 100);
  live_block b;
  auto const call = [&] {
    if (allocates)
      b.address = peer.allocate(stream, b.bytes);
    else
      peer.deallocate(stream, b.address, b.bytes);
  };
  {
    measured const m(state, 1);
    for (auto _ : state) {
      if (allocates)
        b.bytes = random_numbers::low(random.next(), 64 << 10) + 1;
      else
        b = way.take();
      sampled.is_due() ? sampled.time(call) : call();
      if (allocates) way.put(b);
    }
  }
  sampled.report(state);
}

template <class Peer>
void add_threads() {
  // Thread 0 has made the peer by the time that the others pass the barrier at the start of the loop: only then do they
  // look where it is.
  struct late {
    std::unique_ptr<Peer>& peer;
    void* allocate(std::size_t stream, std::size_t bytes) { return peer->allocate(stream, bytes); }
    void deallocate(std::size_t stream, void* p, std::size_t bytes) { peer->deallocate(stream, p, bytes); }
  };
  auto const add_work = [](std::string const& workload, int threads, bool one_stream) {
    std::string const name = workload + std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
                             (one_stream ? " on one stream" : "");
    auto const stream_of = [one_stream](benchmark::State const& state) {
      return one_stream ? std::size_t{1} : 1 + static_cast<std::size_t>(state.thread_index());
    };
    auto const run = [=](benchmark::State& state, std::unique_ptr<Peer>& peer) {
      late when_there{peer};
      if (workload.starts_with("pair"))
        threaded_pair(state, when_there, stream_of(state));
      else
        threaded_churn(state, when_there, stream_of(state));
    };
    add<Peer>(name, run)->Threads(threads)->UseRealTime();
  };
  for (int const threads : {2, 4}) {
    auto const ways = std::make_shared<std::vector<handover>>(static_cast<std::size_t>(threads) / 2);
    auto const run = [=](benchmark::State& state, std::unique_ptr<Peer>& peer) {
      late when_there{peer};
      auto const thread = static_cast<std::size_t>(state.thread_index());
      threaded_hand_over(state, when_there, (*ways)[thread / 2], 1 + thread);
    };
    add<Peer>("handed over <= 64 KiB, " + std::to_string(threads) + " threads", run)->Threads(threads)->UseRealTime();
  }
  for (bool const one_stream : {false, true})
    for (int const threads : {1, 2, 4, 8}) {
      if (one_stream && threads == 1) continue;
      add_work("pair 4 KiB, ", threads, one_stream);
      add_work("1000 live <= 64 KiB, ", threads, one_stream);
    }
}

}  // namespace bench
